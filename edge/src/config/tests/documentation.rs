//! Tests that the documentation is complete, that its defaults are those of the program, and that
//! its examples are valid.

use std::fs;
use std::path::PathBuf;

use super::plan;
use crate::config::{file, parse};

/// Every section that has a table of keys: its heading in the documentation, and the beginning of a
/// file with the section.
const SECTIONS: &[(&str, &str)] = &[
    ("## `[server]`", "[server]"),
    ("## `[limits]`", "[limits]"),
    ("## `[buffers]`", "[buffers]"),
    ("## `[[listener]]`", "[[listener]]"),
    ("## `[tls]`", "[tls]"),
    ("## `[tls.acme]`", "[tls.acme]"),
    ("## `[tls.acme.dns]`", "[tls.acme.dns]"),
    ("## `[admin]`", "[admin]"),
    ("## `[log]`", "[log]"),
    ("## `[volume.NAME]`", "[volume.a]"),
    ("## `[cache.NAME]`", "[cache.a]"),
    ("## `[upstream.NAME]`", "[upstream.a]"),
    ("## `[upstream.NAME.retry]`", "[upstream.a.retry]"),
    ("## `[upstream.NAME.sign]`", "[upstream.a.sign]"),
    ("## `[upstream.NAME.hedge]`", "[upstream.a.hedge]"),
    ("## `[upstream.NAME.health]`", "[upstream.a.health]"),
    ("## `[upstream.NAME.eject]`", "[upstream.a.eject]"),
    ("## `[upstream.NAME.tls]`", "[upstream.a.tls]"),
    ("## `[[site]]`", "[[site]]"),
    ("## `[[site.route]]`", "[[route]]"),
    ("## `[site.route.log]`", "[[route]]\n[route.log]"),
    ("## `[site.route.files]`", "[[route]]\n[route.files]"),
    ("## `[site.route.compress]`", "[[route]]\n[route.compress]"),
    ("## `[site.route.limit]`", "[[route]]\n[route.limit]"),
    (
        "## `[site.route.signed_urls]`",
        "[[route]]\n[route.signed_urls]",
    ),
    ("## `[site.route.respond]`", "[[route]]\n[route.respond]"),
    ("## `[site.route.redirect]`", "[[route]]\n[route.redirect]"),
    (
        "## `[site.route.request_headers]`",
        "[[route]]\n[route.request_headers]",
    ),
    ("## `[site.route.expires]`", "[[route]]\n[route.expires]"),
];

const CONFIGURATION: &str = include_str!("../../../../docs/configuration.md");

/// Returns the text of each document, with its name.
fn documents() -> Vec<(String, String)> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let entries = fs::read_dir(root.join("docs")).expect("the documents");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let documents = paths.filter(|path| path.extension().is_some_and(|e| e == "md"));
    let mut all: Vec<PathBuf> = documents.chain([root.join("README.md")]).collect();
    all.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a document");
        (path.display().to_string(), text)
    };
    all.into_iter().map(read).collect()
}

/// Returns the keys that the parser accepts in a section.
fn keys(section: &str) -> Vec<String> {
    let text = format!("{section}\nno_such_key_at_all = 1\n");
    let error = toml::from_str::<file::File>(&text).expect_err("the key is unknown");
    let known = error
        .message()
        .split_once("expected ")
        .map_or("", |(_, known)| known);
    known
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// Returns the part of the reference below a heading.
fn part(heading: &str) -> &'static str {
    let part = CONFIGURATION.split_once(&format!("{heading}\n"));
    let (_, part) = part.unwrap_or_else(|| panic!("no {heading}"));
    part.split("\n## ").next().unwrap_or_default()
}

/// Returns the cells of a table's row. `\\|` does not end a cell.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|').replace("\\|", "\u{1}");
    let row = row.trim_end_matches('|');
    row.split('|')
        .map(|cell| cell.trim().replace('\u{1}', "|"))
        .collect()
}

/// Returns the rows of a section's table of keys: the key, and the other cells.
fn table(part: &str) -> Vec<(String, Vec<String>)> {
    let rows = part.split("| key |").nth(1).unwrap_or_default();
    let rows = rows
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let mut cells = cells(row);
        let key = cells.remove(0);
        (key.trim_matches('`').to_owned(), cells)
    })
    .collect()
}

