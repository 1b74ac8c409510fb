//! The architecture rules. Each rule turns the facts about all files and the import table into
//! findings, one line each.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{Facts, Named};

/// Maximum number of lines of a file. Longer files need an entry in the list of exceptions.
pub const FILE_LINES_MAX: usize = 500;
pub const FUNCTION_LINES_MAX: usize = 70;

/// One source file of a package.
pub struct Source {
    /// The file's path from the root of the workspace, such as `edge/src/cache/serve.rs`.
    pub file: String,
    /// The file's module from the root of the crate, such as `["cache", "serve"]`.
    pub module: Vec<String>,
    pub facts: Facts,
}

impl Source {
    /// Returns the part of the import table to which this file belongs; `None` for `lib.rs`, which
    /// only declares modules.
    fn part(&self) -> Option<&str> {
        self.module.first().map(String::as_str)
    }
}

/// The import table: for each part, the parts that it may import. `None` means all parts.
pub type Table = BTreeMap<String, Option<BTreeSet<String>>>;

/// Parses the rows below the heading `| part | may import |` in the document.
pub fn read_table(markdown: &str) -> Result<Table, String> {
    let heading = |line: &&str| line.replace(' ', "").starts_with("|part|mayimport|");
    let mut lines = markdown.lines().skip_while(|line| !heading(line));
    if lines.next().is_none() {
        return Err("ARCHITECTURE.md: no table headed `| part | may import |`".into());
    }
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        match (cells.next(), cells.next()) {
            (Some(part), Some("everything")) => Ok((part.to_owned(), None)),
            (Some(part), Some(may)) => {
                let may = may.split_whitespace().map(str::to_owned).collect();
                Ok((part.to_owned(), Some(may)))
            }
            _ => Err(format!("ARCHITECTURE.md: not a row of two cells: {row}")),
        }
    })
    .collect()
}

/// Returns findings about imports between parts that the table does not permit, and about parts
/// that exist only in the table or only as folders.
pub fn imports(sources: &[Source], table: &Table) -> Vec<String> {
    let mut findings = Vec::new();
    let parts: BTreeSet<&str> = sources.iter().filter_map(Source::part).collect();
    for part in &parts {
        if !table.contains_key(*part) {
            findings.push(format!(
                "ARCHITECTURE.md: `{part}` has no row in the import table: add one"
            ));
        }
    }
    for (part, may) in table {
        let named = may.iter().flatten().chain([part]);
        for missing in named.filter(|name| !parts.contains(name.as_str())) {
            findings.push(format!(
                "ARCHITECTURE.md: the row of `{part}` names `{missing}`, which does not exist: take it out"
            ));
        }
    }
    for source in sources {
        let Some(Some(may)) = source.part().and_then(|part| table.get(part)) else {
            continue;
        };
        let part = source.part().unwrap_or_default();
        for Named { line, path } in &source.facts.paths {
            let [root, other, ..] = path.as_slice() else {
                continue;
            };
            if root == "crate" && other != part && !may.contains(other) {
                findings.push(format!(
                    "{}:{line}: `{part}` may not import `{other}` ({}): move the code, pass the value in, \
                     or change the table in ARCHITECTURE.md and say why in docs/decisions",
                    source.file,
                    path.join("::"),
                ));
            }
        }
    }
    findings
}

/// Names of HTTP/1 in the form that `squeezed` gives them.
const OF_HTTP1: [&str; 7] = [
    "http1",
    "outbox",
    "chunk",
    "framing",
    "keepalive",
    "contentlength",
    "transferencoding",
];

/// Returns findings about names of HTTP/1 in the files of `downstream/exchange`, which serves all
/// protocols: in code, comments and texts. Each file is given by its name and text.
pub fn exchange(files: &[(String, String)]) -> Vec<String> {
    let mut findings = Vec::new();
    for (file, text) in files {
        for (number, line) in text.lines().enumerate() {
            let squeezed = squeezed(line);
            let mut words = line.split(|c: char| !c.is_ascii_alphabetic());
            let name = OF_HTTP1.into_iter().find(|name| squeezed.contains(name));
            let wire = words.find(|word| word.eq_ignore_ascii_case("wire"));
            if let Some(name) = name.or(wire) {
                findings.push(format!(
                    "{file}:{}: the exchange serves every protocol, so it may not name `{name}` of HTTP/1",
                    number + 1
                ));
            }
        }
    }
    findings
}

/// Returns a line in lower case, without the characters that separate the parts of a name.
fn squeezed(line: &str) -> String {
    let kept = line.chars().filter(|c| !['-', '_', '/'].contains(c));
    kept.map(|c| c.to_ascii_lowercase()).collect()
}

