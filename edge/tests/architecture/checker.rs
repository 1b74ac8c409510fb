//! Tests of the architecture checker itself, with small inputs.

use super::*;

const TABLE: &str = "\
    | part | may import |\n|---|---|\n| a | |\n| b | a |\n| cache | a b |\n| main | everything |\n\nText";

fn table() -> Table {
    rules::read_table(TABLE).expect("a correct table")
}

/// Returns these files, and one file for each part of the table that has none of them.
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
fn imports_that_the_table_allows_pass() {
    let text =
        "use crate::{a, b::c}; use super::b; fn f() { crate::a::f(); self::g(); super::x::f() }";
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
        imports("a.rs", "//! A.\n\nuse crate::{\n    b::C,\n};\n")[0].starts_with("src/a.rs:4:")
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
    let stale = circles::circles(&sources, &[("cache", &[2, 2])]);
    assert_eq!(stale.len(), 1, "{stale:?}");
}

#[test]
fn names_of_http1_in_the_exchange_are_found() {
    let found = |text: &str| rules::exchange(&[("a.rs".to_owned(), text.to_owned())]).len();
    for text in [
        "use crate::downstream::http1::Wire;",
        "/// As HTTP/1.1 has it.",
        "let mut out_box = 1; // The wire.",
        "fn keep_alive() {}",
        "//! Keep-Alive of a connection.",
        "let length = content_length;",
        "// Chunks.",
        "/// The protocol's framing.",
        "\"Transfer-Encoding\"",
    ] {
        assert_eq!(found(text), 1, "{text}");
    }
    assert_eq!(found("// A required length of content, in HTTP."), 0);
}

#[test]
fn names_of_http1_in_shared_files_of_upstream_are_found() {
    let found = |inside: &str| {
        let text = "use super::http1::Connection;";
        rules::protocols(&files(&[(inside, text)])).len()
    };
    assert_eq!(found("upstream/pool.rs"), 1);
    assert_eq!(found("upstream/connection.rs"), 0);
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
    let text = [("x/a.rs".to_owned(), "// It is.\n".to_owned())];
    assert!(words::beginnings(&text, &[("x", 1)]).is_empty());
    for exceptions in [&[("x", 2)][..], &[("x", 1), ("y", 1)]] {
        let findings = words::beginnings(&text, exceptions);
        assert!(findings.len() == 1 && findings[0].contains("lower that number"));
    }
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
