//! Tests of the keys about paths: a path in `proxy`, `rewrite` and `write_back`.

use super::said;
use crate::config::describe;

const ROUTE: &str = "[upstream.a]\nservers = \"http://127.0.0.1:9000\"\n[[route]]\n";

fn errors(route: &str) -> String {
    said(&format!("{ROUTE}{route}\n"))
}

#[test]
fn paths_are_described() {
    let route = "path = \"/a/*\"\nproxy = \"a/base\"\nwrite_back = false\n\
                 rewrite = [[\"^/b\", \"/c\"]]\n";
    let first = "[[route]]\npath = \"/v/*\"\nproxy = \"a/\"\n";
    let plan = super::plan(&format!("{ROUTE}{route}{first}"));
    insta::assert_snapshot!(describe(&plan));
}

#[test]
fn mistakes_in_paths_are_explained() {
    let all = [
        "proxy = \"a/base?x=1\"",
        "proxy = \"a/$1\"",
        "proxy = \"a/ä\"",
        "path = \"*.mp4\"\nproxy = \"a/base\"",
        "path_regex = '^/a/'\nproxy = \"http://127.0.0.1:9000/base\"",
        "proxy = \"a\"\nrewrite = \"^/a\"",
        "proxy = \"a\"\nrewrite = [\"^/a\", \"/b\"]",
        "proxy = \"a\"\nrewrite = []",
        "proxy = \"a\"\nrewrite = [[\"^/a\"]]",
        "proxy = \"a\"\nrewrite = [[\"^/a\", \"/b\", \"last\"]]",
        "proxy = \"a\"\nrewrite = [[\"^/a\", \"/b\", \"permanent\"]]",
        "proxy = \"a\"\nrewrite = [[\"~ ^/a\", \"/b\"]]",
        "proxy = \"a\"\nrewrite = [[\"^a/(.*)$\", \"/$1\"]]",
        "proxy = \"a\"\nrewrite = [['^/a\\?x=(.*)', \"/b\"]]",
        "proxy = \"a\"\nrewrite = [[\"^/a\", \"https://b.example/\"]]",
        "proxy = \"a\"\nrewrite = [[\"^/a\", \"b\"]]",
        "proxy = \"a\"\nrewrite = [[\"^/a\", \"/b/$1\"]]",
        "proxy = \"a\"\nrewrite = [[\"^(.*)$\", \"/b$request_uri\"]]",
        "proxy = \"a\"\nrewrite = [['^/a(?=b)', \"/b\"]]",
        "proxy = \"a\"\nproxy_redirect = \"off\"",
    ];
    let all: Vec<String> = all
        .iter()
        .map(|route| format!("--- {route}\n{}", errors(route)))
        .collect();
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn keys_about_paths_need_an_upstream() {
    let warned = errors("respond = \"x\"\nrewrite = [[\"^/a\", \"/b\"]]\nwrite_back = true\n");
    assert!(warned.contains("`rewrite` does nothing here"), "{warned}");
    assert!(
        warned.contains("`write_back` does nothing here"),
        "{warned}"
    );
}
