//! Words of nginx, Varnish, HAProxy, Caddy and Traefik that have one meaning in any section.

/// Words, each with advice on what to write in Sluice's configuration.
pub(super) const WORDS: &[(&str, &str)] = &[
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
    ("auth_basic", PASSWORDS),
    (
        "auth_request",
        "this version has no such checks: `allow`, `deny` and `signed_urls` in [[site.route]] limit access",
    ),
    ("auto_https", AUTOMATIC),
    ("autoindex", "Sluice does not list folders"),
    ("automatic_https", AUTOMATIC),
    ("backend", "write [upstream.NAME] with `servers`"),
    ("balancer", "write `balance` in [upstream.NAME]"),
    (
        "ban",
        "nothing is written for it: `sluice purge` removes stored responses",
    ),
    ("basic_auth", PASSWORDS),
    ("basicauth", PASSWORDS),
    (
        "bind",
        "write `listen` at the top of the file, or `address` in [[listener]]",
    ),
    (
        "brotli",
        "write `compress = true` in [[site]] or [[site.route]]",
    ),
    (
        "certificatesResolvers",
        "write `acme` in [tls], and `tls = \"auto\"` in [[site]]",
    ),
    ("check", HEALTH),
    ("client_body_timeout", "write `body_timeout` in [limits]"),
    (
        "client_header_timeout",
        "write `header_timeout` in [limits]",
    ),
    ("client_max_body_size", "write `body` in [limits]"),
    ("curves", "write `groups` in [tls]"),
    (
        "default_backend",
        "write `proxy = \"NAME\"` in a last [[site.route]] without `path`",
    ),
    (
        "default_server",
        "a [[site]] without `hosts` answers for all other hosts",
    ),
    ("default_type", "write `types` in [site.route.files]"),
    ("director", "write `balance` in [upstream.NAME]"),
    ("domain", "write `hosts` in [[site]]"),
    (
        "encode",
        "write `compress = true` in [[site]] or [[site.route]]",
    ),
    ("entryPoints", LISTEN),
    ("entrypoints", LISTEN),
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
        "fail_timeout",
        "write `eject = { for = \"10s\" }` in [upstream.NAME]",
    ),
    ("fastcgi_pass", FASTCGI),
    (
        "file_server",
        "write `files = \"/srv/www\"` in [[site.route]]",
    ),
    (
        "frontend",
        "write `listen` at the top of the file for addresses, and [[site]] with `hosts`",
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
        "gzip_comp_level",
        "write `compress = { gzip_level = 6 }` in [[site]] or [[site.route]]",
    ),
    (
        "gzip_static",
        "write `precompressed = true` in [site.route.files]",
    ),
    ("gzip_types", "write `compress = { types = [\"text/*\"] }`"),
    ("handle", "write [[site.route]] with `path = \"/a/*\"`"),
    ("handle_path", PREFIX),
    ("hash_data", "write `key` in [cache.NAME] or [[site.route]]"),
    ("health_check", HEALTH),
    ("health_uri", HEALTH),
    ("healthcheck", HEALTH),
    ("healthCheck", HEALTH),
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
    ("lb_policy", "write `balance` in [upstream.NAME]"),
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
    ("loadBalancer", "write [upstream.NAME] with `servers`"),
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
    ("maxconn", "write `connections` in [limits]"),
    (
        "metrics",
        "no key turns metrics on: /metrics at `address` of [admin] has them for Prometheus",
    ),
    (
        "middlewares",
        "write the keys of each in [[site.route]], as in `limit`, `allow` or `response_headers`",
    ),
    ("nbthread", "write `workers` in [server]"),
    (
        "pass",
        "write `proxy = \"http://127.0.0.1:9000\"` in [[site.route]]",
    ),
    ("php_fastcgi", FASTCGI),
    (
        "port",
        "write the port in the address, as in `listen = \":8080\"` at the top of the file",
    ),
    ("probe", HEALTH),
    (
        "providers",
        "leave it out: Sluice reads one file, and `sluice reload` reads it again",
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
        "leave it out, or write `http` in [upstream.NAME    ]; servers with TLS choose between HTTP/2 and HTTP/1.1",
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
    ("redir", "write `redirect = \"ADDRESS\"` in [[site.route]]"),
    (
        "redirectScheme",
        "leave it out: a site with `tls` redirects http to https",
    ),
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
        "write `rewrite = [[\"^/old/(.*)$\", \"/new/$1\"]]` in [[site.route]    ]; `strip_prefix` in [site.route.files] removes the beginning of a file's path",
    ),
    ("root", "write `files = \"/srv/www\"` in [[site.route]]"),
    ("routers", "write [[site.route]] with `path`"),
    (
        "rule",
        "write `hosts` in [[site]] and `path` in [[site.route]]",
    ),
    ("scgi_pass", FASTCGI),
    (
        "secure_link",
        "write `signed_urls` in [[site]] or [[site.route]]",
    ),
    ("sendfile", KERNEL),
    ("server_name", "write `hosts` in [[site]]"),
    ("services", "write [upstream.NAME] with `servers`"),
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
        "write `tls = { client_ca = \"…\" }` in [[site]    ]; for `optional`, add `client_certificate = \"request\"` there, and \
         `client_certificate = true` to each [[site.route]] that needs one",
    ),
    (
        "ssl_verify_depth",
        "leave it out: the chain of a client's certificate may have several intermediate ones",
    ),
    (
        "stick",
        "write `sticky = { cookie = \"NAME\" }` in [upstream.NAME]",
    ),
    (
        "storage",
        "write `memory` in [cache.NAME], and for disks [volume.NAME]",
    ),
    ("stripPrefix", PREFIX),
    ("sub_filter", "Sluice does not change bodies"),
    ("tcp_nodelay", KERNEL),
    ("tcp_nopush", KERNEL),
    ("templates", "Sluice does not change bodies"),
    (
        "timeout",
        "write `header_timeout`, `body_timeout` and `keepalive_timeout` in [limits], or `read_timeout` in [upstream.NAME]",
    ),
    (
        "ttl",
        "write `valid = { 200 = \"10m\" }` in [cache.NAME] or [[site.route]]",
    ),
    (
        "use_backend",
        "write [[site.route]] with `path` and `proxy = \"NAME\"`",
    ),
    ("uwsgi_pass", FASTCGI),
    ("worker_connections", "write `connections` in [limits]"),
    ("worker_processes", "write `workers` in [server]"),
];

