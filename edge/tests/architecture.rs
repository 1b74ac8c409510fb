//! Checks the rules of `ARCHITECTURE.md`: the import table, what pure code may name, and the
//! lengths of files and functions. The rules do not apply to test code, except that no test may be
//! skipped.

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

/// Files and functions that exceed the limits, with their lengths: `file` or `file function`. The
/// list only shrinks.
const TOO_LONG: &[(&str, usize)] = &[];

/// Circles of imports inside a part: the numbers of files in each, the largest first. The list only
/// shrinks.
const CIRCLES: &[(&str, &[usize])] = &[];

/// Paragraphs of comments and documents that begin without naming their subject, by folder. The
/// list only shrinks.
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
    none(rules::exchange(&package("edge", "src")));
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
    let texts: Vec<_> = files
        .iter()
        .map(|file| {
            let inside = file.strip_prefix(root()).expect("found in the workspace");
            let name = inside.to_str().expect("names of files are UTF-8");
            (name.to_owned(), read(file))
        })
        .collect();
    none(words::beginnings(&texts, UNCLEAR));
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

/// All files of a package's folder. Files compiled only for tests are last and have no content.
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

/// Adds the files below a folder whose names end so, without those that builds make.
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

/// Removes the content of files declared as `#[cfg(test)] mod name;`: the rules do not apply to
/// them.
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

/// Tests of the checker itself, on small inputs.
mod checker {
    use super::*;

    const TABLE: &str = "\
        | part | may import |\n|---|---|\n| a | |\n| b | a |\n| cache | a b |\n| main | everything |\n\nText";

    fn table() -> Table {
        rules::read_table(TABLE).expect("a correct table")
    }

    /// These files, and one file for each other part of the table.
    fn files(given: &[(&str, &str)]) -> Vec<Source> {
        let mut sources: Vec<_> = given
            .iter()
            .map(|(inside, text)| source(&format!("src/{inside}"), inside, text))
            .collect();
        for part in ["a", "b", "cache", "main"] {
            if !sources
                .iter()
                .any(|s| s.module.first().is_some_and(|first| first == part))
            {
                let file = format!("{part}.rs");
                sources.push(source(&file, &file, "//! A part."));
            }
        }
        clear_test_modules(sources)
    }

    fn imports(inside: &str, text: &str) -> Vec<String> {
        rules::imports(&files(&[(inside, text)]), &table())
    }

    fn reserved(inside: &str, text: &str) -> Vec<String> {
        rules::reserved(&files(&[(inside, text)]))
    }

    #[test]
    fn the_table_is_read_up_to_its_end() {
        assert_eq!(table().len(), 4);
        assert_eq!(table()["main"], None);
        assert!(rules::read_table("no table").is_err());
    }

    #[test]
    fn what_the_table_allows_passes() {
        let text = "use crate::{a, b::c}; use super::b; fn f() { crate::a::f(); self::g(); super::x::f() }";
        assert_eq!(imports("cache/x.rs", text), [""; 0]);
        assert_eq!(
            imports("main.rs", "use crate::cache; use crate::b;"),
            [""; 0]
        );
    }

    #[test]
    fn every_way_to_import_is_seen() {
        for text in [
            "use crate::b::C;",
            "use crate::{a::X, b::{self, C}};",
            "pub use crate::b;",
            "use crate::b as other;",
            "use crate::b::*;",
            "use super::b;",
            "mod inner { use super::super::b::C; }",
            "fn f() { crate::b::g() }",
            "fn f(x: crate::b::X) {}",
            "use crate as root; fn f() { root::b::g() }",
            "fn f() { println!(\"{}\", crate::b::g()) }",
            "macro_rules! m { () => { $crate::b::g() } }",
            "#[derive(crate::b::D)] struct S;",
        ] {
            let found = imports("a.rs", text);
            assert!(
                found
                    .iter()
                    .any(|f| f.contains("src/a.rs:1:") && f.contains("`b`")),
                "{text}: {found:?}"
            );
        }
    }

    #[test]
    fn a_line_number_points_at_the_import() {
        assert!(
            imports("a.rs", "//! A.\n\nuse crate::{\n    b::C,\n};\n")[0]
                .starts_with("src/a.rs:4:")
        );
    }

