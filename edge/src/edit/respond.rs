//! Handlers that send a configured response (`respond`) or a redirect (`redirect`).

use std::io::Write as _;

use bytes::Bytes;

use crate::handler::representation::{InMemory, Representation};
use crate::handler::template::{RequestValues, Template};
use crate::handler::{Answer, Body, Handler, Request, Response};
use crate::http::conditional::{EntityTag, Validators};
use crate::http::{FieldBlock, Fields, Method, Status, wanted};

/// Options of `respond`, which always sends the same response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RespondOptions {
    /// Status of the response, 200 to 599.
    pub status: Status,
    /// Content of the response; `None` for a response without content.
    pub content: Option<Bytes>,
    /// Content-Type of the response.
    pub media_type: Box<str>,
}

/// Options of `redirect`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectOptions {
    /// Value of the Location header: visible ASCII. `{status}` and `{header:…}` can't be used.
    pub to: Template,
    /// Status of the redirect: 301, 302, 303, 307 or 308.
    pub status: Status,
}

/// Handler of `respond`. If the configured status is 200, the handler also answers conditional and
/// range requests (RFC 9110 13, 14).
pub struct Respond {
    status: Status,
    content: Bytes,
    fields: FieldBlock,
    etag: String,
}

impl Respond {
    /// Creates a handler that always sends the configured response.
    pub fn new(options: &RespondOptions) -> Respond {
        let content = options.content.clone().unwrap_or_default();
        let hash = blake3::hash(&content).to_hex();
        let etag = format!("\"{}\"", &hash[..16]);
        let mut fields = Fields::new();
        if options.content.is_some() {
            fields.append("content-type", &*options.media_type);
        }
        if options.status == 200 {
            fields.append("etag", &etag);
            fields.append("accept-ranges", "bytes");
        }
        Respond {
            status: options.status,
            content,
            fields: FieldBlock::from(&fields),
            etag,
        }
    }

    fn answer(&self, request: &Request) -> Response {
        let representation = Representation {
            status: self.status,
            fields: &self.fields,
            length: Some(self.content.len() as u64),
            odd_range: false,
            age_s: None,
            cache: None,
        };
        let head = &request.head;
        let is_read = matches!(head.method, Method::Get | Method::Head);
        if self.status != 200 || !is_read || !wanted::has_condition_or_range(&head.fields) {
            let mut response = representation.begin(self.status);
            match head.method {
                Method::Head => response.length = representation.length,
                _ => response.body = Body::Bytes(self.content.clone()),
            }
            return response;
        }
        let validators = || Validators {
            etag: EntityTag::parse(self.etag.as_bytes()),
            last_modified_s: None,
            undated: None,
            date_s: None,
        };
        let (status, length) = (self.status, representation.length);
        let wanted = wanted::judge(&head.method, &head.fields, status, validators, length);
        let content = InMemory::new(self.content.clone());
        // The boundary between ranges must not appear in the content. The content can't contain its
        // own hash, so a part of that hash is the boundary.
        let boundary = || blake3::hash(&self.content).to_hex()[16..48].to_owned();
        representation
            .bare(&wanted)
            .unwrap_or_else(|| representation.respond(wanted, content, boundary))
    }
}

impl Handler for Respond {
    fn handle(&self, request: Request) -> Answer {
        Answer::Ready(Ok(self.answer(&request)))
    }
}

/// Handler of `redirect` (RFC 9110 15.4).
pub struct Redirect(RedirectOptions);

impl Redirect {
    /// Creates a handler that redirects all requests.
    pub fn new(options: RedirectOptions) -> Redirect {
        Redirect(options)
    }

    fn location(&self, request: &RequestValues<'_>) -> Option<Vec<u8>> {
        let mut location = Vec::new();
        self.0.to.expand(request, self.0.status, &mut location)?;
        if !self.0.to.beginning().starts_with("//") {
            // A Location that begins with two slashes names a host (RFC 3986 4.2), so a request for
            // `//evil` could redirect to another site. Only one of the slashes is kept.
            let slashes = location.iter().take_while(|b| **b == b'/').count();
            location.drain(..slashes.saturating_sub(1));
        }
        Some(encoded(location))
    }
}

/// Escapes bytes that clients may send in targets but that a URI can't contain.
fn encoded(location: Vec<u8>) -> Vec<u8> {
    let is_odd = |b: u8| b"\"<>\\^`{|}".contains(&b);
    if !location.iter().any(|b| is_odd(*b)) {
        return location;
    }
    let mut encoded = Vec::with_capacity(location.len() + 16);
    for b in location {
        // Writing to a `Vec` does not fail.
        let _ = match is_odd(b) {
            true => write!(encoded, "%{b:02X}"),
            false => encoded.write_all(&[b]),
        };
    }
    encoded
}

impl Handler for Redirect {
    fn handle(&self, request: Request) -> Answer {
        let request = RequestValues::of(&request.head, &request.peer);
        let mut response = Response::new(self.0.status);
        // The Location is always a valid field value: all variables permitted in a redirect are
        // visible ASCII in a validated request.
        if let Some(location) = self.location(&request) {
            response.fields.append("location", location);
        }
        Answer::Ready(Ok(response))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http::Scheme;

    fn location(to: &str, target: &str) -> String {
        let redirect = Redirect::new(RedirectOptions {
            to: Template::parse(to).expect("a template"),
            status: 301,
        });
        let request = RequestValues {
            method: &Method::Get,
            target,
            authority: "a.example",
            scheme: Scheme::Http,
            client: [0; 4].into(),
            local: ([0; 4], 0).into(),
            fields: &Fields::new(),
            certificate: None,
        };
        let location = redirect.location(&request).unwrap_or_default();
        String::from_utf8(location).expect("text")
    }

    #[test]
    fn a_path_never_becomes_a_host() {
        let target = "//evil.example/a?b";
        assert_eq!(location("{path}{query}", target), "/evil.example/a?b");
        assert_eq!(location("/{path}", target), "/evil.example/a");
        assert_eq!(
            location("//b.example{path}", target),
            "//b.example//evil.example/a"
        );
        let odd = location("{path}{query}", "/a|b?<c>\"");
        assert_eq!(odd, "/a%7Cb?%3Cc%3E%22");
        let whole = location("https://{host}{path}", target);
        assert_eq!(whole, "https://a.example//evil.example/a");
    }

    proptest! {
        #[test]
        fn a_redirect_stays_on_its_host_for_any_path(target in "/[/a-z?@:.]{0,20}") {
            for to in ["{path}", "{path}{query}", "/{path}", "/x{path}"] {
                let location = location(to, &target);
                prop_assert!(location.starts_with('/') && !location.starts_with("//"), "{}", location);
            }
        }
    }
}
