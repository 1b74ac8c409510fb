//! Plans the keys of `[cache.NAME]` that concern volumes.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;

use super::names;
use super::volumes::Volumes;
use crate::config::checks::Checks;
use crate::config::file::{CacheFile, VolumeFile};
use crate::config::plan::segment_of;
use crate::config::report::Problem;
use crate::config::suggestions::did_you_mean;
use crate::config::value::{Named, Names, YEAR, show_count, show_size};
use crate::store::disk_tier::{Admit, Options, Placement, PlacementKind};
use crate::sys::disk::path_info::Kind;

const TIB: u64 = 1 << 40;
/// Largest weight of a volume.
const WEIGHT_MAX: u64 = 1000;

/// Returns the options of a cache's volumes. `memory` is the size of its memory, `slice` the size
/// of its blocks.
pub fn plan(
    file: &CacheFile,
    (memory, slice): (u64, u64),
    volumes: &Volumes,
    checks: &mut Checks,
) -> Options {
    let sizes = 0..=16 * TIB;
    let names = volume_names(file.volumes.as_ref(), volumes, checks);
    let placement = Placement {
        kind: placement(file, names.len(), checks),
        weights: weights(file, checks),
    };
    let options = Options {
        volumes: names,
        placement,
        inactive: checks.within(
            "inactive",
            &file.inactive,
            Duration::ZERO,
            Duration::ZERO..=10 * YEAR,
        ),
        admit: match checks.within("min_uses", &file.min_uses, 1, 1..=2) {
            2 => Admit::Second,
            _ => Admit::All,
        },
        admit_min: checks.within("admit_min", &file.admit_min, 0, sizes.clone()),
        admit_max: checks.within("admit_max", &file.admit_max, 0, sizes),
    };
    if options.volumes.is_empty() {
        without_volumes(file, checks);
        return options;
    }
    weighed(file, &options, checks);
    nothing_admitted(file, &options, checks);
    too_large(file, slice, &options, volumes, checks);
    one_disk(file, &options, volumes, checks);
    long_queue(file, memory, &options, volumes, checks);
    options
}

/// Warns about volumes that no cache uses.
pub fn unused(files: &Named<VolumeFile>, used: impl Fn(&str) -> bool, checks: &mut Checks) {
    for name in files.keys().filter(|name| !used(name.get_ref())) {
        checks.push(
            Problem::warning(format!(
                "volume `{}` is not used by any cache",
                name.get_ref()
            ))
            .at(name.span())
            .label("its space is allocated all the same")
            .help(format!(
                "leave it out, or add `volumes = [\"{}\"]` to a cache",
                name.get_ref()
            )),
        );
    }
}

fn volume_names(key: Option<&Names>, volumes: &Volumes, checks: &mut Checks) -> Vec<String> {
    let Some(typed) = key else {
        return Vec::new();
    };
    names::few("volumes", typed.get_ref().len(), typed.span(), checks);
    let mut found: Vec<String> = Vec::new();
    for entry in typed.get_ref() {
        let name = entry.get_ref();
        if !volumes.options.contains_key(name) {
            checks.push(unknown(name, volumes).at(entry.span()));
        } else if found.contains(name) {
            checks.push(
                Problem::error(format!("volume `{name}` is listed twice"))
                    .at(entry.span())
                    .help("for a larger share of objects, set `weights`"),
            );
        }
        found.push(name.clone());
    }
    found
}

fn unknown(name: &str, volumes: &Volumes) -> Problem {
    let known = || volumes.options.keys().map(String::as_str);
    let help = match did_you_mean(name, known()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => {
            format!("add it:\n[volume.{name}]\npath = \"/mnt/disk1/sluice.vol\"\nsize = \"5GiB\"")
        }
    };
    Problem::error(format!("there is no volume `{name}`")).help(help)
}

