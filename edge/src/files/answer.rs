//! Builds the response for a resolved file or folder.

use std::sync::Arc;

use bytes::Bytes;

use super::body::FileBody;
use super::load::Resolved;
use super::shared::Shared;
use super::table::{Content, Entry, File, Known};
use crate::handler::representation::Representation;
use crate::handler::{
    Body, Choice, Encoded, Encodings, Fault, Get, Head, HeadParts, Identity, Response,
};
use crate::http::coding::Accepted;
use crate::http::conditional::{EntityTag, Validators};
use crate::http::wanted::{self, Wanted, has_condition_or_range};
use crate::http::{FieldBlock, Method};
use crate::reason::Reason;
use crate::sys::{Random, root};

/// A request, and all data from which its response is built.
pub(super) struct Responder<'a> {
    pub request: &'a Head,
    pub shared: &'a Shared,
    pub random: &'a Random,
    pub encodings: Option<&'a dyn Encodings>,
}

impl Responder<'_> {
    /// Builds the response.
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
            Choice::Identity => self.file(plain, &plain.head, !plain.coded.is_empty()),
            Choice::Varying(fields) => self.file(plain, &fields, true),
            Choice::Coded(encoded) => self.in_coding(&encoded, plain),
        })
    }

    /// Returns the response with the file as it is on disk, either uncompressed or precompressed,
    /// and these header lines. `several`: the content is also available in other encodings.
    fn file(&self, file: &File, fields: &FieldBlock, several: bool) -> Response {
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

    /// Returns the response with the file in an encoding made by `compress`.
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
        if self.request.method == Method::Get && !has_condition_or_range(&self.request.fields) {
            let mut response = representation.begin(representation.status);
            response.body = Body::Bytes(content.clone());
            return response;
        }
        let wanted = self.wanted(representation, file, named);
        representation.in_memory(wanted, content, || self.boundary())
    }

    /// Evaluates the request's conditions and ranges for a representation with this entity tag.
    /// `several`: the content is available in several encodings.
    fn wanted(
        &self,
        representation: &Representation<'_>,
        file: &File,
        (etag, several): (&[u8], bool),
    ) -> Wanted {
        let validators = || Validators {
            etag: EntityTag::parse(etag),
            last_modified_s: Some(file.stamp.modified_s()),
            undated: None,
            // Without a Date, Last-Modified is a weak validator (RFC 9110 8.8.2.2), so If-Range
            // must name the strong entity tag to match.
            date_s: None,
        };
        let HeadParts { method, fields, .. } = &**self.request;
        let (status, length) = (representation.status, representation.length);
        let wanted = wanted::judge(method, fields, status, validators, length);
        match several {
            true => wanted::for_several_codings(wanted, fields),
            false => wanted,
        }
    }

    /// Chooses between the uncompressed file and its compressed forms.
    fn choose(&self, entry: &Arc<Entry>, file: &File, accepted: &Accepted) -> Choice {
        let Some(encodings) = self.encodings else {
            return Choice::Identity;
        };
        let get = || -> Option<Get> {
            // The queued compression job holds a weak reference, because a job must not keep
            // content in memory or files open.
            let entry = Arc::downgrade(entry);
            Some(Box::new(move || whole(&*entry.upgrade()?)))
        };
        let content = Identity {
            id: file.id,
            length: Some(file.length()),
            fields: &file.head,
            get: &get,
        };
        encodings.choose(accepted, &self.request.fields, &content)
    }

    /// Returns a multipart boundary that cannot occur in the content, because clients can't predict
    /// the boundary.
    fn boundary(&self) -> String {
        format!(
            "{:016x}{:016x}",
            self.random.next_u64(),
            self.random.next_u64()
        )
    }
}

/// Describes the complete content of a file, or of its compressed form.
fn whole_of(fields: &FieldBlock, length: u64) -> Representation<'_> {
    Representation {
        status: 200,
        fields,
        length: Some(length),
        odd_range: false,
        age_s: None,
        cache: None,
    }
}

/// Returns the complete content of a file; `None` if the file has changed since it was opened.
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

/// Redirects to the folder's URL with a slash at its end, because browsers resolve the links in the
/// folder's index relative to that URL.
fn with_a_slash(request: &Head) -> Response {
    let path = [request.path(), "/"].concat();
    moved(request, &path, "a folder's path ends in a slash")
}

/// Redirects to another path on this host (RFC 9110 15.4.2). The Location begins with exactly one
/// slash, because two would introduce a host.
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
