//! The ways in which operators name a server, and the error if there is none of that name.

use std::collections::HashSet;

/// Whether an operator means the server with this address, which is one of the addresses of the
/// configured server `name` or `name` itself. Servers are named by address, by name, by the host of
/// either for all ports, or by a URL as in the configuration.
pub fn is_named(given: &str, address: &str, name: &str) -> bool {
    let given = given.strip_suffix('/').unwrap_or(given);
    let (scheme, rest) = given.split_once("://").unwrap_or(("", given));
    let port = match scheme {
        "" | "srv+http" | "srv+https" | "srv+h2c" => None,
        "http" | "h2c" => Some("80"),
        "https" => Some("443"),
        _ => return false,
    };
    [address, name].into_iter().any(|known| {
        let is_host = split(known).is_some_and(|(host, own)| {
            host.eq_ignore_ascii_case(rest) && port.is_none_or(|port| port == own)
        });
        known.eq_ignore_ascii_case(rest) || is_host
    })
}

/// Returns the text of the error that there is no upstream or server (`kind`) of the name that was `given`, only those
/// of the names in `known`, which may be repeated.
pub fn unknown<'a>(kind: &str, given: &str, known: impl Iterator<Item = &'a str>) -> String {
    let mut seen = HashSet::new();
    let known: Vec<&str> = known.filter(|name| seen.insert(*name)).collect();
    match &known[..] {
        [] => format!("there is no {kind} {given:?}, nor any other"),
        known => format!("there is no {kind} {given:?}, only: {}", known.join(", ")),
    }
}

/// Splits host and port. An IPv6 address has brackets.
fn split(address: &str) -> Option<(&str, &str)> {
    let (host, port) = address.rsplit_once(':')?;
    let is_port = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    is_port.then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_address_name_host_and_url() {
        let named = |given| is_named(given, "10.0.0.1:8080", "app.test:8080");
        for given in [
            "10.0.0.1:8080",
            "app.test:8080",
            "App.Test:8080",
            "app.test",
            "10.0.0.1",
            "http://app.test:8080",
            "http://app.test:8080/",
            "https://10.0.0.1:8080",
        ] {
            assert!(named(given), "{given}");
        }
        for given in [
            "",
            "8080",
            "app",
            "app.test:80",
            "http://app.test",
            "ftp://app.test:8080",
        ] {
            assert!(!named(given), "{given}");
        }
        assert!(is_named("http://app.test", "app.test:80", "app.test:80"));
        assert!(is_named("https://[::1]", "[::1]:443", "[::1]:443"));
        let service = "_http._tcp.test";
        assert!(is_named(
            "srv+http://_http._tcp.test",
            "10.0.0.1:80",
            service
        ));
        let unix = "unix:/run/app.sock";
        assert!(is_named(unix, unix, unix) && !is_named("unix", unix, unix));
    }

    #[test]
    fn unknown_names_are_answered_with_each_known_one() {
        let text = |known: &[&'static str]| unknown("server", "c", known.iter().copied());
        assert_eq!(text(&[]), "there is no server \"c\", nor any other");
        let known = ["a", "b", "a"];
        assert_eq!(text(&known), "there is no server \"c\", only: a, b");
    }
}
