//! Cookies by which clients stick to a server.

use std::fmt::Write as _;
use std::time::Duration;

use crate::http::key::KeyHash;
use crate::http::{Fields, Scheme, cookies};

/// Digits of a cookie's value.
const DIGITS: usize = 16;

/// Options of `sticky`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sticky {
    /// Name of the cookie.
    pub cookie: String,
    /// Time for which clients keep the cookie. `None`: until the browser is closed.
    pub max_age: Option<Duration>,
}

/// Returns the number that names a server in cookies: a hash, so that clients do not learn its
/// address.
pub(super) fn id(upstream: &str, address: &str) -> u64 {
    KeyHash::of_bytes(format!("sticky\0{upstream}\0{address}").as_bytes()).low()
}

impl Sticky {
    /// Returns the id of the server that the cookie of a request names.
    pub(super) fn named(&self, request: &Fields) -> Option<u64> {
        let value = cookies::value(request, &self.cookie)?;
        let is_id = value.len() == DIGITS && value.iter().all(u8::is_ascii_hexdigit);
        let digits = std::str::from_utf8(value).ok().filter(|_| is_id)?;
        u64::from_str_radix(digits, 16).ok()
    }

    /// Returns the value of Set-Cookie that names a server (RFC 6265 4.1). `scheme` is that of the
    /// request: a cookie that was set over TLS is sent only over TLS.
    pub(super) fn set_cookie(&self, id: u64, scheme: Scheme) -> String {
        let mut line = format!("{}={id:016x}; Path=/; HttpOnly; SameSite=Lax", self.cookie);
        if let Some(max_age) = self.max_age {
            // Writing to a String can't fail.
            let _ = write!(line, "; Max-Age={}", max_age.as_secs());
        }
        if scheme == Scheme::Https {
            line += "; Secure";
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_that_is_set_names_the_server() {
        let sticky = Sticky {
            cookie: "server".to_owned(),
            max_age: Some(Duration::from_secs(60)),
        };
        let id = id("origin", "10.0.0.1:80");
        let line = sticky.set_cookie(id, Scheme::Https);
        let (pair, attributes) = line.split_once("; ").expect("attributes");
        assert_eq!(
            attributes,
            "Path=/; HttpOnly; SameSite=Lax; Max-Age=60; Secure"
        );
        let fields: Fields = [("cookie", format!("a=b; {pair}").as_str())]
            .into_iter()
            .collect();
        assert_eq!(sticky.named(&fields), Some(id));
        for bad in [
            "",
            "server=",
            "server=+123456789abcdef",
            "server=0123456789abcdef0",
            "other=0123456789abcdef",
        ] {
            let fields: Fields = [("cookie", bad)].into_iter().collect();
            assert_eq!(sticky.named(&fields), None, "{bad}");
        }
    }
}
