//! Tests of `languages`: Accept-Language is reduced to one of the configured languages.

use std::collections::BTreeMap;

use sluice_lab::origin::{Latch, Origin, Resource, Seen};

use crate::caching_rules::{Crowd, current, last_sent, times};
use crate::harness::{SOON, Setup, assert_hit, cache_status, serving};

const LANGUAGES: &str = "languages = [\"en\", \"de\", \"pt-BR\"]";

/// Values of Accept-Language, and the language to which each of them is reduced.
const SPELLINGS: [(Option<&str>, &[&str]); 4] = [
    (
        Some("de"),
        &[
            "de",
            "DE",
            "de-CH",
            "de-DE,de;q=0.9,en;q=0.8",
            "fr, de-AT-1996;q=0.5, en;q=0.4",
            "en;q=0.5, *",
            "en_GB, de",
        ],
    ),
    (
        Some("en"),
        &["de, en-US", "en", "*", "de;q=0.1, en;q=0.2", "nl, *;q=0.1"],
    ),
    (Some("pt-BR"), &["pt-br", "pt-BR-x-any, en;q=0.9"]),
    (None, &["fr", "", "de;q=0", "pt", "den", "de;q=1.5"]),
];

/// Starts an origin whose responses have `Vary: Accept-Language` and contain the received value.
fn speaking(latch: Option<&Latch>) -> Origin {
    let latch = latch.cloned();
    let speak = move |seen: &Seen| {
        let body = Resource::bytes(seen.header("accept-language").unwrap_or("none").to_owned());
        let body = body.vary("Accept-Language").cache_control("max-age=3600");
        match &latch {
            Some(latch) => body.hold_head(latch),
            None => body,
        }
    };
    serving("/x", Resource::dynamic(speak))
}

/// Returns the number of requests that the origin has received for each language.
fn asked(origin: &Origin) -> BTreeMap<String, usize> {
    let mut asked = BTreeMap::new();
    for seen in origin.requests() {
        let language = seen.header("accept-language").unwrap_or("none");
        *asked.entry(language.to_owned()).or_default() += 1;
    }
    asked
}

fn once(languages: &[&str]) -> BTreeMap<String, usize> {
    languages.iter().map(|&name| (name.to_owned(), 1)).collect()
}

// Clients write their preferences in many ways. The origin receives one request per language.
#[test]
fn each_language_is_fetched_once() {
    for mode in ["whole", "auto", "slice", "lock"] {
        let origin = speaking(None);
        let fill = format!("fill = \"{mode}\"");
        let edge = Setup::cached(&origin).cache(LANGUAGES).cache(&fill).start();
        for (language, spellings) in SPELLINGS {
            for (n, spelling) in spellings.iter().enumerate() {
                let reply = edge.get("/x", &[("Accept-Language", spelling)]);
                assert_eq!(reply.text(), language.unwrap_or("none"), "{spelling}");
                if n > 0 {
                    assert_hit(&reply);
                }
            }
        }
        // Several Accept-Language lines form one list. Without the header, no language is
        // preferred.
        let lines = [
            ("Accept-Language", "fr"),
            ("accept-language", "de-CH;q=0.1"),
        ];
        assert_eq!(edge.get("/x", &lines).text(), "de");
        assert_hit(&edge.get("/x", &[]));
        assert_eq!(
            asked(&origin),
            once(&["de", "en", "none", "pt-BR"]),
            "{mode}"
        );
    }
}

// Many clients send requests before the first response has shown that Vary names Accept-Language.
// The origin receives one request per language.
#[test]
fn a_crowd_causes_one_fetch_per_language() {
    let latch = Latch::closed();
    let origin = speaking(Some(&latch));
    let edge = Setup::cached(&origin).cache(LANGUAGES).start();
    let spellings = SPELLINGS.iter().flat_map(|(language, spellings)| {
        let named = spellings.iter().filter(|spelling| !spelling.is_empty());
        named.map(|spelling| (language.unwrap_or("none"), *spelling))
    });
    let crowds: Vec<_> = spellings
        .enumerate()
        .map(|(n, (language, spelling))| {
            let field = [("Accept-Language", spelling)];
            (language, Crowd::beside(4 * n, &edge, 4, "/x", &field))
        })
        .collect();
    assert!(latch.wait_held(1, SOON));
    latch.release();
    for (language, crowd) in crowds {
        for reply in crowd.replies() {
            assert_eq!(reply.text(), language, "{}", cache_status(&reply));
        }
    }
    assert_eq!(asked(&origin), once(&["de", "en", "none", "pt-BR"]));
}

