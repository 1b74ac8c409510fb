//! Words of nginx, Varnish and Caddy, and the keys that Sluice has in their place.

/// Words of other programs' configurations, each with advice on what to write in Sluice's.
const WORDS: &[(&str, &str)] = &[
    ("access_log", "write `access` in [log]"),
    (
        "acl",
        "write `allow` and `deny` in [[site]] or [[site.route]]",
    ),
    (
        "add_header",
        "write `response_headers = { set = { NAME = \"value\" } }`",
    ),
    (
        "alias",
        "write `files = { root = \"/srv/www\", strip_prefix = \"/images\" }` in [[site.route]]",
    ),
    (
        "auth_basic",
        "this version has no passwords: `allow`, `deny` and `signed_urls` in [[site.route]] limit access",
    ),
    ("autoindex", "Sluice does not list folders"),
    ("backend", "write [upstream.NAME] with `servers`"),
    (
        "bind",
        "write `listen` at the top of the file, or `address` in [[listener]]",
    ),
    (
        "brotli",
        "write `compress = true` in [[site]] or [[site.route]]",
    ),
    ("client_max_body_size", "write `body` in [limits]"),
    ("client_body_timeout", "write `body_timeout` in [limits]"),
    (
        "client_header_timeout",
        "write `header_timeout` in [limits]",
    ),
    (
        "default_server",
        "a [[site]] without `hosts` answers for all other hosts",
    ),
    ("curves", "write `groups` in [tls]"),
    ("default_type", "write `types` in [site.route.files]"),
    ("domain", "write `hosts` in [[site]]"),
    (
        "encode",
        "write `compress = true` in [[site]] or [[site.route]]",
    ),
    ("error_log", "write `error` and `level` in [log]"),
    (
        "error_page",
        "write `error_pages = { 404 = \"/srv/404.html\" }`",
    ),
    ("esi", "Sluice does not change bodies"),
    (
        "events",
        "Sluice needs no such section: `connections` is in [limits]",
    ),
    (
        "metrics",
        "no key turns metrics on: /metrics at `address` of [admin] has them for Prometheus",
    ),
    (
        "file_server",
        "write `files = \"/srv/www\"` in [[site.route]]",
    ),
    (
        "fail_timeout",
        "write `eject = { for = \"10s\" }` in [upstream.NAME]",
    ),
    (
        "grace",
        "write `stale_while_revalidate` and `stale_if_error` in [cache.NAME] or [[site.route]]",
    ),
    (
        "grpc_pass",
        "write `proxy = \"h2c://127.0.0.1:9000\"` in [[site.route]], or `https://` with TLS",
    ),
    (
        "gzip",
        "write `compress = true` in [[site]] or [[site.route]]",
    ),
    (
        "gzip_static",
        "write `precompressed = true` in [site.route.files]",
    ),
    ("gzip_types", "write `compress = { types = [\"text/*\"] }`"),
    ("handle", "write [[site.route]] with `path = \"/a/*\"`"),
    (
        "hsts",
        "write `security_headers = true`, or for another value `response_headers = { set = { Strict-Transport-Security = \"max-age=63072000\" } }`",
    ),
    (
        "http",
        "Sluice needs no such section: write [[site]] or [[route]] at the top level",
    ),
    (
        "http2",
        "leave it out: listeners with TLS speak HTTP/2 and HTTP/1.1; `protocols` in [[listener]] changes that, as in [\"http/1.1\"]",
    ),
    (
        "http2_max_concurrent_streams",
        "write `max_streams` in [limits]",
    ),
    ("http3", NO_HTTP3),
    (
        "ip_hash",
        "write `balance = { hash = \"{client}\" }` in [upstream.NAME]",
    ),
    (
        "least_conn",
        "write `balance = \"least-connections\"` in [upstream.NAME]",
    ),
    ("limit_conn", "write `connections_per_ip` in [limits]"),
    (
        "limit_except",
        "write `allow_methods = [\"GET\", \"POST\"]` in [[site]] or [[site.route]]",
    ),
    (
        "limit_rate",
        "write `limit = { bandwidth = \"1MiB\" }` in [[site]] or [[site.route]]",
    ),
    (
        "limit_req",
        "write `limit = { requests = \"10/s\" }` in [[site]] or [[site.route]]",
    ),
    (
        "location",
        "write [[site.route]] with `path = \"/a/*\"` or `path_regex`",
    ),
    ("log_format", "write `format` in [log]"),
    ("max_concurrent_streams", "write `max_streams` in [limits]"),
    (
        "max_fails",
        "write `eject = { failures = 5 }` in [upstream.NAME]",
    ),
    (
        "pass",
        "write `proxy = \"http://127.0.0.1:9000\"` in [[site.route]]",
    ),
    (
        "port",
        "write the port in the address, as in `listen = \":8080\"` at the top of the file",
    ),
    (
        "proxy_buffering",
        "leave it out: Sluice streams each response; `client_budget` in [cache.NAME] limits the bytes fetched ahead of a client",
    ),
    (
        "proxy_cache",
        "write `cache = \"NAME\"` in [[site.route]], and a section [cache.NAME]",
    ),
    (
        "proxy_cache_bypass",
        "write `bypass` in [cache.NAME] or [[site.route]]",
    ),
    (
        "proxy_cache_key",
        "write `key` in [cache.NAME] or [[site.route]]",
    ),
    (
        "proxy_cache_lock",
        "requests for the same bytes share one fetch; `fill = \"lock\"` in [cache.NAME] fetches as nginx does",
    ),
    ("proxy_cache_min_uses", "write `min_uses` in [cache.NAME]"),
    (
        "proxy_cache_path",
        "write [volume.NAME] with `path` and `size`, and its name in `volumes` of [cache.NAME]",
    ),
    (
        "proxy_cache_use_stale",
        "write `stale_if_error` and `stale_while_updating` in [cache.NAME] or [[site.route]]",
    ),
    (
        "proxy_cache_valid",
        "write `valid = { 200 = \"10m\" }` in [cache.NAME] or [[site.route]]",
    ),
    (
        "proxy_connect_timeout",
        "write `connect_timeout` in [upstream.NAME]",
    ),
    ("proxy_cookie_domain", WRITTEN_BACK),
    ("proxy_cookie_path", WRITTEN_BACK),
    (
        "proxy_hide_header",
        "write `response_headers = { remove = [\"NAME\"] }`",
    ),
    (
        "proxy_http_version",
        "leave it out, or write `http` in [upstream.NAME]; servers with TLS choose between HTTP/2 and HTTP/1.1",
    ),
    (
        "proxy_ignore_headers",
        "write `ignore_headers` in [cache.NAME] or [[site.route]]",
    ),
    (
        "proxy_intercept_errors",
        "write `intercept_errors` in [[site]] or [[site.route]]",
    ),
    ("proxy_next_upstream", "write `retry` in [upstream.NAME]"),
    (
        "proxy_no_cache",
        "write `bypass` in [cache.NAME] or [[site.route]]",
    ),
    (
        "proxy_pass",
        "write `proxy = \"http://127.0.0.1:9000\"` in [[site.route]]",
    ),
    (
        "proxy_read_timeout",
        "write `read_timeout` in [upstream.NAME]",
    ),
    ("proxy_redirect", WRITTEN_BACK),
    (
        "proxy_send_timeout",
        "write `send_timeout` in [upstream.NAME]",
    ),
    (
        "proxy_set_header",
        "write `request_headers = { set = { NAME = \"value\" } }`; for Host, `host` in [upstream.NAME]",
    ),
    ("real_ip_header", "write `client_ip_header` in [server]"),
    (
        "return",
        "write `respond = \"TEXT\"` or `redirect = \"ADDRESS\"` in [[site.route]]",
    ),
    (
        "reverse_proxy",
        "write `proxy = \"http://127.0.0.1:9000\"` in [[site.route]]",
    ),
    (
        "rewrite",
        "write `rewrite = [[\"^/old/(.*)$\", \"/new/$1\"]]` in [[site.route]]; `strip_prefix` in [site.route.files] removes the beginning of a file's path",
    ),
    ("root", "write `files = \"/srv/www\"` in [[site.route]]"),
    (
        "secure_link",
        "write `signed_urls` in [[site]] or [[site.route]]",
    ),
    ("server_name", "write `hosts` in [[site]]"),
    ("set_real_ip_from", "write `trusted_proxies` in [server]"),
    ("ssl", "write `tls = true` in [[listener]]"),
    (
        "ssl_certificate",
        "write `tls = { certificate = \"…\", key = \"…\" }` in [[site]] or [[listener]]",
    ),
    (
        "ssl_certificate_key",
        "write `tls = { certificate = \"…\", key = \"…\" }` in [[site]] or [[listener]]",
    ),
    (
        "ssl_ciphers",
        "leave it out, or write `ciphers` in [tls]: one list for TLS 1.2 and 1.3, as in [\"TLS_AES_128_GCM_SHA256\", \"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256\"]",
    ),
    (
        "ssl_client_certificate",
        "write `tls = { client_ca = \"…\" }` in [[site]] or [[listener]]",
    ),
    (
        "ssl_conf_command",
        "write `min_version`, `ciphers` or `groups` in [tls]",
    ),
    (
        "ssl_crl",
        "this version does not check whether certificates of clients were revoked",
    ),
    (
        "ssl_dhparam",
        "leave it out: key exchanges use elliptic curves or ML-KEM, which `groups` in [tls] names",
    ),
    (
        "ssl_early_data",
        "leave it out: early data (0-RTT) can be replayed, and is never accepted",
    ),
    (
        "ssl_ecdh_curve",
        "write `groups` in [tls], as in [\"X25519\", \"P-256\"]",
    ),
    (
        "ssl_ocsp",
        "this version does not check whether certificates of clients were revoked",
    ),
    (
        "ssl_password_file",
        "store the key without a password: `openssl pkey -in KEY -out FILE`",
    ),
    (
        "ssl_prefer_server_ciphers",
        "leave it out: the order of `ciphers` in [tls] decides",
    ),
    (
        "ssl_protocols",
        "write `min_version = \"1.2\"` or \"1.3\" in [tls]",
    ),
    (
        "ssl_reject_handshake",
        "write `unknown_name = \"refuse\"` in [tls]",
    ),
    ("ssl_session_cache", NO_SESSION_CACHE),
    ("ssl_session_ticket_key", "write `tickets` in [tls]"),
    ("ssl_session_tickets", "write `tickets` in [tls]"),
    ("ssl_session_timeout", NO_SESSION_CACHE),
    ("ssl_stapling", "this version has no OCSP stapling"),
    ("ssl_stapling_verify", "this version has no OCSP stapling"),
    (
        "ssl_trusted_certificate",
        "write `tls = { client_ca = \"…\" }` in [[site]] or [[listener]]",
    ),
    (
        "ssl_verify_client",
        "write `tls = { client_ca = \"…\" }` in [[site]]; for `optional`, add `client_certificate = \"request\"` there, and \
         `client_certificate = true` to each [[site.route]] that needs one",
    ),
    (
        "ssl_verify_depth",
        "leave it out: the chain of a client's certificate may have several intermediate ones",
    ),
    ("sub_filter", "Sluice does not change bodies"),
    (
        "ttl",
        "write `valid = { 200 = \"10m\" }` in [cache.NAME] or [[site.route]]",
    ),
    ("worker_connections", "write `connections` in [limits]"),
    ("worker_processes", "write `workers` in [server]"),
];

/// Words whose meaning depends on the section: a key that only this section has, the word, and the
/// advice.
const OF_SECTION: &[(&str, &str, &str)] = &[
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

/// Advice on HTTP/3.
const NO_HTTP3: &str = "leave it out: this version has no HTTP/3";

const WRITTEN_BACK: &str = "leave it out: paths and hosts of the origin are replaced by the client's; `write_back = false` in [[site.route]] prevents it";
/// Advice on the session cache of TLS.
const NO_SESSION_CACHE: &str =
    "leave it out: Sluice stores no sessions, since clients keep them in tickets";

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