fn placement(file: &CacheFile, volumes: usize, checks: &mut Checks) -> PlacementKind {
    let Some(typed) = &file.placement else {
        return match volumes {
            0 | 1 => PlacementKind::Single,
            _ => PlacementKind::Hash,
        };
    };
    let kind = typed.get_ref().0;
    let problem = match (kind, volumes) {
        (PlacementKind::Single, 2..) => Problem::error("\"single\" allows one volume only")
            .label(format!("this cache has {volumes}"))
            .help("write \"hash\", \"stripe\" or \"mirror\", or name only one volume"),
        (PlacementKind::Mirror, 1) => Problem::error("\"mirror\" needs two volumes")
            .label("this cache has one")
            .help("name another one in `volumes`, on another disk, or write \"single\""),
        (PlacementKind::Hash | PlacementKind::Stripe, 1) => {
            Problem::warning("`placement` does nothing here")
                .label("this cache has one volume")
                .help("remove it, or name more `volumes`")
        }
        _ => return kind,
    };
    checks.push(problem.at(typed.span()));
    kind
}

fn weights(file: &CacheFile, checks: &mut Checks) -> Vec<u32> {
    let Some(typed) = &file.weights else {
        return Vec::new();
    };
    let entries = typed.get_ref().iter().take(names::ENTRIES_MAX);
    entries
        .map(|entry| checks.within("weights", &Some(entry.clone()), 1, 1..=WEIGHT_MAX) as u32)
        .collect()
}

/// Checks that there is one weight per volume, and that the placement uses weights.
fn weighed(file: &CacheFile, options: &Options, checks: &mut Checks) {
    let Some(typed) = &file.weights else {
        return;
    };
    let (weights, volumes) = (typed.get_ref().len(), options.volumes.len());
    let problem = match options.placement.kind {
        PlacementKind::Hash if weights == volumes => return,
        PlacementKind::Hash => Problem::error("`weights` and `volumes` do not match")
            .label(format!(
                "{} for {}",
                show_count(weights as u64, "weight"),
                show_count(volumes as u64, "volume")
            ))
            .help("give each volume one weight, in the same order"),
        PlacementKind::Single | PlacementKind::Stripe | PlacementKind::Mirror => {
            Problem::error("`weights` are for `placement = \"hash\"`")
                .label("other placements ignore shares")
                .help("leave them out, or write `placement = \"hash\"`")
        }
    };
    checks.push(problem.at(typed.span()));
}

/// Warns about keys for volumes in a cache without volumes.
fn without_volumes(file: &CacheFile, checks: &mut Checks) {
    if file
        .volumes
        .as_ref()
        .is_some_and(|typed| !typed.get_ref().is_empty())
    {
        return;
    }
    let keys: [(&str, Option<Range<usize>>); 6] = [
        ("placement", file.placement.as_ref().map(Spanned::span)),
        ("weights", file.weights.as_ref().map(Spanned::span)),
        ("inactive", file.inactive.as_ref().map(Spanned::span)),
        ("min_uses", file.min_uses.as_ref().map(Spanned::span)),
        ("admit_min", file.admit_min.as_ref().map(Spanned::span)),
        ("admit_max", file.admit_max.as_ref().map(Spanned::span)),
    ];
    for (name, at) in keys {
        let Some(at) = at else { continue };
        checks.push(
            Problem::warning(format!("`{name}` does nothing here"))
                .at(at)
                .label("this cache has no `volumes`")
                .help("leave it out, or name volumes, as in `volumes = [\"disk1\"]`"),
        );
    }
}

fn nothing_admitted(file: &CacheFile, options: &Options, checks: &mut Checks) {
    let typed = file.admit_max.as_ref().or(file.admit_min.as_ref());
    let never = options.admit_max != 0 && options.admit_max < options.admit_min;
    if let Some(typed) = typed.filter(|_| never) {
        checks.push(
            Problem::error("`admit_max` is smaller than `admit_min`")
                .at(typed.span())
                .label("nothing would be written")
                .help("make `admit_max` larger, or 0 for no limit"),
        );
    }
}

