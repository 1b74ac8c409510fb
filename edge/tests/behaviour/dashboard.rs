//! Tests of the dashboard's files and settings. `edge/tests/page` tests the page in a browser.

use serde_json::Value;
use sluice_lab::client::{self, Reply};

use crate::harness::{Edge, Setup, fresh, serving};

fn ask(edge: &Edge, target: &str, headers: &[(&str, &str)]) -> Reply {
    client::get(edge.admin, target, headers).expect("the admin address answers")
}

#[test]
fn browsers_get_the_dashboard_and_ask_again_only_for_what_has_changed() {
    let edge = Setup::cached(&serving("/", fresh(10))).start();
    let browser = [("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    for (target, status) in [("/", 307), ("/dashboard", 308)] {
        let reply = ask(&edge, target, &browser);
        let place = reply.header("location").map(str::to_owned);
        assert_eq!(
            (reply.status, place.as_deref()),
            (status, Some("/dashboard/"))
        );
    }
    let list = ask(&edge, "/", &[]);
    assert!(
        list.status == 200 && list.text().starts_with("GET  /dashboard/"),
        "{}",
        list.text()
    );

    let page = ask(&edge, "/dashboard/", &browser);
    assert_eq!(page.status, 200);
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let text = page.text();
    let names = text
        .split('"')
        .filter(|part| part.ends_with(".js") || part.ends_with(".css"));
    let mut count = 0;
    for name in names {
        let target = format!("/dashboard/{name}");
        let reply = ask(&edge, &target, &[]);
        assert_eq!(reply.status, 200, "{name}");
        let tag = reply.header("etag").expect("a tag").to_owned();
        assert_eq!(reply.header("cache-control"), Some("no-cache"), "{name}");
        let again = ask(&edge, &target, &[("If-None-Match", &tag)]);
        assert_eq!((again.status, again.body.len()), (304, 0), "{name}");
        count += 1;
    }
    assert!(count > 10, "{count}");
    for target in [
        "/dashboard/nothing.js",
        "/dashboard/../status",
        "/dashboard/%2e%2e/mod.rs",
    ] {
        let reply = ask(&edge, target, &[]);
        assert_ne!(reply.status, 200, "{target}");
    }
}

#[test]
fn settings_have_the_price_of_traffic() {
    let origin = serving("/", fresh(10));
    let setup = Setup::cached(&origin);
    let edge = setup.start();
    let settings = |edge: &Edge| -> Value {
        serde_json::from_slice(&ask(edge, "/settings", &[]).body).expect("JSON")
    };
    let found = settings(&edge);
    assert_eq!(found["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        (&found["price_per_gb"], &found["price_currency"]),
        (&0.0.into(), &"$".into())
    );
    assert_eq!(found["role"], "operator");
    let priced = "[admin]\nprice_per_gb = 0.05\nprice_currency = \"EUR\"\n";
    edge.rewrite(&setup.text().replace("[admin]\n", priced));
    assert!(edge.command(&["reload"]).status.success());
    let found = settings(&edge);
    assert_eq!(
        (&found["price_per_gb"], &found["price_currency"]),
        (&0.05.into(), &"EUR".into())
    );
}
