//! The documentation is complete, and its examples are good.

use crate::config::{file, parse};

/// The keys that a section knows, as the parser lists them.
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

/// The keys in the first column of a section's table.
fn table(part: &str) -> Vec<&str> {
    let part = part.split("\n## ").next().unwrap_or_default();
    part.lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect()
}

#[test]
fn every_key_is_documented_in_its_section() {
    let docs = include_str!("../../../../docs/configuration.md");
    for (heading, section) in [
        ("## `[server]`", "[server]"),
        ("## `[limits]`", "[limits]"),
        ("## `[[listener]]`", "[[listener]]"),
        ("## `[admin]`", "[admin]"),
        ("## `[log]`", "[log]"),
        ("## `[volume.NAME]`", "[volume.a]"),
        ("## `[cache.NAME]`", "[cache.a]"),
        ("## `[upstream.NAME]`", "[upstream.a]"),
        ("## `[[site]]`", "[[site]]"),
        ("## `[[site.route]]`", "[[site]]\n[[site.route]]"),
        (
            "## `[site.route.log]`",
            "[[site]]\n[[site.route]]\n[site.route.log]",
        ),
        (
            "## `[site.route.files]`",
            "[[site]]\n[[site.route]]\n[site.route.files]",
        ),
        (
            "## `[site.route.compress]`",
            "[[site]]\n[[site.route]]\n[site.route.compress]",
        ),
        (
            "## `[site.route.limit]`",
            "[[site]]\n[[site.route]]\n[site.route.limit]",
        ),
        (
            "## `[site.route.signed_urls]`",
            "[[site]]\n[[site.route]]\n[site.route.signed_urls]",
        ),
        (
            "## `[site.route.respond]`",
            "[[site]]\n[[site.route]]\n[site.route.respond]",
        ),
        (
            "## `[site.route.redirect]`",
            "[[site]]\n[[site.route]]\n[site.route.redirect]",
        ),
        (
            "## `[site.route.request_fields]`",
            "[[site]]\n[[site.route]]\n[site.route.request_fields]",
        ),
        (
            "## `[site.route.expires]`",
            "[[site]]\n[[site.route]]\n[site.route.expires]",
        ),
    ] {
        let (_, part) = docs
            .split_once(&format!("{heading}\n"))
            .unwrap_or_else(|| panic!("no {heading}"));
        let mut documented = table(part);
        if matches!(section, "[cache.a]" | "[[site]]\n[[site.route]]") {
            let (_, rules) = docs.split_once("## Caching rules\n").expect("its place");
            documented.extend(table(rules));
        }
        let mut known = keys(section);
        known.retain(|key| section != "[[site]]" || key != "route");
        assert!(!known.is_empty(), "{section}");
        assert_eq!(documented, known, "{section}");
    }
}

/// The configurations among a document's examples.
pub(super) fn examples(document: &str) -> Vec<&str> {
    let parts = document.split("```toml\n").skip(1);
    parts.filter_map(|e| e.split("```").next()).collect()
}

#[test]
fn every_example_in_the_documentation_is_good() {
    let mut examples = examples(include_str!("../../../../docs/configuration.md"));
    assert!(examples.len() >= 2);
    examples.extend(self::examples(include_str!("../../../../docs/headers.md")));
    examples.extend(self::examples(include_str!(
        "../../../../docs/compression.md"
    )));
    for example in examples {
        let loaded =
            parse("docs/configuration.md", example).unwrap_or_else(|report| panic!("{report}"));
        assert!(loaded.warnings.problems.is_empty(), "{}", loaded.warnings);
    }
}

#[test]
fn every_recipe_is_good_and_those_that_are_doubtful_say_so() {
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

/// Whether a document names a key, alone or before its value.
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
    let own = ["path", "match", "proxy", "cache", "files", "compress"];
    let elsewhere = [
        include_str!("../../../../docs/access.md"),
        include_str!("../../../../docs/headers.md"),
        include_str!("../../../../docs/logs.md"),
    ];
    for key in keys("[[site]]\n[[site.route]]") {
        let named = names(rules, &key) || elsewhere.iter().any(|text| names(text, &key));
        let explained = named || own.contains(&key.as_str());
        assert!(explained, "no page of docs explains {key}");
    }
}