/// Returns findings about names of `http1` in the files of `upstream` that serve all protocols: all
/// except `connection.rs`, which selects the protocol, and `http1` itself.
pub fn protocols(sources: &[Source]) -> Vec<String> {
    let serves_all = |source: &&Source| match source.module.as_slice() {
        [upstream, file, ..] => {
            upstream == "upstream" && !["connection", "http1"].contains(&file.as_str())
        }
        _ => false,
    };
    let mut findings = Vec::new();
    for source in sources.iter().filter(serves_all) {
        for Named { line, path } in &source.facts.paths {
            if path.iter().any(|segment| segment == "http1") {
                findings.push(format!(
                    "{}:{line}: this file may not name `{}`: it serves every protocol",
                    source.file,
                    path.join("::"),
                ));
            }
        }
    }
    findings
}

/// Paths that only some modules may name, for example paths of libraries for I/O.
struct Reserved {
    what: &'static str,
    /// Absolute paths; each also covers all paths below it. A path that begins with `…::` covers
    /// the paths that end with the rest of it.
    paths: &'static [&'static str],
    /// Prefixes of paths that every module may name, although an entry of `paths` covers them.
    but: &'static [&'static str],
    /// Whether this module may name `paths`.
    allowed: fn(&[String]) -> bool,
    instead: &'static str,
}

const RESERVED: &[Reserved] = &[
    Reserved {
        what: "I/O and async are absent from the pure parts",
        paths: &[
            "tokio",
            "hyper",
            "hyper_util",
            "axum",
            "socket2",
            "rustix",
            "mio",
            "libc",
            "std::io",
            "std::fs",
            "std::net",
            "std::os",
            "std::env",
            "std::thread",
            "std::process",
        ],
        // Addresses are plain values, and `write!` needs `Write` even to fill a `Vec`.
        but: &[
            "std::io::Write",
            "std::net::IpAddr",
            "std::net::Ipv4Addr",
            "std::net::Ipv6Addr",
            "std::net::SocketAddr",
        ],
        allowed: |module| !is_pure(module),
        instead: "pass the value in, and do the I/O in the part that calls",
    },
    Reserved {
        what: "HTTP and TLS libraries are named only in downstream, upstream, admin, tls and acme",
        paths: &[
            "hyper",
            "hyper_util",
            "http",
            "http_body",
            "http_body_util",
            "httparse",
            "httpdate",
            "h2",
            "axum",
            "tower",
            "rustls",
            "tokio_rustls",
            "aws_lc_rs",
            "x509_parser",
        ],
        but: &[],
        allowed: |module| in_parts(module, &["downstream", "upstream", "admin", "tls", "acme"]),
        instead: "use the types of `crate::http` and `crate::handler`",
    },
    Reserved {
        what: "the DNS library is named only in resolve and acme/dns",
        paths: &["hickory_resolver", "hickory_proto"],
        but: &[],
        allowed: |module| {
            in_parts(module, &["resolve"])
                || matches!(module, [acme, dns, ..] if acme == "acme" && dns == "dns")
        },
        instead: "use what `crate::resolve` offers",
    },
    Reserved {
        what: "the clock is read only through sys",
        paths: &["…::Instant::now", "…::SystemTime::now", "rustix::time"],
        but: &[],
        allowed: |module| in_parts(module, &["sys"]),
        instead: "take a `sys::Clock`",
    },
    Reserved {
        what: "the file system is used only through sys",
        paths: &[
            "std::fs",
            "tokio::fs",
            "rustix::fs",
            "…::File::open",
            "…::File::create",
            "…::OpenOptions::new",
        ],
        but: &[],
        allowed: |module| in_parts(module, &["sys"]),
        instead: "use what `sys` offers, or add it there",
    },
    Reserved {
        what: "a served folder is never written",
        paths: &[
            "…::OFlags::WRONLY",
            "…::OFlags::RDWR",
            "…::OFlags::CREATE",
            "…::OFlags::TRUNC",
            "…::OFlags::APPEND",
            "…::OFlags::TMPFILE",
            "…::OpenOptions",
            "…::File::create",
            "…::open_append",
            "…::make_if_missing",
            "…::from_bits_retain",
            "…::from_bits",
            "rustix::fs::unlink",
            "rustix::fs::unlinkat",
            "rustix::fs::mkdir",
            "rustix::fs::mkdirat",
            "rustix::fs::rename",
            "rustix::fs::renameat",
            "rustix::fs::linkat",
            "rustix::fs::symlinkat",
            "rustix::fs::ftruncate",
            "rustix::fs::fallocate",
            "rustix::fs::fchmod",
            "rustix::fs::fchown",
            "rustix::fs::futimens",
            "rustix::io::write",
            "rustix::io::pwrite",
            "rustix::io::writev",
            "std::fs::write",
            "std::fs::rename",
            "std::fs::remove_file",
            "libc::open",
            "libc::openat",
        ],
        but: &[],
        allowed: |module| !serves_files(module),
        instead: "open what is served for reading alone",
    },
];