    #[test]
    fn test_code_may_import_anything() {
        for text in [
            "#[cfg(test)] mod tests { use crate::b; }",
            "#[cfg(all(test, feature = \"x\"))] mod tests { use crate::b; }",
            "#[test] fn f() { crate::b::g() }",
            "struct S; impl S { #[cfg(test)] fn f() { crate::b::g() } }",
        ] {
            assert_eq!(imports("a.rs", text), [""; 0], "{text}");
        }
        for text in [
            "#[cfg(not(test))] use crate::b;",
            "#[cfg(any(test, unix))] use crate::b;",
        ] {
            assert_eq!(imports("a.rs", text).len(), 1, "{text}");
        }
        let laws = files(&[
            ("a/mod.rs", "#[cfg(test)] mod laws;"),
            ("a/laws.rs", "use crate::b;"),
        ]);
        assert_eq!(rules::imports(&laws, &table()), [""; 0]);
    }

    #[test]
    fn circles_inside_a_part_are_found() {
        let sources = files(&[
            ("cache/mod.rs", "mod x; mod y; mod z; use z::Z;"),
            ("cache/x.rs", "use super::y::Y; pub(super) struct X;"),
            ("cache/y.rs", "use super::x::X; use crate::a::A;"),
            ("cache/z.rs", "fn f() { crate::cache::x::g() }"),
        ]);
        let found = circles::circles(&sources, &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("cache::x -> cache::y -> cache::x"),
            "{found:?}"
        );
        assert_eq!(circles::circles(&sources, &[("cache", &[2])]), [""; 0]);
    }

    #[test]
    fn names_of_http1_in_the_exchange_are_found() {
        let found = |inside: &str| {
            let text = "use crate::downstream::http1::Wire;";
            rules::exchange(&files(&[(inside, text)])).len()
        };
        assert_eq!(found("downstream/exchange/body.rs"), 1);
        assert_eq!(found("downstream/connection.rs"), 0);
    }

    #[test]
    fn paragraphs_without_a_subject_are_found() {
        let found = |file: &str, text: &str| {
            let files = [(file.to_owned(), text.to_owned())];
            words::beginnings(&files, &[]).len()
        };
        for text in [
            "// It is.\n",
            "/// A.\n///\n/// What is.\n",
            "fn f() {\n    // Who is.\n",
        ] {
            assert_eq!(found("a.rs", text), 1, "{text}");
        }
        for text in [
            "// A.\n// It is.\n",
            "/// Items.\n",
            "let x = \"// It is\";\n",
        ] {
            assert_eq!(found("a.rs", text), 0, "{text}");
        }
        for text in ["A.\n\nThat is.\n", "- It is.\n", "| a | What is |\n"] {
            assert_eq!(found("a.md", text), 1, "{text}");
        }
        assert_eq!(found("a.md", "A\nThat is.\n\n```\n\nIt is\n```\n"), 0);
    }

    #[test]
    fn table_and_folders_must_agree() {
        let extra = files(&[("new/mod.rs", "")]);
        assert!(rules::imports(&extra, &table())[0].contains("`new` has no row"));
        let all = files(&[]);
        assert!(
            rules::imports(&all[1..], &table())
                .iter()
                .any(|f| f.contains("`a`, which does not exist"))
        );
    }

    #[test]
    fn pure_parts_name_no_io() {
        for text in [
            "use tokio::time::sleep;",
            "fn f() { ::tokio::spawn(g()) }",
            "use std::io::Read;",
            "fn f(s: std::net::TcpStream) {}",
            "use std::{thread, fmt};",
            "use std as s; fn f() { s::io::stdout() }",
        ] {
            assert_eq!(reserved("fill/whole.rs", text).len(), 1, "{text}");
            assert_eq!(reserved("cache/decide.rs", text).len(), 1, "{text}");
            assert_eq!(reserved("cache/decide/vary.rs", text).len(), 1, "{text}");
        }
        assert_eq!(
            reserved(
                "http/forwarded.rs",
                "use std::{io::Write, net::{IpAddr, SocketAddr}};"
            ),
            [""; 0]
        );
        assert_eq!(
            reserved("cache/serve.rs", "use tokio::sync::Notify;"),
            [""; 0]
        );
    }

