//! Plans `[cache.NAME]`: memory, fill modes and the budget of clients.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;

use super::disk_tier;
use super::volumes::Volumes;
use crate::config::checks::Checks;
use crate::config::file::CacheFile;
use crate::config::report::Problem;
use crate::config::value::{Ahead, Key, Named, Parallel, Size, show_size};
use crate::{cache, fill};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;
const HOUR: Duration = Duration::from_secs(3600);

/// Fewest slices for which a cache's memory should have room. A running request holds about two
/// slices for each of its fetches, so with less memory requests evict each other's slices.
const BLOCKS_MIN: u64 = 4;

/// Number of bytes of which a slice must be a multiple, since whole pages are stored and evicted.
const SLICE_STEP: u64 = 64 * KIB;

/// Returns the options of every cache.
pub fn plan(
    files: &Named<CacheFile>,
    volumes: &Volumes,
    checks: &mut Checks,
) -> BTreeMap<String, Arc<cache::Options>> {
    files
        .iter()
        .map(|(name, file)| {
            let options = options(file, volumes, checks);
            (name.get_ref().clone(), Arc::new(options))
        })
        .collect()
}

fn options(file: &CacheFile, volumes: &Volumes, checks: &mut Checks) -> cache::Options {
    let d = cache::Options::default();
    let memory = checks.within("memory", &file.memory, d.memory, 8 * MIB..=16 * TIB);
    let object = checks.within(
        "max_object_size",
        &file.max_object_size,
        d.max_object_size,
        0..=16 * TIB,
    );
    if let Some(typed) = file.max_object_size.as_ref().filter(|_| object > memory) {
        checks.push(
            Problem::error("`max_object_size` is larger than the cache's memory")
                .at(typed.span())
                .label(format!("memory is {}", show_size(memory)))
                .help("make `memory` larger or `max_object_size` smaller; 0 means a quarter of `memory`"),
        );
    }
    let fill = fill_options(file, checks);
    let options = cache::Options {
        disk_tier: disk_tier::plan(file, (memory, fill.block), volumes, checks),
        memory,
        evict: file.evict.unwrap_or(d.evict),
        fill,
        client_budget: client_budget(&file.client_budget, d.client_budget, checks),
        max_object_size: object,
    };
    without_effect(file, &options.fill, checks);
    beyond_budget(file, &options, checks);
    if matches!(options.fill.kind, fill::Kind::Slice | fill::Kind::Auto) {
        beyond_memory(file, &options, checks);
        never_whole(file, &options, checks);
    }
    options
}

/// Returns the budget of a client in bytes. In the file, 0 means no limit.
fn client_budget(key: &Key<Size>, default: u64, checks: &mut Checks) -> u64 {
    if key.as_ref().is_some_and(|size| size.get_ref().0 == 0) {
        return u64::MAX;
    }
    let none = ", or 0 for no limit";
    checks.within_or("client_budget", key, default, MIB..=TIB, none)
}

fn fill_options(file: &CacheFile, checks: &mut Checks) -> fill::Options {
    let d = fill::Options::default();
    fill::Options {
        kind: file.fill.unwrap_or_default(),
        block: slice(&file.slice, d.block, checks),
        parallel: parallel(&file.parallel, d.parallel, checks),
        lock_timeout: checks.within(
            "lock_timeout",
            &file.lock_timeout,
            d.lock_timeout,
            Duration::ZERO..=HOUR,
        ),
        lock_age: checks.within(
            "lock_age",
            &file.lock_age,
            d.lock_age,
            Duration::from_millis(10)..=24 * HOUR,
        ),
        read_ahead: read_ahead(&file.read_ahead, checks),
    }
}

fn slice(key: &Key<Size>, default: u64, checks: &mut Checks) -> u64 {
    let size = checks.within("slice", key, default, SLICE_STEP..=16 * MIB);
    let odd = size % SLICE_STEP;
    if let Some(typed) = key.as_ref().filter(|_| odd != 0) {
        checks.push(
            Problem::error("`slice` is not a multiple of 64 KiB")
                .at(typed.span())
                .label(format!("this is {} bytes", grouped(size)))
                .help(meant(size).unwrap_or_else(|| {
                    let below = show_size(size - odd);
                    let above = show_size(size - odd + SLICE_STEP);
                    format!("choose {below} or {above}; KiB and MiB are powers of 1024")
                })),
        );
    }
    size
}

/// Returns the advice for sizes such as `1MB`, which are probably meant as `1MiB`.
fn meant(size: u64) -> Option<String> {
    let units = [
        (1_000_000, MIB, "MB is", "MiB"),
        (1000, KIB, "kB is", "KiB"),
    ];
    units.into_iter().find_map(|(decimal, binary, what, unit)| {
        let (count, rest) = (size / decimal, size % decimal);
        (rest == 0 && (count * binary) % SLICE_STEP == 0).then(|| {
            let (decimal, binary) = (grouped(decimal), grouped(binary));
            format!("write \"{count}{unit}\": {what} {decimal} bytes, {unit} is {binary}")
        })
    })
}

