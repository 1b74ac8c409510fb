//! Words of other programs' configurations, and the keys that Sluice has in their place.

mod words;

use words::{NO_HTTP3, WORDS};

/// Words whose meaning depends on the section: a key that only this section has, the word, and the
/// advice.
const OF_SECTION: &[(&str, &str, &str)] = &[
    // `[[site]]` and `[[site.route]]`
    (
        "response_headers",
        "header",
        "write `response_headers = { set = { NAME = \"value\" } }`",
    ),
    // `[upstream.NAME]` and its servers
    ("max_connections", "max_conns", "write `max_connections`"),
    ("max_connections", "maxconn", "write `max_connections`"),
    ("weight", "address", SERVER_URL),
    ("weight", "host", SERVER_URL),
    ("weight", "port", SERVER_URL),
    ("weight", "disabled", "write `down = true`"),
    (
        "max_connections",
        "protocols",
        "write `http = \"2\"` or \"1.1\", or `h2c://` in the server's URL",
    ),
    // `health`
    ("jitter", "uri", "write `path`"),
    ("jitter", "rise", "write `up`"),
    ("jitter", "passes", "write `up`"),
    ("jitter", "fall", "write `down`"),
    ("jitter", "fails", "write `down`"),
    // `tls` of `[upstream.NAME]`
    ("server_name", "sni", "write `server_name`"),
    // `retry`
    (
        "tries",
        "attempts",
        "write `tries`: the first try is counted too",
    ),
    // `[admin]`
    ("purge_from", "listen", "write `address`"),
    ("purge_from", "allow", ADMIN_CLIENTS),
    ("purge_from", "deny", ADMIN_CLIENTS),
    // `[tls]`, and `tls` of listeners and sites
    ("min_version", "protocols", ONE_VERSION),
    ("client_ca", "protocols", ONE_VERSION),
    // `[volume.NAME]`
    ("segment", "max_size", "write `size`"),
    // `[cache.NAME]`
    (
        "lock_age",
        "max_size",
        "write `memory` for the size in memory, and `size` in [volume.NAME] for the size on a disk",
    ),
];

/// Advice on the parts of a server's address.
const SERVER_URL: &str = "write `url = \"http://127.0.0.1:9000\"`";

/// Advice on versions of TLS in a list.
const ONE_VERSION: &str =
    "write `min_version = \"1.2\"` or \"1.3\" in [tls]: all newer versions are permitted, too";

/// Values of other programs: a value that the key has in Sluice, the value, and the advice.
const VALUES: &[(&str, &str, &str)] = &[
    // `balance`
    ("least-connections", "least_conn", LEAST_CONNECTIONS),
    ("least-connections", "leastconn", LEAST_CONNECTIONS),
    ("hash", "ip_hash", HASH_OF_CLIENT),
    ("hash", "source", HASH_OF_CLIENT),
    ("hash", "uri", "write \"hash\", which is that of the URL"),
    ("random-two", "random", "write \"random-two\""),
    ("round-robin", "roundrobin", "write \"round-robin\""),
    // `min_version`
    ("1.2", "1.0", OLD_VERSION),
    ("1.2", "1.1", OLD_VERSION),
    ("1.2", "TLSv1", OLD_VERSION),
    ("1.2", "TLSv1.1", OLD_VERSION),
    ("1.2", "TLSv1.2", "write \"1.2\""),
    ("1.2", "TLSv1.3", "write \"1.3\""),
    // `protocols`
    (
        "h2",
        "h2c",
        "write \"h2\": without `tls`, that is HTTP/2 in clear text",
    ),
    ("h2", "http2", "write \"h2\""),
    ("h2", "http/2", "write \"h2\""),
    ("h2", "HTTP/2", "write \"h2\""),
    ("h2", "h1", "write \"http/1.1\""),
    ("h2", "http1", "write \"http/1.1\""),
    (
        "h2",
        "http/1.0",
        "write \"http/1.1\", which includes HTTP/1.0",
    ),
    ("h2", "HTTP/1.1", "write \"http/1.1\""),
    ("h2", "h3", NO_HTTP3),
    // `client_certificate` in `tls`
    (
        "require",
        "optional",
        "write \"request\": clients may send no certificate, and one that is not valid ends the handshake",
    ),
    ("require", "on", "write \"require\""),
    (
        "require",
        "off",
        "leave out `client_ca` and `client_certificate`",
    ),
];

const LEAST_CONNECTIONS: &str = "write \"least-connections\"";
const HASH_OF_CLIENT: &str = "write { hash = \"{client}\" }";

/// Advice on versions of TLS that are not safe.
const OLD_VERSION: &str =
    "TLS 1.0 and 1.1 are not supported, since they are not safe (RFC 8996): write \"1.2\"";

const ADMIN_CLIENTS: &str = "the admin API has no list of permitted clients: keep `address` on 127.0.0.1, or let a firewall guard it";

/// Returns advice for a word that another program uses for something that Sluice has, too. `known`
/// are the keys of the section where the word was written.
pub fn advice(word: &str, known: &[&str]) -> Option<&'static str> {
    let mut here = OF_SECTION.iter();
    let here = here.find(|(key, theirs, _)| *theirs == word && known.contains(key));
    let anywhere = || WORDS.iter().find(|(theirs, _)| *theirs == word);
    here.map(|(_, _, advice)| *advice)
        .or_else(|| anywhere().map(|(_, advice)| *advice))
}

/// Returns advice for a value that another program has in place of one of the values `known`.
pub fn value_advice(word: &str, known: &[&str]) -> Option<&'static str> {
    let mut values = VALUES.iter();
    let found = values.find(|(ours, theirs, _)| *theirs == word && known.contains(ours));
    found.map(|(_, _, advice)| *advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_listed_once_in_alphabetical_order() {
        let words: Vec<String> = WORDS.iter().map(|(word, _)| word.to_lowercase()).collect();
        assert!(words.is_sorted(), "{words:?}");
        for (at, (word, advice)) in WORDS.iter().enumerate() {
            let again = WORDS[at + 1..].iter().any(|(other, _)| other == word);
            assert!(!again && !advice.is_empty(), "{word}");
        }
    }
}
