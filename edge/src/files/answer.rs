//! From what was found to a response.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::Shared;
use super::body::FileBody;
use super::load::Resolved;
use super::table::{Content, Entry, File, Known};
use crate::handler::representation::{InMemory, Representation};
use crate::handler::{Body, Cause, Encoded, Encodings, Fault, Head, Plain, Response};
use crate::http::Method;
use crate::http::coding::Accepted;
use crate::http::conditional::{EntityTag, Validators};
use crate::http::wanted::{self, Wanted, asks_for_less};
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
            return Err(Cause::NotFound.into());
        };
        if plain.coded.is_empty() && self.encodings.is_none() {
            return Ok(self.file(plain));
        }
        let accepted = Accepted::of(&self.request.fields);
        let beside = plain.coded.iter().map(|(coding, _)| *coding);
        if let Some(best) = accepted.best(beside)
            && let Some((_, coded)) = plain.coded.iter().find(|(coding, _)| *coding == best)
        {
            return Ok(self.file(coded));
        }
        match self.encoded(&entry, plain, &accepted) {
            Some(encoded) => Ok(self.in_coding(&encoded, plain)),
            None => Ok(self.file(plain)),
        }
    }

    /// The file, as it is.
    fn file(&self, file: &File) -> Response {
        let representation = Representation {
            status: 200,
            fields: &file.head,
            length: Some(file.length()),
            odd_range: false,
            age_s: None,
            cache: None,
        };
        match &file.content {
            Content::Memory(bytes) => self.memory(&representation, file, &file.etag, bytes),
            Content::Open(large) => {
                let wanted = self.wanted(&representation, file, Some(&file.etag));
                let body = || FileBody::new(large.clone(), self.shared.clock.clone());
                representation
                    .bare(&wanted)
                    .unwrap_or_else(|| representation.respond(wanted, body(), || self.boundary()))
            }
        }
    }

    /// The file in a coding that was made.
    fn in_coding(&self, encoded: &Encoded, file: &File) -> Response {
        let representation = Representation {
            status: 200,
            fields: &encoded.fields,
            length: Some(encoded.content.len() as u64),
            odd_range: false,
            age_s: None,
            cache: None,
        };
        let etag = encoded.etag.as_deref().unwrap_or_default();
        self.memory(&representation, file, etag, &encoded.content)
    }

    fn memory(
        &self,
        representation: &Representation<'_>,
        file: &File,
        etag: &[u8],
        content: &Bytes,
    ) -> Response {
        if self.request.method == Method::Get && !asks_for_less(&self.request.fields) {
            let mut response = representation.begin(representation.status);
            response.body = Body::Bytes(content.clone());
            return response;
        }
        let wanted = self.wanted(representation, file, Some(etag));
        if let Some(response) = representation.bare(&wanted) {
            return response;
        }
        if let Some((range, length)) = only_part(&wanted) {
            let mut response = representation.part(&range, length);
            let range = range.start as usize..range.end as usize;
            response.body = Body::Bytes(content.slice(range));
            return response;
        }
        let content = InMemory::new(content.clone());
        representation.respond(wanted, content, || self.boundary())
    }

    fn wanted(
        &self,
        representation: &Representation<'_>,
        file: &File,
        etag: Option<&[u8]>,
    ) -> Wanted {
        let validators = || Validators {
            etag: etag.and_then(EntityTag::parse),
            last_modified_s: Some(file.stamp.modified_s()),
            date_s: Some(self.shared.clock.unix_ms() / 1000),
        };
        let Head { method, fields, .. } = self.request;
        let (status, length) = (representation.status, representation.length);
        wanted::judge(method, fields, status, validators, length)
    }

    /// The file in a coding that the client would rather have, where one was made.
    fn encoded(
        &self,
        entry: &Arc<Entry>,
        file: &File,
        accepted: &Accepted,
    ) -> Option<Arc<Encoded>> {
        let encodings = self.encodings.filter(|_| accepted.is_any())?;
        encodings.choose(
            accepted,
            &Plain {
                id: file.id,
                media_type: file.media_type.as_bytes(),
                length: file.length(),
                etag: Some(&file.etag),
                fields: &file.head,
                get: &|| {
                    let entry = entry.clone();
                    Box::new(move || whole(&entry))
                },
            },
        )
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

/// The one range that is wanted, of a representation of this length.
fn only_part(wanted: &Wanted) -> Option<(Range<u64>, u64)> {
    match wanted {
        Wanted::Parts(parts, length) => match &parts[..] {
            [one] => Some((one.clone(), *length)),
            _ => None,
        },
        _ => None,
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

/// The folder's own address (RFC 9110 15.4.2): relative links in its index lead into it. With one slash
/// at its beginning: two would name another host.
fn with_a_slash(request: &Head) -> Response {
    let mut response = Response::text(301, "301 this is a folder\n");
    let mut location = String::with_capacity(request.target.len() + 2);
    location.push('/');
    location.push_str(request.path().trim_start_matches('/'));
    location.push('/');
    if let Some(query) = request.query() {
        location.push('?');
        location.push_str(query);
    }
    response.fields.append("location", location);
    response
}