// `{header:Accept-Language}` in `key` inserts the reduced value, even if the origin sends no Vary.
#[test]
fn keys_contain_the_reduced_language() {
    let tell = |seen: &Seen| {
        let language = seen.header("accept-language").unwrap_or("none");
        Resource::bytes(language.to_owned()).cache_control("max-age=3600")
    };
    let origin = serving("/x", Resource::dynamic(tell));
    let edge = Setup::cached(&origin)
        .cache(LANGUAGES)
        .cache("key = \"{scheme}{host}{path}{query}{header:Accept-Language}\"")
        .start();
    for (language, spellings) in SPELLINGS {
        for spelling in spellings {
            let reply = edge.get("/x", &[("Accept-Language", spelling)]);
            assert_eq!(reply.text(), language.unwrap_or("none"), "{spelling}");
        }
    }
    assert_eq!(asked(&origin), once(&["de", "en", "none", "pt-BR"]));
}

// A HEAD request is sent to the origin. Its response updates the stored variant of the reduced
// language.
#[test]
fn a_head_affects_the_variant_of_its_language() {
    let origin = serving("/x", current().vary("Accept-Language"));
    let edge = Setup::cached(&origin)
        .cache(LANGUAGES)
        .cache("methods = [\"GET\"]")
        .start();
    let get = |language| edge.get("/x", &[("Accept-Language", language)]);
    get("de");
    get("en");
    origin.serve("/x", current().vary("Accept-Language").version(1));
    edge.ask("HEAD", "/x", &[("Accept-Language", "fr, de-AT;q=0.5")], b"");
    assert_hit(&get("en"));
    let reply = get("de");
    assert!(!cache_status(&reply).contains("hit"));
    reply.verify_version(1, 0).expect("the new one");
}

// The setting `languages` of a route replaces that of its cache, and `false` disables the reduction:
// the client's value is sent in its normal form.
#[test]
fn without_languages_the_normal_form_is_sent() {
    let origin = speaking(None);
    let text = Setup::cached(&origin).cache(LANGUAGES).text() + "languages = false\n";
    let edge = Setup::of_text(text).start();
    let own = "DE-ch , en;q=0.50";
    let normal = "de-ch,en;q=0.5";
    assert_eq!(edge.get("/x", &[("Accept-Language", own)]).text(), normal);
    assert_eq!(
        last_sent(&origin, "/x", "accept-language").as_deref(),
        Some(normal)
    );
    // Without reduction, a stored variant serves requests whose Accept-Language has the same
    // meaning, and no others.
    assert_hit(&edge.get("/x", &[("Accept-Language", "en;q=0.5,de-CH")]));
    assert_eq!(edge.get("/x", &[("Accept-Language", "de")]).text(), "de");
    assert_eq!(times(&origin, "/x"), 2);
}

// Without `languages`, too, the values of the headers that Vary names select the variant.
#[test]
fn inspect_marks_the_variant_that_the_given_headers_select() {
    for rules in ["", LANGUAGES] {
        let origin = speaking(None);
        let edge = Setup::cached(&origin).cache(rules).start();
        for language in ["de", "en"] {
            edge.get("/x", &[("Accept-Language", language)]);
        }
        let url = edge.url("/x");
        let shown = |header: &str| {
            let output = edge.command(&["inspect", &url, "-H", header]);
            String::from_utf8(output.stdout).expect("text")
        };
        let marked = |shown: &str| shown.matches("selected by the given headers").count();
        let german = shown("Accept-Language: de");
        assert_eq!(marked(&german), 1, "{german}");
        let english = shown("Accept-Language: en");
        assert!(marked(&english) == 1 && english != german, "{english}");
        let none = shown("Accept-Language: tlh");
        assert_eq!(marked(&none), 0, "{none}");
        assert!(none.contains("select none of these variants"), "{none}");
    }
}
