//! `security_headers`: response headers that protect browsers against common attacks.

use super::fields::value_of;
use crate::handler::Response;
use crate::http::Scheme;

/// The headers with their values. The last one is sent on https only, since over http it is ignored
/// (RFC 6797 7.2). No value affects the whole domain, and none needs to be adapted to a page.
pub const SECURITY: [(&str, &str); 4] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "SAMEORIGIN"),
    ("referrer-policy", "strict-origin-when-cross-origin"),
    ("strict-transport-security", "max-age=31536000"),
];

/// A bit set of `SECURITY` headers.
pub(super) type Set = u8;

/// The empty set.
pub(super) const NOTHING: Set = 0;

/// The headers that a response lacks.
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

/// Calls `give` with each header of a set.
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
    fn missing_headers_are_added_and_hsts_only_on_https() {
        let mut response = Response::new(200);
        response.stored = [("X-FRAME-Options", "DENY")].into_iter().collect();
        response.fields.append("Referrer-Policy", "no-referrer");
        assert_eq!(added(&response, Scheme::Http), ["x-content-type-options"]);
        let both = ["x-content-type-options", "strict-transport-security"];
        assert_eq!(added(&response, Scheme::Https), both);
    }
}