/// Whether a module belongs to the code that opens and serves static files.
fn serves_files(module: &[String]) -> bool {
    in_parts(module, &["files"])
        || matches!(module, [sys, root, ..] if sys == "sys" && root == "root")
}

fn in_parts(module: &[String], parts: &[&str]) -> bool {
    module
        .first()
        .is_some_and(|part| parts.contains(&part.as_str()))
}

/// Whether a module belongs to a part without I/O, whose tests need no sockets, and which receives
/// the current time as an argument.
fn is_pure(module: &[String]) -> bool {
    in_parts(
        module,
        &["ranges", "http", "http2", "fill", "evict", "balance"],
    ) || matches!(module, [cache, decide, ..] if cache == "cache" && decide.starts_with("decide"))
}

fn matches_path(pattern: &str, path: &[String]) -> bool {
    let (pattern, anywhere) = match pattern.strip_prefix("…::") {
        Some(last) => (last, true),
        None => (pattern, false),
    };
    let pattern: Vec<&str> = pattern.split("::").collect();
    if anywhere {
        path.windows(pattern.len()).any(|part| part == pattern)
    } else {
        path.len() >= pattern.len() && path[..pattern.len()] == pattern[..]
    }
}

/// Returns findings about libraries, the clock and the file system, named by modules that may not
/// name them.
pub fn reserved(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources {
        for rule in RESERVED
            .iter()
            .filter(|rule| !(rule.allowed)(&source.module))
        {
            for named in source
                .facts
                .paths
                .iter()
                .filter(|named| breaks(rule, source, &named.path))
            {
                findings.push(format!(
                    "{}:{}: {} (`{}`): {}",
                    source.file,
                    named.line,
                    rule.what,
                    named.path.join("::"),
                    rule.instead
                ));
            }
        }
    }
    findings
}

fn breaks(rule: &Reserved, source: &Source, path: &[String]) -> bool {
    // `httpdate` only converts dates. Telemetry may not import `http`, so it uses `httpdate` to
    // write dates into the log.
    let date = path[0] == "httpdate" && in_parts(&source.module, &["http", "telemetry"]);
    let any = |patterns: &[&str]| patterns.iter().any(|pattern| matches_path(pattern, path));
    any(rule.paths) && !any(rule.but) && !date
}

/// Returns findings about files without a `//!` line, skipped tests and unfinished code.
pub fn tidiness(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for Source { file, facts, .. } in sources {
        if !facts.introduced {
            findings.push(format!(
                "{file}:1: begin with a `//!` line that says what lives here"
            ));
        }
        for line in &facts.ignored {
            findings.push(format!(
                "{file}:{line}: `#[ignore]`: a test runs or it goes"
            ));
        }
        for line in &facts.unfinished {
            findings.push(format!(
                "{file}:{line}: unfinished: write it or take it out"
            ));
        }
    }
    findings
}

/// Returns findings about files and functions that are too long and not in the list of exceptions.
///
/// The list has entries `file` or `file function` with the present length. Entries whose length is
/// out of date are findings, too, so that the list only becomes shorter.
pub fn lengths(sources: &[Source], exceptions: &[(&str, usize)]) -> Vec<String> {
    let mut too_long = BTreeMap::new();
    for Source { file, facts, .. } in sources {
        if facts.lines > FILE_LINES_MAX {
            too_long.insert(file.clone(), (1, facts.lines));
        }
        for function in facts
            .functions
            .iter()
            .filter(|f| f.lines > FUNCTION_LINES_MAX)
        {
            let name = format!("{file} {}", function.name);
            too_long.insert(name, (function.line, function.lines));
        }
    }
    let mut findings = Vec::new();
    for (name, allowed) in exceptions {
        match too_long.remove(*name) {
            Some((line, lines)) if lines > *allowed => findings.push(format!(
                "{name} (line {line}): grew from {allowed} to {lines} lines: split it"
            )),
            Some((_, lines)) if lines < *allowed => findings.push(format!(
                "{name}: shrank from {allowed} to {lines} lines: write {lines} into the list of exceptions"
            )),
            Some(_) => {}
            None => findings.push(format!(
                "{name}: is no longer too long: take it off the list of exceptions"
            )),
        }
    }
    for (name, (line, lines)) in too_long {
        findings.push(format!(
            "{name} (line {line}): {lines} lines without tests, at most {FILE_LINES_MAX} in a file and \
             {FUNCTION_LINES_MAX} in a function: split it"
        ));
    }
    findings
}
