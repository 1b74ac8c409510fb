//! Plans `compress` of sites and routes.

use std::ops::Range;

use smallvec::SmallVec;
use toml::Spanned;

use crate::compress::{Levels, Options, Types};
use crate::config::checks::Checks;
use crate::config::file::{CompressFile, CompressForm, RouteFile};
use crate::config::report::Problem;
use crate::config::value::{Key, Names, show_size};
use crate::http::coding::Coding;

/// The key `compress`, as it was written.
pub type CompressKey = Key<CompressForm>;

/// Returns the compression of a route, if any. A route's key replaces its site's key as a whole.
/// Only files and cached responses are compressed: other routes ignore the site's key, and get a
/// warning for their own key.
pub fn plan(route: &RouteFile, of_site: &CompressKey, checks: &mut Checks) -> Option<Options> {
    let own = &route.compress;
    let is_stored = route.cache.is_some() || route.files.is_some();
    let plan = match (own, is_stored) {
        (Some(_), _) => one(own, checks),
        (None, true) => one(of_site, &mut Checks::default()),
        (None, false) => None,
    };
    if let Some(own) = own.as_ref().filter(|_| plan.is_some() && !is_stored) {
        checks.push(
            Problem::warning("`compress` does nothing here")
                .at(own.span())
                .label("the route has no cache, and only files and cached responses are compressed")
                .help("add `cache = \"NAME\"` with the name of a [cache.NAME], or leave this out"),
        );
    }
    plan.filter(|_| is_stored)
}

/// Returns the options in one key, or `None` if the key is missing or turns compression off.
pub fn one(key: &CompressKey, checks: &mut Checks) -> Option<Options> {
    let at = key.as_ref()?.span();
    let CompressForm::On(typed) = key.as_ref()?.get_ref() else {
        return None;
    };
    let d = Options::default();
    let memory = checks.within("memory", &typed.memory, d.memory, 1 << 20..=1 << 50);
    let options = Options {
        encodings: codings(typed.encodings.as_ref(), at, checks).unwrap_or(d.encodings),
        types: types(typed.types.as_ref(), checks).unwrap_or(d.types),
        min: checks.within("min", &typed.min, d.min, 1..=1 << 30),
        max: checks.within("max", &typed.max, d.max.min(memory / 4), 1..=1 << 30),
        levels: levels(typed, checks),
        memory,
        request_identity: typed.request_identity.unwrap_or(d.request_identity),
    };
    sizes(typed, &options, checks);
    (!options.encodings.is_empty()).then_some(options)
}

/// Parses `encodings`. `at` is the position of the whole value in the file, for a name that has no
/// position of its own.
fn codings(
    key: Option<&Names>,
    at: Range<usize>,
    checks: &mut Checks,
) -> Option<SmallVec<[Coding; 3]>> {
    let mut codings = SmallVec::new();
    for name in key?.get_ref() {
        let at = match name.span() {
            span if span.is_empty() => at.clone(),
            span => span,
        };
        match Coding::named(name.get_ref().as_bytes()) {
            Some(coding) if !codings.contains(&coding) => codings.push(coding),
            Some(_) => checks.push(
                Problem::error("duplicate encoding")
                    .at(at)
                    .help("name each encoding once, in order of preference"),
            ),
            None => checks.push(
                Problem::error("unknown encoding")
                    .at(at)
                    .help("write \"zstd\", \"br\" or \"gzip\""),
            ),
        }
    }
    Some(codings)
}

fn types(key: Option<&Names>, checks: &mut Checks) -> Option<Types> {
    let typed = key?.get_ref();
    for pattern in typed {
        if Types::of([pattern.get_ref().as_str()]).is_none() {
            checks.push(
                Problem::error("this is not a media type")
                    .at(pattern.span())
                    .help("write one without parameters, as in \"text/html\", \"text/*\" or \"*+json\""),
            );
        }
    }
    Types::of(typed.iter().map(|pattern| pattern.get_ref().as_str()))
}

fn levels(typed: &CompressFile, checks: &mut Checks) -> Levels {
    let d = Levels::default();
    let mut level = |name: &str, key: &Key<u64>, default: u32, least: u64, most: u64| {
        checks.within(name, key, u64::from(default), least..=most) as u32
    };
    Levels {
        gzip: level("gzip_level", &typed.gzip_level, d.gzip, 1, 9),
        brotli: level("br_level", &typed.br_level, d.brotli, 0, 11),
        zstd: level("zstd_level", &typed.zstd_level, d.zstd, 1, 19),
    }
}

/// Reports sizes that exclude all content, and warns about sizes that exclude more content than
/// intended.
fn sizes(typed: &CompressFile, options: &Options, checks: &mut Checks) {
    let of_memory = options.memory / 4;
    if let Some(max) = typed.max.as_ref().filter(|_| options.max > of_memory) {
        checks.push(
            Problem::warning("`max` has no effect")
                .at(max.span())
                .label(format!("`memory` makes this {}", show_size(of_memory)))
                .help("content may be as long as a quarter of `memory`: give it more, or make this smaller"),
        );
    }
    let at = typed.min.as_ref().or(typed.max.as_ref()).map(Spanned::span);
    if let Some(at) = at.filter(|_| options.sizes().is_empty()) {
        checks.push(
            Problem::error("`min` is larger than `max`")
                .at(at)
                .label(format!(
                    "`min` is {}, `max` is {}",
                    show_size(options.min),
                    show_size(*options.sizes().end())
                ))
                .help("make `min` smaller or `max` larger"),
        );
    }
}