#[test]
fn every_key_is_documented_in_its_section() {
    for (heading, section) in SECTIONS {
        let mut documented = table(part(heading));
        if matches!(*section, "[cache.a]" | "[[route]]") {
            documented.extend(table(part("## Caching rules")));
        }
        let documented: Vec<String> = documented.into_iter().map(|(key, _)| key).collect();
        let mut known = keys(section);
        known.retain(|key| *section != "[[site]]" || key != "route");
        assert!(!known.is_empty(), "{section}");
        assert_eq!(documented, known, "{section}");
    }
}

#[test]
fn headers_that_reach_no_origin_are_documented() {
    let security = include_str!("../../../../docs/security.md").to_lowercase();
    let words: Vec<&str> = security.split([' ', ',']).collect();
    for name in crate::http::hop::UNKEYED {
        assert!(words.contains(name), "{name}");
    }
}

/// Returns a configuration that has `line` in a section. Other keys that the section requires are
/// added.
fn with_line(section: &str, line: &str) -> String {
    let needed = match section {
        "[[listener]]" => "address = \":8080\"\n",
        "[volume.a]" => "path = \"/a\"\nsize = \"1GiB\"\n",
        "[upstream.a]" => "servers = \"http://a\"\n",
        "[upstream.a.retry]" => "total = \"10s\"\nbudget = 0.2\n",
        "[upstream.a.sign]" => "region = \"r\"\naccess_key = \"a\"\nsecret_key = \"s\"\n",
        "[tls.acme.dns]" if line.contains("timeout") => "program = \"dns\"\n",
        "[tls.acme.dns]" => "server = \"192.0.2.1\"\nkey_name = \"a\"\nkey = \"a\"\n",
        "[[route]]\n[route.files]" => "root = \"/a\"\n",
        "[[route]]\n[route.limit]" => "requests = \"1/s\"\nbandwidth = \"1MiB\"\n",
        "[[route]]\n[route.signed_urls]" => "keys = \"0123456789abcdef\"\n",
        "[[route]]\n[route.respond]" => "body = \"a\"\n",
        "[[route]]\n[route.redirect]" => "to = \"/a\"\n",
        "[[route]]\n[route.expires]" => "types = { \"text/html\" = \"1h\" }\n",
        _ => "",
    };
    let key = line.split(" = ").next().unwrap_or_default();
    let needed: String = needed
        .lines()
        .filter(|other| !other.starts_with(&format!("{key} =")))
        .map(|other| format!("{other}\n"))
        .collect();
    let before = match section {
        s if s.ends_with("_urls]") || s.ends_with("headers]") || s.ends_with("limit]") => {
            s.replacen("[[route]]", "[[route]]\nproxy = \"a\"\n", 1)
        }
        s if s.ends_with(".log]") => s.replacen("[[route]]", "[[route]]\nproxy = \"a\"\n", 1),
        s if s.ends_with("compress]") || s.ends_with("expires]") => {
            s.replacen("[[route]]", "[[route]]\nproxy = \"a\"\ncache = \"a\"\n", 1)
        }
        "[[route]]" => "[[route]]\nproxy = \"a\"\ncache = \"a\"".to_owned(),
        "[upstream.a.retry]"
        | "[upstream.a.sign]"
        | "[upstream.a.health]"
        | "[upstream.a.eject]" => {
            format!("[upstream.a]\nservers = \"http://a\"\n{section}")
        }
        s => s.to_owned(),
    };
    let mut text = format!("{before}\n{line}\n{needed}");
    if section == "[[site]]" {
        text += "[[site.route]]\nproxy = \"a\"\n";
    } else if !section.starts_with("[[route]]") {
        text += "[[route]]\nproxy = \"a\"\ncache = \"a\"\n";
    }
    for needed in ["[upstream.a]\nservers = \"http://a\"\n", "[cache.a]\n"] {
        let header = needed.lines().next().unwrap_or_default();
        if !text.contains(header) {
            text += needed;
        }
    }
    text
}

#[test]
fn documented_defaults_are_the_programs() {
    let mut compared = 0;
    for (heading, section) in SECTIONS {
        let mut rows = table(part(heading));
        if *section == "[cache.a]" {
            rows.extend(table(part("## Caching rules")));
        }
        for (key, cells) in rows {
            let default = cells.first().map(String::as_str).unwrap_or_default();
            let written = default.strip_prefix('`').and_then(|d| d.strip_suffix('`'));
            let Some(value) = written.filter(|value| !value.contains('`')) else {
                continue;
            };
            let line = format!("{key} = {value}");
            let (with, without) = (
                with_line(section, &line),
                with_line(section, &format!("# {line}")),
            );
            // `with_line` has added the keys that `line` requires to both configurations, so only
            // the key itself differs.
            let without = without.replace(&format!("# {line}\n"), "");
            assert_eq!(plan(&with), plan(&without), "{section}: {line}");
            compared += 1;
        }
    }
    assert!(compared > 90, "{compared} defaults compared");
}

