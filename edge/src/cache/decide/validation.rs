//! Validating a stored response (RFC 9111 4.3): what the origin is asked, and what its answer means.

use crate::handler::Response;
use crate::http::Fields;
use crate::http::conditional::Conditions;
use crate::store::Head;

use super::reuse::is_failure;

/// What an answer means for the stored response that was to be validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cache) enum Outcome {
    /// 304: it is what the origin has.
    Confirmed,
    /// The origin fails, and the stored response may be given all the same.
    Failure,
    /// Nothing can be made of it: what is stored is dropped, and all of it asked for.
    Again,
    /// It is a response by itself.
    Other,
}

/// The conditions under which the origin is to send the content again (RFC 9111 4.3.1): the
/// validators as they came.
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

/// Judges the answer. `serves_on_error`: whether the stored response may be given where the origin fails.
///
/// A 304 confirms what was asked about, whatever entity tag it carries itself; that is not taken
/// over.
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
    fn the_origin_is_asked_by_the_validators_as_they_came() {
        let both = asked(&head(&[("etag", "W/\"a\""), MODIFIED]));
        assert_eq!(
            both,
            "if-none-match: W/\"a\"\r\nif-modified-since: Sunday, 06-Nov-94 08:49:37 GMT\r\n"
        );
        assert_eq!(asked(&head(&[("etag", "a"), ("last-modified", "x")])), "");
    }

    #[test]
    fn an_answer_confirms_fails_or_stands_by_itself() {
        let known = head(&[MODIFIED]);
        let of = |head: &Head, status, serves_on_error| {
            outcome(head, &Response::new(status), serves_on_error)
        };
        assert_eq!(of(&known, 304, false), Outcome::Confirmed);
        // It was asked about nothing.
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
