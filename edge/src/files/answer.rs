//! From what was found to a response.

use std::sync::Arc;

use bytes::Bytes;

use super::Shared;
use super::body::FileBody;
use super::load::Resolved;
use super::table::{Content, Entry, File, Known};
use crate::handler::representation::Representation;
use crate::handler::{Body, Choice, Encoded, Encodings, Fault, Get, Head, Plain, Response};
use crate::http::Method;
use crate::http::coding::Accepted;
use crate::http::conditional::{EntityTag, Validators};
use crate::http::wanted::{self, Wanted, asks_for_less};
use crate::reason::Reason;
use crate::sys::{Random, root};

/// A request that is to be answered, and with what.
pub(super) struct Answering<'a> {
    pub request: &'a Head,
    pub shared: &'a Shared,
    pub random: &'a Random,
    pub encodings: Option<&'a dyn Encodings>,
}

impl Answering<'_> {
    /// The response.
    pub fn respond(&self, resolved: Resolved) -> Result<Response, Fault> {
        let entry = match resolved {
            Resolved::File(entry) => entry,
            Resolved::Folder => return Ok(with_a_slash(self.request)),
        };
        let Known::File(plain) = &entry.known else {
            return Err(Reason::NotFound.into());
        };
        if plain.coded.is_empty() && self.encodings.is_none() {
            return Ok(self.file(plain, &plain.head, false));
        }
        let accepted = Accepted::of(&self.request.fields);
        let beside = plain.coded.iter().map(|(coding, _)| *coding);
        if let Some(best) = accepted.best(beside)
            && let Some((_, coded)) = plain.coded.iter().find(|(coding, _)| *coding == best)
        {
            return Ok(self.file(coded, &coded.head, true));
        }
        Ok(match self.choose(&entry, plain, &accepted) {
            Choice::Plain => self.file(plain, &plain.head, !plain.coded.is_empty()),
            Choice::Varying(fields) => self.file(plain, &fields, true),
            Choice::Coded(encoded) => self.in_coding(&encoded, plain),
        })
    }

    /// The file, as it is, under these field lines. `several`: it may also be given in other codings.
    fn file(&self, file: &File, fields: &Bytes, several: bool) -> Response {
        let representation = whole_of(fields, file.length());
        match &file.content {
            Content::Memory(bytes) => {
                self.memory(&representation, file, (&file.etag, several), bytes)
            }
            Content::Open(large) => {
                let wanted = self.wanted(&representation, file, (&file.etag, several));
                let body = || FileBody::new(large.clone(), self.shared.clock.clone());
                representation
                    .bare(&wanted)
                    .unwrap_or_else(|| representation.respond(wanted, body(), || self.boundary()))
            }
        }
    }

    /// The file in a coding that was made.
    fn in_coding(&self, encoded: &Encoded, file: &File) -> Response {
        let representation = whole_of(&encoded.fields, encoded.content.len() as u64);
        let etag = encoded.etag.as_deref().unwrap_or_default();
        self.memory(&representation, file, (etag, true), &encoded.content)
    }

    fn memory(
        &self,
        representation: &Representation<'_>,
        file: &File,
        named: (&[u8], bool),
        content: &Bytes,
    ) -> Response {
        if self.request.method == Method::Get && !asks_for_less(&self.request.fields) {
            let mut response = representation.begin(representation.status);
            response.body = Body::Bytes(content.clone());
            return response;
        }
        let wanted = self.wanted(representation, file, named);
        representation.in_memory(wanted, content, || self.boundary())
    }

    /// What the request comes to, against what has this entity tag, and maybe is one of several codings.
    fn wanted(
        &self,
        representation: &Representation<'_>,
        file: &File,
        (etag, several): (&[u8], bool),
    ) -> Wanted {
        let validators = || Validators {
            etag: EntityTag::parse(etag),
            last_modified_s: Some(file.stamp.modified_s()),
            // There is a strong tag for If-Range: a date in it never holds (RFC 9110 8.8.2.2).
            date_s: None,
        };
        let Head { method, fields, .. } = self.request;
        let (status, length) = (representation.status, representation.length);
        let wanted = wanted::judge(method, fields, status, validators, length);
        match several {
            true => wanted::of_several_codings(wanted, fields),
            false => wanted,
        }
    }

    /// As it is, or in a coding that was made.
    fn choose(&self, entry: &Arc<Entry>, file: &File, accepted: &Accepted) -> Choice {
        let Some(encodings) = self.encodings else {
            return Choice::Plain;
        };
        let get = || -> Option<Get> {
            // What waits for its turn keeps nothing in memory or open.
            let entry = Arc::downgrade(entry);
            Some(Box::new(move || whole(&*entry.upgrade()?)))
        };
        let content = Plain {
            id: file.id,
            length: Some(file.length()),
            fields: &file.head,
            get: &get,
        };
        encodings.choose(accepted, &self.request.fields, &content)
    }

    /// Nobody can have put it into the content beforehand.
    fn boundary(&self) -> String {
        format!(
            "{:016x}{:016x}",
            self.random.next_u64(),
            self.random.next_u64()
        )
    }
}

/// All of a file's content, or of what was made of it.
fn whole_of(fields: &Bytes, length: u64) -> Representation<'_> {
    Representation {
        status: 200,
        fields,
        length: Some(length),
        odd_range: false,
        age_s: None,
        cache: None,
    }
}

/// All of a file's content; `None`: it has changed.
fn whole(entry: &Entry) -> Option<Bytes> {
    let Known::File(file) = &entry.known else {
        return None;
    };
    let opened = match &file.content {
        Content::Memory(bytes) => return Some(bytes.clone()),
        Content::Open(large) => &large.opened,
    };
    let size = usize::try_from(file.length()).ok()?;
    let mut bytes = Vec::new();
    while bytes.len() < size {
        let (at, room) = (bytes.len() as u64, (size - bytes.len()).min(1 << 20));
        match root::read(&opened.file, at, room, root::How::Wait, &mut bytes) {
            Ok(Some(1..)) => {}
            _ => return None,
        }
    }
    let now = root::Stamp::now(&opened.file).ok()?;
    opened
        .stamp
        .has_same_content(&now)
        .then(|| Bytes::from(bytes))
}

/// The folder's own address: relative links in its index lead into it.
fn with_a_slash(request: &Head) -> Response {
    let path = [request.path(), "/"].concat();
    moved(request, &path, "this is a folder")
}

/// Another address (RFC 9110 15.4.2) on this host: with one slash at its beginning, as two would name
/// another one.
pub(super) fn moved(request: &Head, path: &str, why: &str) -> Response {
    let mut response = Response::text(301, format!("301 {why}\n"));
    let mut location = String::with_capacity(request.target.len() + 2);
    location.push('/');
    location.push_str(path.trim_start_matches('/'));
    if let Some(query) = request.query() {
        location.push('?');
        location.push_str(query);
    }
    response.fields.append("location", location);
    response
}
