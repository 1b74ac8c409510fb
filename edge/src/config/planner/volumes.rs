//! Plans `[volume.NAME]`, and compares the sections with the files and devices at their paths.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;

use crate::config::checks::Checks;
use crate::config::file::VolumeFile;
use crate::config::report::Problem;
use crate::config::value::{Named, show_size};
use crate::sys::disk::path_info::{Kind, PathInfo};
use crate::volume::{self, Options, SEGMENT_MAX, SEGMENTS_MAX, SEGMENTS_MIN, SIZE_MAX, SIZE_MIN};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Returns what exists at a path, or `None` if paths must not be examined.
pub type Examine<'a> = &'a dyn Fn(&Path) -> Option<PathInfo>;

/// The options of all volumes, and what exists at their paths.
#[derive(Debug, Default)]
pub struct Volumes {
    /// Options of each volume, by its name.
    pub options: BTreeMap<String, Options>,
    /// File or device at the path of each volume, by the volume's name. Empty if paths were not
    /// examined.
    pub places: BTreeMap<String, PathInfo>,
}

/// Returns the options of all volumes.
pub fn plan(files: &Named<VolumeFile>, examine_path: Examine<'_>, checks: &mut Checks) -> Volumes {
    let mut volumes = Volumes::default();
    let mut paths = Paths::default();
    for (name, file) in files {
        let path = path(name, file, checks);
        let place = path.as_ref().and_then(|(path, _)| examine_path(path));
        let options = options(name, file, &path, place.as_ref(), checks);
        if let Some((path, at)) = path {
            paths.add(name.get_ref(), &path, place.as_ref(), at.clone(), checks);
            if let Some(place) = &place {
                reachable(&path, place, at.clone(), checks);
                paths.take_space(&options, place, at, checks);
            }
        }
        let name = name.get_ref();
        volumes.options.insert(name.clone(), options);
        volumes
            .places
            .extend(place.map(|place| (name.clone(), place)));
    }
    volumes
}

fn options(
    name: &Spanned<String>,
    file: &VolumeFile,
    path: &Option<(PathBuf, Range<usize>)>,
    place: Option<&PathInfo>,
    checks: &mut Checks,
) -> Options {
    let size = size(name, file, place, checks);
    let options = Options {
        name: name.get_ref().clone(),
        path: path.as_ref().map_or(PathBuf::new(), |(p, _)| p.clone()),
        size,
        segment: checks.within("segment", &file.segment, 0, 0..=SEGMENT_MAX),
        queue: checks.within("queue", &file.queue, 32 * MIB, MIB..=4 * GIB),
        write_delay: checks.within(
            "write_delay",
            &file.write_delay,
            50 * MS,
            Duration::ZERO..=10_000 * MS,
        ),
        readers: checks.count("readers", &file.readers, 4, 1..=256),
        read_timeout: checks.within("read_timeout", &file.read_timeout, 1000 * MS, MS..=HOUR),
        retry: checks.within("retry", &file.retry, 10_000 * MS, 100 * MS..=24 * HOUR),
        overwrite: file.overwrite.unwrap_or_default(),
    };
    let bytes = match (size, place.map(|place| place.kind)) {
        (0, Some(Kind::Block(bytes))) => bytes,
        (size, _) => size,
    };
    segment(file, options.segment, bytes, checks);
    options
}

fn path(
    name: &Spanned<String>,
    file: &VolumeFile,
    checks: &mut Checks,
) -> Option<(PathBuf, Range<usize>)> {
    let Some(typed) = &file.path else {
        checks.push(
            Problem::error(format!("volume `{}` has no path", name.get_ref()))
                .at(name.span())
                .help(
                    "add `path = \"/mnt/disk1/sluice.vol\"`, a file of its own or a block device",
                ),
        );
        return None;
    };
    let text = typed.get_ref();
    if text.is_empty() || text.contains('\0') {
        checks.push(
            Problem::error("`path` is not a path")
                .at(typed.span())
                .help("name a file, as in \"/mnt/disk1/sluice.vol\", or a block device"),
        );
        return None;
    }
    Some((PathBuf::from(text), typed.span()))
}

/// Returns the size in bytes. 0 means the whole block device.
fn size(
    name: &Spanned<String>,
    file: &VolumeFile,
    place: Option<&PathInfo>,
    checks: &mut Checks,
) -> u64 {
    let device = place.and_then(|place| match place.kind {
        Kind::Block(bytes) => Some(bytes),
        _ => None,
    });
    match (&file.size, device) {
        (None, Some(_)) => 0,
        (None, None) => {
            checks.push(
                Problem::error(format!("volume `{}` has no size", name.get_ref()))
                    .at(name.span())
                    .help("add `size = \"5GiB\"`; only that of a block device may be left out"),
            );
            0
        }
        (Some(typed), device) => {
            let size = checks.within("size", &file.size, 0, SIZE_MIN..=SIZE_MAX);
            if let Some(bytes) = device.filter(|bytes| *bytes != 0 && *bytes < size) {
                checks.push(
                    Problem::error("the device is smaller than `size`")
                        .at(typed.span())
                        .label(format!("it has {}", show_size(bytes)))
                        .help("make `size` smaller, or leave it out for all of the device"),
                );
            }
            size
        }
    }
}