    #[test]
    fn http_libraries_stay_at_the_edges() {
        assert_eq!(reserved("cache/serve.rs", "use http::HeaderMap;").len(), 1);
        assert_eq!(
            reserved("http/date.rs", "fn f() { httpdate::parse_http_date(x) }"),
            [""; 0]
        );
        assert_eq!(
            reserved("cache/serve.rs", "use httpdate::HttpDate;").len(),
            1
        );
        assert_eq!(
            reserved("upstream/mod.rs", "use hyper::client::conn;"),
            [""; 0]
        );
        let own = "use crate::http; fn f() -> http::Status { http::Status::OK }";
        assert_eq!(reserved("cache/serve.rs", own), [""; 0]);
        let child = "mod http; fn f() { http::g() }";
        assert_eq!(reserved("cache/mod.rs", child), [""; 0]);
    }

    #[test]
    fn clock_and_files_only_in_sys() {
        for text in [
            "use std::time::Instant; fn f() { Instant::now(); }",
            "use std::time::Instant as Clock; fn f() { Clock::now(); }",
            "fn f() { std::time::SystemTime::now(); }",
            "use super::*; fn f() { g(Instant::now) }",
            "fn f() { std::fs::read(p) }",
            "use tokio::fs;",
            "use std::fs::File;",
            "fn f() { select!{ _ = sleep_until(Instant::now() + d) => {} } }",
        ] {
            assert!(!reserved("cache/serve.rs", text).is_empty(), "{text}");
            assert!(!reserved("main.rs", text).is_empty(), "{text}");
            assert_eq!(reserved("sys/clock.rs", text), [""; 0], "{text}");
        }
        assert_eq!(
            reserved(
                "cache/serve.rs",
                "use std::time::Instant; struct S(Instant);"
            ),
            [""; 0]
        );
    }

    #[test]
    fn served_folders_are_only_read() {
        for text in [
            "use rustix::fs::OFlags; fn f() { g(OFlags::RDONLY | OFlags::CREATE) }",
            "fn f() { rustix::fs::unlinkat(a, b, c) }",
            "use crate::sys::disk; fn f() { disk::open_append(p) }",
        ] {
            for inside in ["files/load.rs", "sys/root.rs"] {
                assert!(!reserved(inside, text).is_empty(), "{inside}: {text}");
            }
        }
        let reads = "use rustix::fs::OFlags; fn f() { g(OFlags::RDONLY) }";
        assert_eq!(reserved("sys/root.rs", reads), [""; 0]);
    }

    #[test]
    fn skipped_unfinished_and_unintroduced_code_is_found() {
        let found = |text: &str| rules::tidiness(&[source("a.rs", "a.rs", text)]);
        assert_eq!(found("//! Fine.\nfn f() {}"), [""; 0]);
        assert!(found("fn f() {}")[0].starts_with("a.rs:1:"));
        assert!(
            found("//! A.\n#[cfg(test)] mod t {\n#[test]\n#[ignore]\nfn f() {}}")[0]
                .starts_with("a.rs:4:")
        );
        assert_eq!(
            found("//! A.\n#[test] #[cfg_attr(unix, ignore)] fn f() {}").len(),
            1
        );
        assert_eq!(found("//! A.\nfn f() { todo!() }").len(), 1);
        assert_eq!(
            found("//! A.\nfn f() { std::unimplemented!(\"x\") }").len(),
            1
        );
    }

    fn long(lines: usize) -> String {
        format!(
            "//! Long.\nimpl S {{ fn f() {{{}}} }}\n",
            "\n".repeat(lines - 1)
        )
    }

    #[test]
    fn long_functions_and_files_are_found_without_their_tests() {
        let lengths =
            |text: &str, list: &[(&str, usize)]| rules::lengths(&files(&[("a.rs", text)]), list);
        assert_eq!(lengths(&long(70), &[]), [""; 0]);
        assert!(lengths(&long(71), &[])[0].starts_with("src/a.rs S::f (line 2): 71 lines"));
        let tests = format!("//! A.\n#[cfg(test)] mod tests {{{}}}\n", "\n".repeat(600));
        assert_eq!(lengths(&tests, &[]), [""; 0]);
        let many = format!("//! A.\n{}", "\n".repeat(500));
        assert_eq!(lengths(&many, &[]).len(), 1);
    }

    #[test]
    fn the_list_of_exceptions_only_shrinks() {
        let check = |lines: usize, allowed: usize| {
            rules::lengths(
                &files(&[("a.rs", &long(lines))]),
                &[("src/a.rs S::f", allowed)],
            )
        };
        assert_eq!(check(80, 80), [""; 0]);
        assert!(check(81, 80)[0].contains("grew"));
        assert!(check(79, 80)[0].contains("shrank"));
        assert!(check(70, 80)[0].contains("no longer"));
    }
}
