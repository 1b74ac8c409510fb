//! Checks the rules of `ARCHITECTURE.md`: the import table, the libraries that each part may name,
//! and the lengths of files and functions. The rules do not apply to test code, except that no test
//! may be skipped.

#[path = "architecture/checker.rs"]
mod checker;
#[path = "architecture/circles.rs"]
mod circles;
#[path = "architecture/facts.rs"]
mod facts;
#[path = "architecture/rules.rs"]
mod rules;
#[path = "architecture/words.rs"]
mod words;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rules::{Source, Table};

/// Files and functions that exceed the limits, with their lengths, as `file` or `file function`.
/// Entries may be removed, but not added.
const TOO_LONG: &[(&str, usize)] = &[];

/// Circles of imports that exist inside each part: the number of files in each circle, the largest
/// first. Entries may be removed, but not added.
const CIRCLES: &[(&str, &[usize])] = &[("downstream", &[2]), ("http", &[2, 2])];

/// Number of paragraphs in each folder that may begin without naming their subject. Entries may be
/// removed, but not added.
const UNCLEAR: &[(&str, usize)] = &[];

#[test]
fn imports_follow_the_table() {
    let table =
        rules::read_table(&read(&root().join("ARCHITECTURE.md"))).expect("the import table");
    none(rules::imports(&package("edge", "src"), &table));
}

#[test]
fn libraries_clock_and_files_are_named_only_where_they_may_be() {
    none(rules::reserved(&package("edge", "src")));
}

#[test]
fn every_file_begins_with_a_doc_line_and_nothing_is_skipped_or_unfinished() {
    let mut sources = all_sources();
    sources.extend(package("edge", "tests"));
    none(rules::tidiness(&sources));
}

#[test]
fn files_and_functions_are_short() {
    none(rules::lengths(&all_sources(), TOO_LONG));
}

#[test]
fn files_of_a_part_import_one_another_in_one_direction() {
    none(circles::circles(&package("edge", "src"), CIRCLES));
}

#[test]
fn the_exchange_names_nothing_of_http1() {
    let mut files = Vec::new();
    find(
        &root().join("edge/src/downstream/exchange"),
        &["rs"],
        &mut files,
    );
    assert!(!files.is_empty(), "the exchange has files");
    none(rules::exchange(&texts(&files)));
}

#[test]
fn files_of_upstream_that_serve_every_protocol_name_nothing_of_http1() {
    none(rules::protocols(&package("edge", "src")));
}

#[test]
fn paragraphs_name_their_subject() {
    let mut files = Vec::new();
    for folder in ["edge", "lab", "xtask", "fuzz", "docs"] {
        find(&root().join(folder), &["rs", "md"], &mut files);
    }
    let top = std::fs::read_dir(root()).expect("the workspace can be read");
    let top = top.map(|entry| entry.expect("a readable folder").path());
    files.extend(top.filter(|path| path.extension().is_some_and(|end| end == "md")));
    none(words::beginnings(&texts(&files), UNCLEAR));
}

/// Returns the name of each file, from the root of the workspace, and its text.
fn texts(files: &[PathBuf]) -> Vec<(String, String)> {
    let text = |file: &PathBuf| {
        let inside = file.strip_prefix(root()).expect("found in the workspace");
        let name = inside.to_str().expect("names of files are UTF-8");
        (name.to_owned(), read(file))
    };
    files.iter().map(text).collect()
}

fn none(findings: Vec<String>) {
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn all_sources() -> Vec<Source> {
    ["edge", "lab", "xtask"]
        .iter()
        .flat_map(|name| package(name, "src"))
        .collect()
}

/// Returns all files in a folder of a package. Files that are compiled only for tests come last,
/// and have no content.
fn package(name: &str, folder: &str) -> Vec<Source> {
    let base = root().join(name).join(folder);
    let mut files = Vec::new();
    find(&base, &["rs"], &mut files);
    assert!(!files.is_empty(), "no source in {}", base.display());
    files.sort();
    let sources = files
        .iter()
        .map(|file| {
            let inside = file.strip_prefix(&base).expect("found below the base");
            let inside = inside.to_str().expect("names of source files are UTF-8");
            source(&format!("{name}/{folder}/{inside}"), inside, &read(file))
        })
        .collect();
    clear_test_modules(sources)
}

/// Adds the files below a folder whose names have one of these extensions. Folders named `target`
/// are left out.
fn find(folder: &Path, ends: &[&str], found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for path in entries.map(|entry| entry.expect("a readable folder").path()) {
        let end = path.extension().and_then(|end| end.to_str());
        if path.is_dir() && !path.ends_with("target") {
            find(&path, ends, found);
        } else if end.is_some_and(|end| ends.contains(&end)) {
            found.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn source(file: &str, inside: &str, text: &str) -> Source {
    let module: Vec<String> = inside
        .trim_end_matches(".rs")
        .split('/')
        .filter(|name| !["mod", "lib"].contains(name))
        .map(str::to_owned)
        .collect();
    let facts = facts::read(&module, text).unwrap_or_else(|e| panic!("{file}: {e}"));
    Source {
        file: file.to_owned(),
        module,
        facts,
    }
}

/// Removes the content of files that are declared as `#[cfg(test)] mod name;`, because the rules do
/// not apply to test code.
fn clear_test_modules(mut sources: Vec<Source>) -> Vec<Source> {
    let tests: BTreeSet<Vec<String>> = sources
        .iter_mut()
        .flat_map(|source| std::mem::take(&mut source.facts.test_modules))
        .collect();
    for source in &mut sources {
        if tests.iter().any(|test| source.module.starts_with(test)) {
            source.facts.paths.clear();
            source.facts.functions.clear();
            source.facts.lines = 0;
        }
    }
    sources
}