/// Warns about blocks that are larger than a volume's segment or queue.
fn too_large(
    file: &CacheFile,
    slice: u64,
    options: &Options,
    volumes: &Volumes,
    checks: &mut Checks,
) {
    let at = file.slice.as_ref().map(Spanned::span);
    let Some(at) = at.or(file.volumes.as_ref().map(Names::span)) else {
        return;
    };
    let its = options
        .volumes
        .iter()
        .filter_map(|name| volumes.options.get(name));
    for volume in its {
        let all = volumes.places.get(&volume.name).map(|place| place.kind);
        let segment = match (volume.size, all) {
            (0, Some(Kind::Block(bytes))) => segment_of(&crate::volume::Options {
                size: bytes,
                ..volume.clone()
            }),
            _ => segment_of(volume),
        };
        // Segments and slices are multiples of the same step. A segment that is larger than a slice
        // therefore also has room for a record's head and the segment's table.
        let (how_much, what, most, then) = match () {
            () if slice >= segment => ("no", "segment", segment, "are never written to it"),
            () if slice > volume.queue => {
                let then = "are not written while other data waits in the queue";
                ("little", "queue", volume.queue, then)
            }
            () => continue,
        };
        checks.push(
            Problem::warning(format!(
                "volume `{}` has {how_much} room for blocks",
                volume.name
            ))
            .at(at.clone())
            .label(format!(
                "`slice` is {}, its `{what}` {}",
                show_size(slice),
                show_size(most)
            ))
            .help(format!(
                "make its `{what}` larger, or `slice` smaller: blocks of that size {then}"
            )),
        );
    }
}

/// Warns about queues that are too large for the cache's memory, which holds the queued data.
fn long_queue(
    file: &CacheFile,
    memory: u64,
    options: &Options,
    volumes: &Volumes,
    checks: &mut Checks,
) {
    let at = file.memory.as_ref().map(Spanned::span);
    let Some(at) = at.or(file.volumes.as_ref().map(Names::span)) else {
        return;
    };
    let its = options.volumes.iter();
    let queues = its.filter_map(|name| Some(volumes.options.get(name)?.queue));
    let queues: u64 = queues.sum();
    if queues > memory / 2 {
        checks.push(
            Problem::warning("`memory` is small for the queues of these volumes")
                .at(at)
                .label(format!(
                    "up to {} may wait to be written",
                    show_size(queues)
                ))
                .help(format!(
                    "make `memory` at least {}, or each volume's `queue` smaller",
                    show_size(2 * queues)
                )),
        );
    }
}

/// Warns about mirrored volumes on a single file system.
fn one_disk(file: &CacheFile, options: &Options, volumes: &Volumes, checks: &mut Checks) {
    let Some(typed) = file.volumes.as_ref() else {
        return;
    };
    if options.placement.kind != PlacementKind::Mirror {
        return;
    }
    let its = options.volumes.iter();
    let file_system = |name: &String| {
        let place = volumes.places.get(name)?;
        let is_file = matches!(place.kind, Kind::Nothing | Kind::File(_));
        is_file.then_some(place.file_system)
    };
    // A mirror stores each object on a volume and on the next volume in the list.
    let next = its.clone().cycle().skip(1);
    let together = its.zip(next).find(|(one, next)| {
        one != next && file_system(one).is_some_and(|its| file_system(next) == Some(its))
    });
    if let Some((one, next)) = together {
        let title = match options.volumes.len() {
            2 => "both copies are on one disk",
            _ => "both copies of some objects are on one disk",
        };
        checks.push(
            Problem::warning(title)
                .at(typed.span())
                .label(format!("`{one}` and `{next}` are on one file system"))
                .help("put each on its own disk; on one disk, one volume with \"single\" stores twice as much"),
        );
    }
}
