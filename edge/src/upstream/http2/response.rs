//! Converts the head of a response into the form that every protocol shares.

use smallvec::SmallVec;

use crate::http::hop::is_hop_by_hop;
use crate::http::{Fields, Version};
use crate::http2::response::Response;
use crate::upstream::hop;
use crate::upstream::inbound::{Content, Received};

/// Takes the head out of `response`. `ends`: no content follows. `head_only`: the request was HEAD.
pub(super) fn received(response: &mut Response, ends: bool, head_only: bool) -> Received {
    let (status, declared) = (response.status, response.content_length);
    let content = match (status, declared) {
        (100..=199 | 204, _) => Content::None { declared: None },
        (304, declared) => Content::None { declared },
        (_, declared) if head_only => Content::None { declared },
        _ if ends => Content::None { declared: None },
        (_, Some(length @ 1..)) => Content::Sized(length),
        // An end without content, or trailers, follow.
        (_, _) => Content::Delimited,
    };
    let mut fields = std::mem::take(&mut response.fields);
    fields.retain(|name, _| name != b"content-length" && !is_hop_by_hop(name));
    Received {
        status,
        version: Version::Http2,
        fields,
        content,
        protocols: SmallVec::new(),
    }
}

/// Returns the trailers that may be forwarded (RFC 9110 6.5.1).
pub(super) fn trailers(mut fields: Fields) -> Fields {
    fields.retain(|name, _| hop::may_trail(name));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(status: u16, length: Option<u64>, ends: bool, head_only: bool) -> Content {
        let mut response = Response::default();
        (response.status, response.content_length) = (status, length);
        response.fields.append("content-length", "1");
        response.fields.append("a", "b");
        let received = received(&mut response, ends, head_only);
        assert_eq!(received.fields.text(), b"a: b\r\n");
        received.content
    }

    #[test]
    fn content_is_delimited_by_length_or_by_the_end_of_the_stream() {
        let none = Content::None { declared: None };
        let declared = |length| Content::None {
            declared: Some(length),
        };
        assert_eq!(content(200, Some(5), false, false), Content::Sized(5));
        assert_eq!(content(200, None, false, false), Content::Delimited);
        assert_eq!(content(200, Some(0), false, false), Content::Delimited);
        assert_eq!(content(200, Some(0), true, false), none);
        assert_eq!(content(200, None, true, false), none);
        assert_eq!(content(200, Some(5), true, true), declared(5));
        assert_eq!(content(304, Some(5), true, false), declared(5));
        assert_eq!(content(204, None, true, false), none);
        assert_eq!(content(103, None, false, false), none);
    }
}