/// Formats a number with separators: `1,000,000`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn parallel(key: &Key<Parallel>, default: usize, checks: &mut Checks) -> usize {
    let typed = key.as_ref().and_then(|typed| match typed.get_ref() {
        Parallel::Auto => None,
        Parallel::Count(n) => Some(Spanned::new(typed.span(), *n)),
    });
    checks.count("parallel", &typed, default, 1..=64)
}

fn read_ahead(key: &Key<Ahead>, checks: &mut Checks) -> fill::ReadAhead {
    let Some(typed) = key else {
        return fill::ReadAhead::None;
    };
    match typed.get_ref() {
        Ahead::None => fill::ReadAhead::None,
        Ahead::Whole => fill::ReadAhead::Whole,
        Ahead::Window(size) => {
            let size = Some(Spanned::new(typed.span(), *size));
            match checks.within("read_ahead", &size, 0, 0..=TIB) {
                0 => fill::ReadAhead::None,
                size => fill::ReadAhead::Window(size),
            }
        }
    }
}

/// Name of a key and its position in the file, if the key was written.
type KeyPosition = Option<(&'static str, Range<usize>)>;

fn at<T>(name: &'static str, key: &Key<T>) -> KeyPosition {
    key.as_ref().map(|typed| (name, typed.span()))
}

/// Warns about keys that have no effect under the chosen `fill`.
fn without_effect(file: &CacheFile, fill: &fill::Options, checks: &mut Checks) {
    let blocks = matches!(fill.kind, fill::Kind::Slice | fill::Kind::Auto);
    let lock = fill.kind == fill::Kind::Lock;
    let (of_blocks, of_lock) = ("`fill = \"slice\"` and `\"auto\"`", "`fill = \"lock\"`");
    let keys = [
        (blocks, of_blocks, at("parallel", &file.parallel)),
        (blocks, of_blocks, at("read_ahead", &file.read_ahead)),
        (lock, of_lock, at("lock_timeout", &file.lock_timeout)),
        (lock, of_lock, at("lock_age", &file.lock_age)),
    ];
    for (useful, fits, key) in keys {
        let Some((name, at)) = key.filter(|_| !useful) else {
            continue;
        };
        checks.push(
            Problem::warning(format!("`{name}` does nothing here"))
                .at(at)
                .label(format!("it belongs to {fits}"))
                .help("leave it out, or choose another `fill`"),
        );
    }
}

/// Warns about sizes larger than the budget of a client.
fn beyond_budget(file: &CacheFile, options: &cache::Options, checks: &mut Checks) {
    let window = match options.fill.read_ahead {
        fill::ReadAhead::Window(size) => size,
        fill::ReadAhead::None | fill::ReadAhead::Whole => 0,
    };
    let sizes = [
        (at("slice", &file.slice), options.fill.block),
        (at("read_ahead", &file.read_ahead), window),
    ];
    for (key, size) in sizes {
        let Some((name, at)) = key.filter(|_| size > options.client_budget) else {
            continue;
        };
        let budget = show_size(options.client_budget);
        checks.push(
            Problem::warning(format!("`{name}` is larger than `client_budget`"))
                .at(at)
                .label(format!(
                    "no more than {budget} is fetched ahead of a client"
                ))
                .help(format!("make `client_budget` at least {}", show_size(size))),
        );
    }
}

/// Warns about blocks too large for the cache's memory.
fn beyond_memory(file: &CacheFile, options: &cache::Options, checks: &mut Checks) {
    let (memory, block) = (options.memory, options.fill.block);
    let typed = at("slice", &file.slice).or(at("memory", &file.memory));
    if let Some((name, at)) = typed.filter(|_| block > memory / BLOCKS_MIN) {
        let (least, most) = (block * BLOCKS_MIN, memory / BLOCKS_MIN);
        checks.push(
            Problem::warning("`memory` has room for few slices")
                .at(at)
                .label(match name {
                    "slice" => format!("`memory` is {}", show_size(memory)),
                    _ => format!("`slice` is {}", show_size(block)),
                })
                .help(format!(
                    "a request keeps about two slices for each of its fetches: make `memory` at least {} or `slice` at most {}",
                    show_size(least),
                    show_size(most - most % SLICE_STEP)
                )),
        );
    }
}

/// Warns about `read_ahead = "whole"` if objects larger than a block may never be read ahead.
fn never_whole(file: &CacheFile, options: &cache::Options, checks: &mut Checks) {
    let block = options.fill.block;
    let object = match options.max_object_size {
        0 => options.memory / 4,
        object => object,
    };
    let whole = options.fill.read_ahead == fill::ReadAhead::Whole;
    let Some((_, at)) = at("read_ahead", &file.read_ahead).filter(|_| whole) else {
        return;
    };
    let (limit, help) = match options.client_budget < object {
        true => (
            options.client_budget,
            "make `client_budget` larger, or `slice` smaller",
        ),
        false => (
            object,
            "make `max_object_size` (by default a quarter of `memory`) larger, or `slice` smaller",
        ),
    };
    if limit <= block {
        let (limit, block) = (show_size(limit), show_size(block));
        checks.push(
            Problem::warning("`read_ahead` does nothing here")
                .at(at)
                .label(format!(
                    "objects of up to {limit} only, and a slice has {block}"
                ))
                .help(help),
        );
    }
}