/// Advice on HTTP/3.
pub(super) const NO_HTTP3: &str = "leave it out: this version has no HTTP/3";

/// Advice on headers of origins that name the origin.
const WRITTEN_BACK: &str = "leave it out: paths and hosts of the origin are replaced by the client's; `write_back = false` in [[site.route]] prevents it";
/// Advice on the session cache of TLS.
const NO_SESSION_CACHE: &str =
    "leave it out: Sluice stores no sessions, since clients keep them in tickets";

/// Advice on passwords.
const PASSWORDS: &str = "this version has no passwords: `allow`, `deny` and `signed_urls` in [[site.route]] limit access";

/// Advice on checks of servers.
const HEALTH: &str = "write `health = { path = \"/healthz\" }` in [upstream.NAME]";

/// Advice on addresses of listeners.
const LISTEN: &str =
    "write `listen = \":80\"` at the top of the file, or [[listener]] with `address`";

/// Advice on programs that don't speak HTTP.
const FASTCGI: &str = "Sluice speaks HTTP to servers: let a web server run the program, and write its address in `proxy`";

/// Advice on the removal of a path's beginning.
const PREFIX: &str = "write a path after the server, as in `proxy = \"http://127.0.0.1:9000/\"`: that replaces `path` of the [[site.route]]";

/// Advice on certificates that are obtained without further settings.
const AUTOMATIC: &str = "write `tls = \"auto\"` in [[site]]";

/// Advice on settings of sockets.
const KERNEL: &str = "leave it out: Sluice chooses how bytes are sent";
