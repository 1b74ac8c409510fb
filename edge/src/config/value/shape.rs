//! Names of expected types in error messages, each with advice on how to write a value of that
//! type.

/// The name of each type, as it occurs in serde's messages, and the advice on how to write a value
/// of the type.
const SHAPES: [(&str, &str); 38] = [
    (SIZE, SIZE_ADVICE),
    (TIME, TIME_ADVICE),
    (PARALLEL, PARALLEL_ADVICE),
    (AHEAD, AHEAD_ADVICE),
    (PORT, PORT_ADVICE),
    (SWITCH_OR_FOLDER, SWITCH_OR_FOLDER_ADVICE),
    (STATUSES, "write { 200 = \"1h\", 404 = \"1m\" }"),
    (
        TABLE,
        "write { cookies = [\"session*\"], headers = [\"X-Debug\"] }",
    ),
    (
        EDITS,
        "write { set = { NAME = \"value\" }, remove = [\"NAME\"] }",
    ),
    (PAGES, "write { 404 = \"/srv/404.html\" }"),
    (RETRY, "write { tries = 2 }"),
    (TOKENS, "write { file = \"/etc/sluice/admin.token\" }"),
    (STICKY, "write { cookie = \"server\" }"),
    (HEALTH, "write { path = \"/healthz\", interval = \"5s\" }"),
    (STATUS_RANGE, STATUS_RANGE_ADVICE),
    (EJECT, "write { failures = 5, for = \"10s\" }"),
    (RETRY_CAUSE, RETRY_CAUSE_ADVICE),
    (
        BALANCE,
        "write \"round-robin\", \"least-connections\", \"random-two\", \"least-time\" or \"hash\", or a table as in { hash = \"{header:X-User}\" }",
    ),
    (
        PAIRS,
        "write [[\"^/old/(.*)$\", \"/new/$1\"]]: a list of lists of two texts",
    ),
    (
        TLS,
        "write { certificate = \"chain.pem\", key = \"key.pem\" }",
    ),
    (
        ACME,
        "write { email = \"ops@example.com\" }, or leave it out for the defaults",
    ),
    (
        DNS,
        "write { program = \"/usr/local/bin/dns-update\" }, or { server = \"192.0.2.1\", key_name = \"acme\", key = \"/etc/sluice/dns.key\" }",
    ),
    (
        EXTERNAL_ACCOUNT,
        "write { id = \"KEY-ID\", key = \"/etc/sluice/external-account.key\" }",
    ),
    (
        ON_DEMAND,
        "write { allow = [\"*.customers.example.com\"] } or { ask = \"http://127.0.0.1:9000/allowed\" }",
    ),
    (TCP, "write { keepalive = \"60s\", bind = \"10.0.0.7\" }"),
    (
        SERVER_TLS,
        "write { ca = \"ca.pem\", server_name = \"origin.example.com\" }; `https://` in a server's URL turns TLS on",
    ),
    (
        TABLE_OR_FALSE,
        "write a table, as in { NAME = … }, or false",
    ),
    (
        BOOL_OR_TABLE,
        "write true or false without quotes, or a table",
    ),
    ("a map", "write { NAME = \"value\" }, with braces"),
    (
        OR_TABLE,
        "write text in quotes, or one table: { NAME = … }, or a section with one bracket",
    ),
    (
        COMPRESS,
        "write true, false, a list as in [\"br\", \"gzip\"], or a table",
    ),
    (
        FOLLOW,
        "write true, false, a list as in [\"https://bucket.example.com\"], or a table as in { times = 3, to = \"https://bucket.example.com\" }",
    ),
    (LIST, LIST_ADVICE),
    (
        "a whole number",
        "write digits alone, without quotes, as in 8",
    ),
    ("a number", "write a number without quotes, as in 0.05"),
    ("a boolean", "write true or false, without quotes"),
    (
        "a sequence",
        "write a list in brackets, as in [\"a\", \"b\"]",
    ),
    ("a string", "write text in quotes"),
];
pub const SIZE: &str = "a size such as \"64KiB\"";
pub const SIZE_ADVICE: &str = "write a number and a unit, as in \"64KiB\", \"1MiB\" or \"2GB\"";
pub const TIME: &str = "a time such as \"10s\"";
pub const TIME_ADVICE: &str = "write numbers with units, as in \"500ms\", \"10s\" or \"1m30s\"";
pub const PARALLEL: &str = "\"auto\" or a number";
pub const PARALLEL_ADVICE: &str = "write \"auto\", or a whole number without quotes, as in 8";
pub const AHEAD: &str = "false, \"whole\" or a size";
pub const AHEAD_ADVICE: &str = "write false, \"whole\", or a size, as in \"8MiB\"";
pub const PORT: &str = "true, false or a port";
pub const PORT_ADVICE: &str = "write true, false, or a port from 1 to 65535, without quotes";
pub const SWITCH_OR_FOLDER: &str = "true, false or a folder";
pub const SWITCH_OR_FOLDER_ADVICE: &str =
    "write true, false, or the path of a folder, as in \"/var/lib/sluice/history\"";
