//! Validation of a stored response (RFC 9111 4.3): the conditions sent to the origin, and the
//! meaning of its response.

use crate::handler::Response;
use crate::http::Fields;
use crate::http::conditional::Conditions;
use crate::store::Head;

use super::reuse::is_failure;

/// Decision about the stored response, given the response to its revalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cache) enum Outcome {
    /// A 304: the stored response is the current one.
    Confirmed,
    /// The origin fails, and the stored response may be served instead.
    Failure,
    /// A 304 to a request without conditions: the stored response is dropped and fetched again.
    Again,
    /// Any other response, which is judged like the response to a fetch without conditions.
    Other,
}

/// Adds the conditions of a revalidation (RFC 9111 4.3.1): the validators of the stored response,
/// byte for byte.
pub(in crate::cache) fn ask(head: &Head, out: &mut Fields) {
    let conditions = conditions(head);
    if let Some(tag) = conditions.if_none_match {
        out.append("if-none-match", tag);
    }
    if let Some(modified) = conditions.if_modified_since {
        out.append("if-modified-since", modified);
    }
}

fn conditions(head: &Head) -> Conditions<'_> {
    Conditions::of(head.etag.as_deref(), head.fields.get("last-modified"))
}

/// Judges the response to a revalidation. `serves_on_error` says whether the stored response may be
/// served if the origin fails.
///
/// A 304 confirms the stored response whatever entity tag the 304 itself carries. That tag is
/// ignored.
pub(in crate::cache) fn outcome(
    head: &Head,
    response: &Response,
    serves_on_error: bool,
) -> Outcome {
    match response.status {
        304 if !conditions(head).is_empty() => Outcome::Confirmed,
        304 => Outcome::Again,
        status if serves_on_error && is_failure(status) => Outcome::Failure,
        _ => Outcome::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::FieldBlock;

    fn head(lines: &[(&str, &str)]) -> Head {
        let fields: Fields = lines.iter().copied().collect();
        Head {
            etag: fields.get("etag").map(bytes::Bytes::copy_from_slice),
            fields: FieldBlock::from(&fields),
            ..Head::default()
        }
    }

    fn asked(head: &Head) -> String {
        let mut fields = Fields::new();
        ask(head, &mut fields);
        String::from_utf8_lossy(fields.text()).into_owned()
    }

    const MODIFIED: (&str, &str) = ("last-modified", "Sunday, 06-Nov-94 08:49:37 GMT");

    #[test]
    fn conditions_repeat_the_validators_byte_for_byte() {
        let both = asked(&head(&[("etag", "W/\"a\""), MODIFIED]));
        assert_eq!(
            both,
            "if-none-match: W/\"a\"\r\nif-modified-since: Sunday, 06-Nov-94 08:49:37 GMT\r\n"
        );
        assert_eq!(asked(&head(&[("etag", "a"), ("last-modified", "x")])), "");
    }

    #[test]
    fn a_response_confirms_fails_or_is_judged_by_itself() {
        let known = head(&[MODIFIED]);
        let of = |head: &Head, status, serves_on_error| {
            outcome(head, &Response::new(status), serves_on_error)
        };
        assert_eq!(of(&known, 304, false), Outcome::Confirmed);
        // Without validators, the request to the origin had no conditions.
        assert_eq!(of(&head(&[]), 304, true), Outcome::Again);
        for (status, serves_on_error, expected) in [
            (503, true, Outcome::Failure),
            (503, false, Outcome::Other),
            (501, true, Outcome::Other),
            (404, true, Outcome::Other),
            (200, true, Outcome::Other),
        ] {
            assert_eq!(of(&known, status, serves_on_error), expected, "{status}");
        }
    }
}
