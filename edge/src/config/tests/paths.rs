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

#[test]
fn followed_redirects_are_described_and_mistakes_explained() {
    let bucket = "[upstream.bucket]\nservers = \"https://10.0.0.2\"\n";
    let routes = [
        "true",
        "\"https://a.example\"",
        "[\"https://a.example/\", \"bucket\"]",
        "{ times = 1 }",
        "{ times = 20, to = \"bucket\" }",
        "false",
    ];
    let routes = routes.iter().enumerate().map(|(n, follow)| {
        format!("[[route]]\npath = \"/{n}\"\nproxy = \"a\"\nfollow_redirects = {follow}\n")
    });
    let routes: String = routes.collect();
    let text = format!("[upstream.a]\nservers = \"http://127.0.0.1:9000\"\n{bucket}{routes}");
    let mut all = vec![describe(&super::plan(&text))];
    let wrong = [
        "proxy = \"a\"\nfollow_redirects = 3",
        "proxy = \"a\"\nfollow_redirects = []",
        "proxy = \"a\"\nfollow_redirects = \"off\"",
        "proxy = \"a\"\nfollow_redirects = { times = 0 }",
        "proxy = \"a\"\nfollow_redirects = { time = 2 }",
        "proxy = \"a\"\nfollow_redirects = \"b\"",
        "proxy = \"a\"\nfollow_redirects = \"bucket.example.com\"",
        "proxy = \"a\"\nfollow_redirects = [\"*.example.com\"]",
        "proxy = \"a\"\nfollow_redirects = \"https://a.example/path\"",
        "proxy = \"a\"\nfollow_redirects = \"https://u@a.example\"",
        "proxy = \"a\"\nfollow_redirects = { to = \"https://a.example:0\" }",
        "proxy = \"a\"\nfollow_redirects = \"unix:/run/app.sock\"",
        "respond = \"x\"\nfollow_redirects = true",
    ];
    all.extend(wrong.map(|route| format!("--- {route}\n{}", errors(route))));
    insta::assert_snapshot!(all.join("\n"));
}