/// Checks `segment`. `size` is the volume's size in bytes, 0 if unknown.
fn segment(file: &VolumeFile, segment: u64, size: u64, checks: &mut Checks) {
    let Some(typed) = file.segment.as_ref().filter(|_| segment != 0) else {
        return;
    };
    let help = "choose whole MiB from 1 to 64, or leave it out: a 64th of `size`, \
                at least 4 MiB where eight of those fit";
    if !segment.is_multiple_of(MIB) {
        checks.push(
            Problem::error("`segment` is not a whole number of MiB")
                .at(typed.span())
                .label(format!("this is {}", show_size(segment)))
                .help(help),
        );
        return;
    }
    let room = volume::room(size);
    if size != 0 && room / segment < SEGMENTS_MIN {
        let most = room / SEGMENTS_MIN / MIB;
        checks.push(
            Problem::error("`segment` is too large for this volume")
                .at(typed.span())
                .label(format!("`size` is {}: too few of them", show_size(size)))
                .help(format!("choose at most \"{}MiB\"", most.max(1))),
        );
    }
    if room / segment > SEGMENTS_MAX {
        let least = room.div_ceil(SEGMENTS_MAX).div_ceil(MIB);
        checks.push(
            Problem::error("`segment` is too small for this volume")
                .at(typed.span())
                .label(format!("`size` is {}: too many of them", show_size(size)))
                .help(format!("choose at least \"{least}MiB\"")),
        );
    }
}

/// Reports paths at which a volume can't be created.
fn reachable(path: &Path, place: &PathInfo, at: Range<usize>, checks: &mut Checks) {
    match place.kind {
        Kind::Other(what) => checks.push(
            Problem::error(format!("`path` is {what}"))
                .at(at)
                .help("name a file, which is made where there is none, or a block device"),
        ),
        Kind::NoFolder => checks.push(
            Problem::warning("there is no folder for this volume")
                .at(at)
                .label(match path.parent() {
                    Some(folder) => format!("{} is not there", folder.display()),
                    None => "it is not there".to_owned(),
                })
                .help("create the folder, or mount the disk; until then the volume is out of use, and Sluice tries to open it again at the interval `retry`"),
        ),
        Kind::Nothing | Kind::File(_) | Kind::Block(_) => {}
    }
}

/// The paths of the volumes checked so far, and the space that they need on each file system.
#[derive(Default)]
struct Paths {
    taken: Vec<(String, PathBuf, Option<PathInfo>)>,
    /// Bytes that volumes still have to allocate, by the id of the file system.
    wanted: BTreeMap<u64, u64>,
}

impl Paths {
    fn add(
        &mut self,
        name: &str,
        path: &Path,
        place: Option<&PathInfo>,
        at: Range<usize>,
        checks: &mut Checks,
    ) {
        let same = |(_, its, found): &&(String, PathBuf, Option<PathInfo>)| {
            its == path
                || found.as_ref().is_some_and(|found| {
                    place.is_some_and(|place| found.identity == place.identity)
                })
        };
        if let Some((other, ..)) = self.taken.iter().find(same) {
            checks.push(
                Problem::error("two volumes at one path")
                    .at(at)
                    .label(format!("volume `{other}` is there"))
                    .help("give each a file of its own; caches may share a volume"),
            );
        }
        self.taken
            .push((name.to_owned(), path.to_owned(), place.cloned()));
    }

    fn take_space(
        &mut self,
        options: &Options,
        place: &PathInfo,
        at: Range<usize>,
        checks: &mut Checks,
    ) {
        let allocated = match place.kind {
            Kind::Nothing => 0,
            Kind::File(allocated) => allocated,
            Kind::NoFolder | Kind::Block(_) | Kind::Other(_) => return,
        };
        let more = options.size.saturating_sub(allocated);
        let wanted = self.wanted.entry(place.file_system).or_default();
        *wanted = wanted.saturating_add(more);
        if more > 0 && *wanted > place.free {
            let others = if *wanted == more {
                ""
            } else {
                ", with the volumes before it"
            };
            checks.push(
                Problem::warning("its file system has too little space")
                    .at(at)
                    .label(format!(
                        "{} more are needed{others}, {} are free",
                        show_size(*wanted),
                        show_size(place.free)
                    ))
                    .help("make `size` smaller, or free space; until then the volume is out of use, and Sluice tries to open it again at the interval `retry`"),
            );
        }
    }
}
