//! `security`: fields that close well-known holes in browsers.

use super::fields::value_of;
use crate::handler::Response;
use crate::http::Scheme;

/// The fields, each with its value. The last one under https alone: over http it means nothing (RFC 6797
/// 7.2). None for the whole domain, none that a page has to be written for.
pub const SECURITY: [(&str, &str); 4] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "SAMEORIGIN"),
    ("referrer-policy", "strict-origin-when-cross-origin"),
    ("strict-transport-security", "max-age=31536000"),
];

/// A bit for each of `SECURITY`.
pub(super) type Set = u8;

/// None of them.
pub(super) const NOTHING: Set = 0;

/// Those that a response lacks.
pub(super) fn missing(response: &Response, scheme: Scheme) -> Set {
    let count = match scheme {
        Scheme::Http => SECURITY.len() - 1,
        Scheme::Https => SECURITY.len(),
    };
    let fields = SECURITY.iter().take(count).enumerate();
    fields.fold(NOTHING, |missing, (i, (name, _))| {
        missing | (u8::from(value_of(response, name).is_none()) << i)
    })
}

/// Each of a set.
pub(super) fn each(set: Set, mut give: impl FnMut(&str, &str)) {
    for (i, (name, value)) in SECURITY.iter().enumerate() {
        if set & (1 << i) != 0 {
            give(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(response: &Response, scheme: Scheme) -> Vec<String> {
        let mut names = Vec::new();
        each(missing(response, scheme), |name, _| {
            names.push(name.to_owned())
        });
        names
    }

    #[test]
    fn what_a_response_lacks_is_added_and_https_alone_asks_for_https() {
        let mut response = Response::new(200);
        response.stored = [("X-FRAME-Options", "DENY")].into_iter().collect();
        response.fields.append("Referrer-Policy", "no-referrer");
        assert_eq!(added(&response, Scheme::Http), ["x-content-type-options"]);
        let both = ["x-content-type-options", "strict-transport-security"];
        assert_eq!(added(&response, Scheme::Https), both);
    }
}
