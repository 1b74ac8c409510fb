//! Error pages: configured content that replaces the content of error responses.

use std::ops::RangeInclusive;
use std::path::Path;

use bytes::Bytes;

use super::fields::take_out;
use crate::handler::{Body, Fault, Response};
use crate::http::{CacheStatus, Status};

/// A configured error page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// The statuses that the page is for.
    pub statuses: RangeInclusive<Status>,
    /// File that the page's content was read from, or `None` if the content is in the
    /// configuration.
    pub file: Option<Box<Path>>,
    /// Content of the page.
    pub content: Bytes,
    /// Content-Type of the page.
    pub media_type: Box<str>,
}

/// The options `error_pages` and `intercept_errors`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorPages {
    /// The configured error pages.
    pub pages: Vec<ErrorPage>,
    /// Whether the pages also replace the content of error responses from origins.
    pub intercept: bool,
    /// Whether error responses of a handler such as `respond` keep their own content.
    pub keep_own: bool,
}

/// Headers that describe the content and are removed with it (RFC 9110 8, RFC 6266, RFC 9530). All
/// others concern the error or the resource: Retry-After, WWW-Authenticate, Set-Cookie, freshness,
/// and Content-Range of a 416.
const CONTENT_HEADERS: [&str; 13] = [
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
    /// Returns the page for a status: that of the smallest range with this status.
    fn page(&self, status: Status) -> Option<&ErrorPage> {
        let pages = self.pages.iter();
        pages
            .filter(|page| page.statuses.contains(&status))
            .min_by_key(|page| page.statuses.end() - page.statuses.start())
    }

    /// Returns the error page for a fault as a response, or `None` if its status has no page.
    pub(super) fn of_fault(&self, fault: Fault) -> Option<Response> {
        let page = self.page(fault.status())?;
        let mut response = fault.response();
        page.fill(&mut response);
        Some(response)
    }

    /// Replaces the content of an error response with the page for its status, if there is one.
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
            let mut names = CONTENT_HEADERS.iter();
            names.any(|of_content| name.eq_ignore_ascii_case(of_content.as_bytes()))
        });
        response.fields.append("content-type", &*self.media_type);
        response.body = Body::Bytes(self.content.clone());
        response.length = None;
        response.until_close = false;
    }
}

/// Whether an origin, not Sluice itself, produced the response, now or when it was stored.
fn is_of_origin(response: &Response) -> bool {
    let own = |cache: CacheStatus| cache.outcome == crate::http::Outcome::Own;
    response.upstream.is_some() || response.cache.is_some_and(|cache| !own(cache))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Reason;

    #[test]
    fn retry_after_is_sent_with_an_error_page() {
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
        let page = |statuses, text: &'static str| ErrorPage {
            statuses,
            file: None,
            content: Bytes::from_static(text.as_bytes()),
            media_type: "text/html".into(),
        };
        ErrorPages {
            pages: vec![page(400..=499, "any"), page(404..=404, "own")],
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
    fn the_page_of_a_status_takes_precedence_over_its_class() {
        let of = |reason: Reason| pages(false).of_fault(reason.into());
        let not_found = of(Reason::NotFound).expect("a page");
        assert_eq!(content(&not_found), b"own");
        assert_eq!(not_found.fault, Some(Reason::NotFound));
        assert_eq!(not_found.fields.get("cache-status"), None);
        assert_eq!(
            not_found.fields.get("cache-control"),
            Some(&b"no-store"[..])
        );
        assert_eq!(content(&of(Reason::FileDenied).expect("a page")), b"any");
        assert!(of(Reason::NoServer).is_none());
    }

    #[test]
    fn an_origins_error_keeps_headers_that_do_not_describe_the_content() {
        let origins = || {
            let mut response = Response::text(404, "theirs");
            let stored = [
                ("ETag", "\"x\""),
                ("Retry-After", "5"),
                ("Content-Encoding", "br"),
            ];
            response.stored = stored.into_iter().collect();
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
        assert_eq!(replaced.stored.text(), b"Retry-After: 5\r\n");
        assert_eq!(replaced.fields.text(), b"content-type: text/html\r\n");
        assert_eq!(replaced.declared_length(), Some(3));
    }
}
