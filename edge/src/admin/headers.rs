//! The headers of all responses of the admin address.

use axum::response::Response;
use hyper::header::{CACHE_CONTROL, HeaderName, HeaderValue};

/// Response header by which the commands of `sluice` recognize the admin address.
pub const ADMIN_HEADER: &str = "sluice-admin";

/// Headers of every response. They let a page run only scripts and styles of the admin address, send requests only there,
/// and be shown in no frame.
pub(super) const EVERYWHERE: [(&str, &str); 7] = [
    (ADMIN_HEADER, "1"),
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
];

/// Adds the headers of every response. A response that says nothing about caches may not be stored by any.
pub(super) async fn mark(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in EVERYWHERE {
        let name = HeaderName::from_static(name);
        headers.insert(name, HeaderValue::from_static(value));
    }
    let no_store = HeaderValue::from_static("no-store");
    headers.entry(CACHE_CONTROL).or_insert(no_store);
    response
}