pub const STATUSES: &str = "times by status";
pub const TABLE: &str = "a table of lists";
pub const EDITS: &str = "a table of edits";
pub const PAGES: &str = "pages by status";
pub const PAIRS: &str = "a list of pairs";
pub const TLS: &str = "a table with a certificate";
pub const ACME: &str = "a table of options of ACME";
pub const DNS: &str = "a table of options of DNS-01";
pub const EXTERNAL_ACCOUNT: &str = "a table with an id and a key";
pub const ON_DEMAND: &str = "a table with names or a URL";
pub const TCP: &str = "a table of options of TCP";
pub const SERVER_TLS: &str = "a table of TLS with servers";
pub const RETRY: &str = "a table of retries";
pub const RETRY_CAUSE: &str = "a cause of retries";
pub const RETRY_CAUSE_ADVICE: &str =
    "write \"connect\", \"tls\", \"reset\", \"timeout\" or a status, as in 503 or \"5xx\"";
pub const BALANCE: &str = "the name of a policy or a table";
pub const TOKENS: &str = "a table with a file of tokens";
pub const STICKY: &str = "a table with a cookie";
pub const HEALTH: &str = "a table of checks";
pub const STATUS_RANGE: &str = "a status or a range of statuses";
pub const STATUS_RANGE_ADVICE: &str =
    "write a status, as in 200, a class, as in \"2xx\", or a range, as in \"200-299\"";
pub const EJECT: &str = "a table of limits";
pub const TABLE_OR_FALSE: &str = "a table or false";
pub const BOOL_OR_TABLE: &str = "true, false or a table";
pub const OR_TABLE: &str = "text in quotes or a table";
pub const COMPRESS: &str = "true, false, a list or a table";
pub const FOLLOW: &str = "true, false, hosts or a table";
pub const LIST: &str = "a list";
pub const LIST_ADVICE: &str =
    "write one value in quotes, or a list in brackets, as in [\"a\", \"b\"]";
/// Beginning of the description of an enumeration, before its words.
pub const WORD: &str = "a name in quotes: ";

/// Returns the message about an empty list or table: a title and its advice, separated by a
/// newline.
pub fn nothing_in(what: &str) -> String {
    format!("an empty {what} has no effect\nleave it out, or write `false` to turn it off")
}

/// Rewrites the title of one of serde's type errors, and returns it with the advice on how to write
/// the value.
pub fn advice(title: &str) -> (String, Option<String>) {
    let title = title
        .replace("expected u64", "expected a whole number")
        .replace("expected f64", "expected a number");
    let Some((before, expected)) = title.split_once(", expected ") else {
        return (title, None);
    };
    if expected.starts_with("struct ") {
        let title = format!("{before}, expected a table");
        return (title, Some("write a table, as in { NAME = … }".to_owned()));
    }
    if let Some(words) = expected.strip_prefix(WORD) {
        let title = format!("{before}, expected a name in quotes");
        return (title, Some(format!("write {words}")));
    }
    let shape = SHAPES.iter().find(|(shape, _)| *shape == expected);
    let how = shape.map(|(_, how)| (*how).to_owned());
    (title, how)
}
