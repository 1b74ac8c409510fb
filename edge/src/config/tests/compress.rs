//! Tests of `compress`: accepted forms, and the errors and warnings about it.

use super::*;
use crate::compress::Options;
use crate::http::coding::Coding;

/// Returns a site with two routes: a cached one and one without cache. `site` has keys of the site,
/// `route` keys of the cached route, and `uncached` keys of the other one.
fn sites(site: &str, route: &str, uncached: &str) -> String {
    format!(
        "[upstream.o]\nservers = [\"http://a\"]\n[cache.c]\n[[site]]\n{site}\n[[site.route]]\n\
         path = \"/a/*\"\nproxy = \"o\"\ncache = \"c\"\n{route}\n[[site.route]]\nproxy = \"o\"\n{uncached}\n"
    )
}

/// Returns the compression of the cached route.
fn compress(site: &str, route: &str) -> Option<Options> {
    let plan = plan(&sites(site, route, ""));
    assert_eq!(plan.sites[0].routes[1].compress, None);
    plan.sites[0].routes[0].compress.clone()
}

#[test]
fn a_list_is_short_for_a_table_and_the_route_wins() {
    let list = "compress = [\"br\", \"GZIP\"]";
    let expected = Options {
        encodings: [Coding::Brotli, Coding::Gzip].into_iter().collect(),
        ..Options::default()
    };
    assert_eq!(compress("", ""), None);
    assert_eq!(compress("", list), Some(expected.clone()));
    assert_eq!(compress(list, ""), Some(expected.clone()));
    assert_eq!(compress(list, "compress = false"), None);
    assert_eq!(compress(list, "compress = true"), Some(Options::default()));
    let table = "compress = { encodings = [\"br\", \"gzip\"] }";
    assert_eq!(compress("", table), Some(expected));
    let full = compress(
        "",
        "[site.route.compress]\ntypes = [\"text/*\", \"*+json\"]\nmin = 100\nmax = \"1MiB\"\n\
         gzip_level = 9\nbr_level = 11\nzstd_level = 19\nmemory = \"16MiB\"\nrequest_identity = true",
    );
    let full = full.expect("it compresses");
    assert_eq!((full.min, full.max, full.memory), (100, 1 << 20, 16 << 20));
    assert_eq!(
        (full.levels.gzip, full.levels.brotli, full.levels.zstd),
        (9, 11, 19)
    );
    assert!(full.request_identity && full.types.matches(b"a/b+json"));
}

#[test]
fn errors_are_explained() {
    for (key, title) in [
        ("compress = \"off\"", "written `false` now"),
        ("compress = []", "an empty list has no effect"),
        ("compress = 5", "invalid type"),
        ("compress = [\"deflate\"]", "unknown encoding"),
        ("compress = [\"br\", \"br\"]", "duplicate encoding"),
        (
            "compress = { types = [\"*/*\"] }",
            "this is not a media type",
        ),
        (
            "compress = { gzip_level = 10 }",
            "`gzip_level` is out of bounds",
        ),
        (
            "compress = { zstd_level = 20 }",
            "`zstd_level` is out of bounds",
        ),
        ("compress = { level = 1 }", "unknown key `level`"),
        (
            "compress = { min = \"1MiB\", max = \"1KiB\" }",
            "`min` is larger than `max`",
        ),
        ("compress = { max = \"32MiB\" }", "`max` has no effect"),
    ] {
        for text in [sites("", key, ""), sites(key, "", "")] {
            let said = said(&text);
            assert_eq!(said.matches(title).count(), 1, "{key}: {said}");
        }
    }
    let good = said(&sites("compress = [\"gzip\"]", "", ""));
    assert_eq!(good.trim(), "");
    let nowhere = said(&sites("", "", "compress = [\"gzip\"]"));
    assert!(
        nowhere.contains("`compress` does nothing here"),
        "{nowhere}"
    );
    assert!(nowhere.contains("the route has no cache"), "{nowhere}");
    let off = said(&sites("compress = [\"br\"]", "", "compress = false"));
    assert_eq!(off.trim(), "");
}

#[test]
fn compression_is_described() {
    let plan = plan(&sites("", "compress = [\"gzip\", \"zstd\"]", ""));
    let text = describe(&plan);
    let line = "    compressed with gzip 6, zstd 11: from 1 KiB to 8 MiB, in 64 MiB of memory\n";
    assert!(text.contains(line), "{text}");
}
