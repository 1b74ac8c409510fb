//! Tests of caching rules that are set for a cache and for a route, and of reloads that change
//! them.

use sluice_lab::origin::Resource;

use crate::harness::{Setup, assert_has_parameter, assert_hit, fresh, serving};

#[test]
fn rules_of_a_route_override_those_of_its_cache() {
    let origin = serving("/x", Resource::offset(10));
    let cache = Setup::cached(&origin)
        .cache("heuristic = \"0s\"")
        .cache("valid = { 200 = \"1h\" }");
    let edge = cache.start();
    edge.get("/x", &[]);
    assert_hit(&edge.get("/x", &[]));
    // The last table of the text is that of the route, so the appended line belongs to the route.
    let text = cache.text() + "valid = { 404 = \"1m\" }\n";
    let edge = Setup::of_text(text).start();
    assert_has_parameter(&edge.get("/x", &[]), "detail=no-lifetime");
    let text = cache.text() + "stale_if_error = \"1m\"\n";
    let edge = Setup::of_text(text).start();
    edge.get("/x", &[]);
    assert_hit(&edge.get("/x", &[]));
}

// After the reload, the new rules apply to responses that arrive. Responses that were stored before
// keep their lifetimes.
#[test]
fn a_reload_applies_new_rules_to_new_responses_only() {
    let origin = serving("/x", fresh(10));
    for path in ["/a", "/b", "/c"] {
        origin.serve(path, Resource::offset(10));
    }
    let setup = Setup::cached(&origin).cache("heuristic = \"0s\"");
    let edge = setup.start();
    edge.get("/x", &[]);
    assert_has_parameter(&edge.get("/a", &[]), "detail=no-lifetime");
    let reload = |text: &str| {
        edge.rewrite(text);
        let output = edge.command(&["reload"]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = setup.text() + "valid = { 200 = \"1h\" }\n";
    assert_eq!(reload(&text), "caching rules changed\n");
    edge.get("/b", &[]);
    assert_hit(&edge.get("/b", &[]));
    assert_hit(&edge.get("/x", &[]));
    let text = text + "bypass = { cookies = [\"session\"] }\n";
    assert_eq!(reload(&text), "caching rules changed\n");
    assert_has_parameter(&edge.get("/b", &[("Cookie", "session=1")]), "detail=cookie");
    assert_hit(&edge.get("/b", &[]));
    reload(&setup.text());
    assert_has_parameter(&edge.get("/c", &[]), "detail=no-lifetime");
    assert_hit(&edge.get("/b", &[]));
}
