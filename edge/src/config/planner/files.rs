//! Plans `files` of a route.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;

use crate::config::checks::Checks;
use crate::config::file::{FilesFile, Symlinks};
use crate::config::lints::variables;
use crate::config::report::Problem;
use crate::config::value::{Key, Names, OrFalse, OrTable, Word};
use crate::files::Options;
use crate::http::fields::is_field_value;
use crate::sys::root::Links;

const MS: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Returns the options of a folder.
pub fn plan(files: &Spanned<OrTable<FilesFile>>, checks: &mut Checks) -> Options {
    let typed = &files.get_ref().0;
    let d = Options::default();
    let memory = checks.within("memory", &typed.memory, d.memory, 1 << 20..=1 << 50);
    // Memory is divided into shards, and a file that fills most of a shard would be evicted at
    // once.
    let small_max = (memory / 64).min(16 << 20);
    let links = typed.symlinks.as_ref().map(|typed| *typed.get_ref());
    Options {
        root: root(files, checks),
        strip_prefix: strip(&typed.strip_prefix, checks),
        index: names(typed.index.as_ref(), checks).unwrap_or(d.index),
        try_files: try_files(typed.try_files.as_ref(), checks).unwrap_or(d.try_files),
        symlinks: match links {
            Some(OrFalse::False) => Links::None,
            None | Some(OrFalse::On(Word(Symlinks::Within))) => Links::Within,
            Some(OrFalse::On(Word(Symlinks::Any))) => Links::Any,
        },
        hidden: typed.hidden.unwrap_or(d.hidden),
        types: types(typed, checks),
        charset: charset(&typed.charset, d.charset, checks),
        recheck: checks.within("recheck", &typed.recheck, d.recheck, MS..=DAY),
        memory,
        max_memory_file: checks.within(
            "max_memory_file",
            &typed.max_memory_file,
            d.max_memory_file.min(small_max),
            0..=small_max,
        ),
        open_files: checks.within("open_files", &typed.open_files, d.open_files, 1..=1_000_000),
        precompressed: typed.precompressed.unwrap_or(d.precompressed),
    }
}

fn root(files: &Spanned<OrTable<FilesFile>>, checks: &mut Checks) -> PathBuf {
    let Some(root) = &files.get_ref().0.root else {
        checks.push(
            Problem::error("`files` without a folder")
                .at(files.span())
                .help("add `root = \"/srv/www\"`"),
        );
        return PathBuf::new();
    };
    let at = match root.span() {
        span if span.is_empty() => files.span(),
        span => span,
    };
    let path = PathBuf::from(root.get_ref());
    let wrong = match () {
        () if root.get_ref().is_empty() => "it is empty",
        () if root.get_ref().contains('\0') => "paths have no NUL character",
        () => return path,
    };
    checks.push(
        Problem::error("this is not a folder")
            .at(at)
            .label(wrong)
            .help("write the path of a folder, as in \"/srv/www\""),
    );
    path
}

fn strip(key: &Key<String>, checks: &mut Checks) -> String {
    let Some(typed) = key else {
        return String::new();
    };
    let strip = typed.get_ref().trim_end_matches('/');
    if !typed.get_ref().starts_with('/') {
        checks.push(
            Problem::error("`strip_prefix` is not the beginning of a path")
                .at(typed.span())
                .help("begin it with a slash, as in \"/static\""),
        );
    }
    strip.to_owned()
}

/// Returns the paths of `try_files`.
fn try_files(key: Option<&Names>, checks: &mut Checks) -> Option<Vec<String>> {
    for name in key.iter().flat_map(|typed| typed.get_ref()) {
        variables::check(name, &["path"], checks);
        let status = name.get_ref().strip_prefix('=');
        if status.is_some_and(|status| status.parse::<u16>().is_ok()) {
            checks.push(
                Problem::warning(format!("`{}` is the name of a file here", name.get_ref()))
                    .at(name.span())
                    .label("a path that names nothing gets 404 anyway")
                    .help("leave it out; `error_pages` sets the page"),
            );
        }
    }
    names(key, checks)
}

/// Returns a list of names relative to the root, such as index files.
fn names(key: Option<&Names>, checks: &mut Checks) -> Option<Vec<String>> {
    let typed = key?;
    for name in typed.get_ref() {
        let mut parts = name.get_ref().split('/');
        let leads_out = parts.any(|part| part == "..") || name.get_ref().contains('\0');
        if leads_out || name.get_ref().is_empty() {
            checks.push(
                Problem::error("this is not a path below the folder")
                    .at(name.span())
                    .help("write one as in \"index.html\", \"/404.html\" or \"{path}.html\""),
            );
        }
    }
    let names = typed.get_ref().iter().map(|name| name.get_ref().clone());
    Some(names.collect())
}

fn types(typed: &FilesFile, checks: &mut Checks) -> BTreeMap<String, String> {
    let mut types = BTreeMap::new();
    for (extension, media_type) in typed.types.iter().flatten() {
        let value = media_type.get_ref();
        if !value.contains('/') || !is_field_value(value.as_bytes()) {
            checks.push(
                Problem::error("this is not a media type")
                    .at(media_type.span())
                    .help("write one as in \"text/html; charset=utf-8\""),
            );
        }
        let extension = extension.get_ref().trim_start_matches('.');
        types.insert(extension.to_ascii_lowercase(), value.clone());
    }
    types
}

fn charset(
    key: &Key<OrFalse<String>>,
    default: Option<String>,
    checks: &mut Checks,
) -> Option<String> {
    let Some(typed) = key else {
        return default;
    };
    let charset = typed.get_ref().on()?;
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-_.:+".contains(&b);
    if charset.is_empty() || !charset.bytes().all(is_name) {
        checks.push(
            Problem::error("this is not a charset")
                .at(typed.span())
                .help("write \"utf-8\", or false"),
        );
    }
    Some(charset.clone())
}
