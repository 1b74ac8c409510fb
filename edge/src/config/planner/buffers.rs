//! Plans `[buffers]`, and the keys of routes that buffer bodies.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;

use crate::config::checks::Checks;
use crate::config::file::{BuffersFile, RouteFile};
use crate::config::report::Problem;
use crate::config::value::show_size;
use crate::spool::{Buffered, DiskOptions, Options};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const PIB: u64 = 1 << 50;

/// Returns the options of buffers.
pub fn plan(file: &BuffersFile, checks: &mut Checks) -> Options {
    let memory = checks.within("memory", &file.memory, Options::default().memory, MIB..=PIB);
    Options {
        memory,
        disk: disk(file, memory, checks),
    }
}

/// Returns the options of temporary files, if there is a folder for them.
fn disk(file: &BuffersFile, memory: u64, checks: &mut Checks) -> Option<DiskOptions> {
    let Some(folder) = &file.folder else {
        without_folder(file, checks);
        return None;
    };
    let path = folder.get_ref();
    if path.is_empty() || path.contains('\0') {
        checks.push(
            Problem::error("`folder` is not a path")
                .at(folder.span())
                .help("name a folder on a disk, as in \"/var/tmp\""),
        );
    }
    let default = DiskOptions::new(PathBuf::from(path));
    let times = Duration::from_millis(1)..=Duration::from_secs(3600);
    let options = DiskOptions {
        memory_per_body: checks.within(
            "memory_per_body",
            &file.memory_per_body,
            default.memory_per_body,
            64 * KIB..=64 * MIB,
        ),
        bytes: checks.within("disk", &file.disk, default.bytes, MIB..=PIB),
        bytes_per_body: checks.within(
            "disk_per_body",
            &file.disk_per_body,
            default.bytes_per_body,
            MIB..=PIB,
        ),
        timeout: checks.within("disk_timeout", &file.disk_timeout, default.timeout, times),
        folder: default.folder,
    };
    halves(file, memory, &options, checks);
    Some(options)
}

/// Warns about limits of one body that exceed what one client gets.
fn halves(file: &BuffersFile, memory: u64, options: &DiskOptions, checks: &mut Checks) {
    let limits = [
        (
            "memory_per_body",
            file.memory_per_body.as_ref().map(Spanned::span),
            options.memory_per_body,
            ("memory", memory),
        ),
        (
            "disk_per_body",
            file.disk_per_body.as_ref().map(Spanned::span),
            options.bytes_per_body,
            ("disk", options.bytes),
        ),
    ];
    for (name, at, of_body, (whole, of_all)) in limits {
        if let Some(at) = at
            && of_body > of_all / 2
        {
            checks.push(
                Problem::warning(format!("`{name}` is more than a client gets"))
                    .at(at)
                    .label(format!("half of `{whole}` is {}", show_size(of_all / 2)))
                    .help(format!("make it smaller, or `{whole}` larger")),
            );
        }
    }
}

/// Warns about keys that need a folder.
fn without_folder(file: &BuffersFile, checks: &mut Checks) {
    let sizes = [
        ("memory_per_body", &file.memory_per_body),
        ("disk", &file.disk),
        ("disk_per_body", &file.disk_per_body),
    ];
    let sizes = sizes.map(|(name, key)| (name, key.as_ref().map(Spanned::span)));
    let timeout = file.disk_timeout.as_ref().map(Spanned::span);
    for (name, at) in sizes.into_iter().chain([("disk_timeout", timeout)]) {
        if let Some(at) = at {
            let help = "add `folder = \"/var/tmp\"`, a folder on a disk, or leave it out";
            idle(
                name,
                at,
                "bodies are only in memory, without `folder`",
                help,
                checks,
            );
        }
    }
}

/// Returns which bodies of a route are buffered.
pub fn of_route(route: &RouteFile, checks: &mut Checks) -> Buffered {
    for (name, key) in [
        ("request_buffering", &route.request_buffering),
        ("response_buffering", &route.response_buffering),
    ] {
        if let Some(key) = key
            && route.proxy.is_none()
        {
            let label = "the route has no `proxy`";
            idle(name, key.span(), label, "leave it out", checks);
        }
    }
    if let (Some(key), true, true) = (
        &route.response_buffering,
        route.proxy.is_some(),
        route.cache.is_some(),
    ) {
        let help = "leave it out, and write `read_ahead` in [cache.NAME] to have more fetched ahead of a slow client";
        idle(
            "response_buffering",
            key.span(),
            "the route has a cache, which reads responses itself",
            help,
            checks,
        );
    }
    let is_on = |key: &Option<Spanned<bool>>| key.as_ref().is_some_and(|key| *key.get_ref());
    Buffered {
        requests: is_on(&route.request_buffering),
        responses: is_on(&route.response_buffering) && route.cache.is_none(),
    }
}

fn idle(name: &str, at: Range<usize>, label: &str, help: &str, checks: &mut Checks) {
    checks.push(
        Problem::warning(format!("`{name}` does nothing here"))
            .at(at)
            .label(label)
            .help(help),
    );
}
