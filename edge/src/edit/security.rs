//! `security_headers`: response headers that protect browsers against common attacks.

use super::fields::value_of;
use crate::handler::Response;
use crate::http::Scheme;

/// Name of the header that makes browsers use https only (RFC 6797).
pub(super) const HSTS: &str = "strict-transport-security";

/// The security headers and their values. The last header is sent over https only, since browsers
/// ignore it over http (RFC 6797 7.2). The values don't affect subdomains, and need not be adapted
/// to a page.
pub const SECURITY: [(&str, &str); 4] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "SAMEORIGIN"),
    ("referrer-policy", "strict-origin-when-cross-origin"),
    (HSTS, "max-age=31536000"),
];

/// A set of the headers of `SECURITY`: bit `i` is set if the header at index `i` is in the set.
pub(super) type HeaderSet = u8;

/// The empty set of security headers.
pub(super) const NO_HEADERS: HeaderSet = 0;

/// Returns the security headers that a response lacks.
pub(super) fn missing(response: &Response, scheme: Scheme) -> HeaderSet {
    let count = match scheme {
        Scheme::Http => SECURITY.len() - 1,
        Scheme::Https => SECURITY.len(),
    };
    let fields = SECURITY.iter().take(count).enumerate();
    fields.fold(NO_HEADERS, |missing, (i, (name, _))| {
        missing | (u8::from(value_of(response, name).is_none()) << i)
    })
}

/// Calls `give` with the name and value of each security header in the set.
pub(super) fn each(set: HeaderSet, mut give: impl FnMut(&str, &str)) {
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