#[test]
fn every_row_of_a_table_has_the_cells_of_its_header() {
    for (name, text) in documents() {
        let mut header = None;
        for line in text.lines() {
            if !line.starts_with('|') {
                header = None;
                continue;
            }
            let count = cells(line).len();
            assert_eq!(count, *header.get_or_insert(count), "{name}: {line}");
        }
    }
}

/// Returns the configurations in a document's examples.
pub(super) fn examples(document: &str) -> Vec<&str> {
    let parts = document.split("```toml\n").skip(1);
    parts.filter_map(|e| e.split("```").next()).collect()
}

/// Returns a configuration with the example, completed with the sections to which the example
/// refers.
fn completed(example: &str) -> String {
    let mut text = format!("{example}\n");
    if !text.starts_with('[') && !text.contains("\n[") {
        // The example has only keys of a route.
        text = format!("[[route]]\nproxy = \"origin\"\n{text}");
    } else if text.contains("[site.route") && !text.contains("[[site]]") {
        text = format!("[[site]]\n[[site.route]]\n{text}");
    }
    let main = example.contains("[cache.main]") || example.contains("\"main\"");
    if !text.contains("[[route]]") && !text.contains("[[site]]") {
        text += "[[route]]\nproxy = \"origin\"\n";
        text += if main { "cache = \"main\"\n" } else { "" };
    }
    if text.contains("\"origin\"") && !text.contains("[upstream.origin]") {
        text += "[upstream.origin]\nservers = \"http://a\"\n";
    }
    if text.contains("\"main\"") && !text.contains("[cache.main]") {
        text += "[cache.main]\n";
    }
    text
}

#[test]
fn every_example_of_every_document_is_accepted() {
    let mut accepted = 0;
    for (name, document) in documents() {
        for example in examples(&document) {
            let is_file = example.lines().any(|line| line.starts_with('['));
            let texts: Vec<String> = match is_file {
                true => vec![completed(example)],
                // Each line is a separate example.
                false => example.lines().map(completed).collect(),
            };
            for text in texts {
                let loaded = parse(&name, &text).unwrap_or_else(|report| panic!("{report}"));
                let complete = name.ends_with("configuration.md") || name.ends_with("README.md");
                let clean = loaded.warnings.problems.is_empty();
                assert!(clean || !complete, "{}", loaded.warnings);
                accepted += 1;
            }
        }
    }
    assert!(accepted > 40, "{accepted} examples");
}

#[test]
fn every_recipe_is_accepted_and_doubtful_ones_say_so() {
    let document = include_str!("../../../../docs/caching.md");
    let recipes = examples(document);
    assert!(recipes.len() >= 5);
    for recipe in recipes {
        let text = format!("[upstream.origin]\nservers = [\"http://a\"]\n{recipe}");
        let loaded = parse("docs/caching.md", &text).unwrap_or_else(|report| panic!("{report}"));
        let (_, before) = document
            .split_once(recipe)
            .map(|(before, _)| before.rsplit_once("### ").unwrap_or_default())
            .unwrap_or_default();
        let warned = before.contains("`sluice check` warns");
        let clean = loaded.warnings.problems.is_empty();
        assert_eq!(warned, !clean, "{}", loaded.warnings);
    }
}

/// Whether a document contains a key in backquotes, alone or with a value.
fn names(document: &str, key: &str) -> bool {
    let quoted = format!("`{key}");
    let mut found = document.match_indices(&quoted);
    found.any(|(at, _)| {
        let rest = &document[at + key.len() + 1..];
        rest.starts_with('`') || rest.starts_with(" = ")
    })
}

#[test]
fn every_caching_rule_is_explained() {
    let document = include_str!("../../../../docs/caching.md");
    let (rules, _) = document.split_once("## Recipes\n").expect("its place");
    let own = [
        "path",
        "path_regex",
        "query",
        "proxy",
        "cache",
        "files",
        "compress",
    ];
    let elsewhere = [
        include_str!("../../../../docs/access.md"),
        include_str!("../../../../docs/connections.md"),
        include_str!("../../../../docs/headers.md"),
        include_str!("../../../../docs/logs.md"),
        include_str!("../../../../docs/paths.md"),
    ];
    for key in keys("[[route]]") {
        let named = names(rules, &key) || elsewhere.iter().any(|text| names(text, &key));
        let explained = named || own.contains(&key.as_str());
        assert!(explained, "no page of docs explains {key}");
    }
}
