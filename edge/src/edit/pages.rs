//! Error pages: content of our own in place of errors'.

use std::path::Path;

use bytes::Bytes;

use super::fields::take_out;
use crate::handler::{Body, Fault, Response};
use crate::http::{CacheStatus, Status};

/// Statuses that a page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Which {
    /// This one, 400 to 599.
    Status(Status),
    /// All of a hundred: 4 or 5.
    Class(u16),
}

/// A page that takes the place of errors'.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// Of which errors.
    pub which: Which,
    /// The file that it was read from, if it was.
    pub file: Option<Box<Path>>,
    /// What it holds.
    pub content: Bytes,
    /// Its Content-Type: a field value.
    pub media_type: Box<str>,
}

/// `errors` and `intercept`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorPages {
    /// The pages.
    pub pages: Vec<ErrorPage>,
    /// Whether what origins answer gets them, too.
    pub intercept: bool,
    /// Whether responses that Sluice makes itself, and not for a fault, keep their content.
    pub keep_own: bool,
}

/// Fields that describe content, and go with it (RFC 9110 8, RFC 6266, RFC 9530). All others tell about
/// the error or the resource: Retry-After, WWW-Authenticate, Set-Cookie, how fresh it is, and with 416
/// Content-Range.
const OF_CONTENT: [&str; 13] = [
    "accept-ranges",
    "content-digest",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-location",
    "content-md5",
    "content-type",
    "digest",
    "etag",
    "last-modified",
    "repr-digest",
    "trailer",
];

impl ErrorPages {
    /// The page of a status: its own, else that of its class.
    fn page(&self, status: Status) -> Option<&ErrorPage> {
        let pages = || self.pages.iter();
        let own = pages().find(|page| page.which == Which::Status(status));
        own.or_else(|| pages().find(|page| page.which == Which::Class(status / 100)))
    }

    /// The response to a fault with a page of its own.
    pub(super) fn of_fault(&self, fault: Fault) -> Option<Response> {
        let page = self.page(fault.status())?;
        let mut response = fault.response();
        page.fill(&mut response);
        Some(response)
    }

    /// Gives a response its page, if it is an error's.
    pub(super) fn replace(&self, response: &mut Response) {
        if response.status < 400 {
            return;
        }
        let replaced = match is_of_origin(response) {
            true => self.intercept,
            false => !self.keep_own,
        };
        if !replaced {
            return;
        }
        if let Some(page) = self.page(response.status) {
            page.fill(response);
        }
    }
}

impl ErrorPage {
    fn fill(&self, response: &mut Response) {
        take_out(response, |name| {
            let mut names = OF_CONTENT.iter();
            names.any(|of_content| name.eq_ignore_ascii_case(of_content.as_bytes()))
        });
        response.fields.append("content-type", &*self.media_type);
        response.body = Body::Bytes(self.content.clone());
        response.length = None;
        response.until_close = false;
    }
}

/// Whether an origin has answered so, now or before.
fn is_of_origin(response: &Response) -> bool {
    let own = |cache: CacheStatus| cache.outcome == crate::http::Outcome::Own;
    response.upstream.is_some() || response.cache.is_some_and(|cache| !own(cache))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Reason;

    #[test]
    fn who_is_to_come_back_later_is_told_when() {
        let fault = Fault {
            retry_after_s: 7,
            ..Reason::TooManyRequests.into()
        };
        let value = |fault: Fault| {
            fault
                .response()
                .fields
                .get("retry-after")
                .map(<[u8]>::to_vec)
        };
        assert_eq!(value(fault).as_deref(), Some(&b"7"[..]));
        assert_eq!(value(Reason::NoRoute.into()), None);
    }

    fn pages(intercept: bool) -> ErrorPages {
        let page = |which, text: &'static str| ErrorPage {
            which,
            file: None,
            content: Bytes::from_static(text.as_bytes()),
            media_type: "text/html".into(),
        };
        ErrorPages {
            pages: vec![
                page(Which::Class(4), "any"),
                page(Which::Status(404), "own"),
            ],
            intercept,
            keep_own: false,
        }
    }

    fn content(response: &Response) -> &[u8] {
        match &response.body {
            Body::Bytes(bytes) => bytes,
            _ => b"",
        }
    }

    #[test]
    fn a_status_of_its_own_comes_before_its_class() {
        let of = |cause: Reason| pages(false).of_fault(cause.into());
        let not_found = of(Reason::NotFound).expect("a page");
        assert_eq!(content(&not_found), b"own");
        assert_eq!(not_found.fault, Some(Reason::NotFound));
        assert_eq!(
            not_found.fields.get("cache-status"),
            Some(&b"sluice; detail=not-found"[..])
        );
        assert_eq!(
            not_found.fields.get("cache-control"),
            Some(&b"no-store"[..])
        );
        assert_eq!(content(&of(Reason::FileDenied).expect("a page")), b"any");
        assert!(of(Reason::NoServer).is_none());
    }

    #[test]
    fn an_origins_error_keeps_what_does_not_describe_its_content() {
        let origins = || {
            let mut response = Response::text(404, "theirs");
            response.stored =
                Bytes::from_static(b"ETag: \"x\"\r\nRetry-After: 5\r\nContent-Encoding: br\r\n");
            response.upstream = Some(std::rc::Rc::default());
            response.length = Some(6);
            response
        };
        let mut left = origins();
        pages(false).replace(&mut left);
        assert_eq!(content(&left), b"theirs");
        let mut replaced = origins();
        pages(true).replace(&mut replaced);
        assert_eq!(content(&replaced), b"own");
        assert_eq!(&replaced.stored[..], b"Retry-After: 5\r\n");
        assert_eq!(replaced.fields.text(), b"content-type: text/html\r\n");
        assert_eq!(replaced.content_length(), Some(3));
    }
}
