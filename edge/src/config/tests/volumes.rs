//! Tests of volumes and of the volume keys of caches: the plan, and the errors and warnings about
//! them.

use crate::config::Purpose;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{LEAST, plan};
use crate::config::{Options, changes, describe, examine, load, parse};
use crate::store::disk_tier::{self, Admit, Placement, PlacementKind};
use crate::sys::disk::path_info::{Identity, Kind, PathInfo};
use crate::volume;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Returns a configuration with two volumes, and a cache that has these keys and is in use.
fn cached(cache: &str) -> String {
    format!(
        "[volume.disk1]\npath = \"/mnt/disk1/vol\"\nsize = \"5GiB\"\n\
         [volume.disk2]\npath = \"/mnt/disk2/vol\"\nsize = \"10GiB\"\n\
         [cache.a]\n{cache}\n{LEAST}cache = \"a\"\n"
    )
}

/// Returns a configuration with one volume that has these keys and is in use.
fn volume(keys: &str) -> String {
    format!("[volume.disk1]\n{keys}\n[cache.a]\nvolumes = [\"disk1\"]\n{LEAST}cache = \"a\"\n")
}

/// Returns what exists at a path of a made-up machine, which has two disks with 8 GiB free each,
/// and a block device.
fn machine(path: &Path) -> Option<PathInfo> {
    let (kind, file_system, identity) = match path.to_str()? {
        "/dev/sdb" => (Kind::Block(16 * GIB), 9, Identity::Device(16)),
        "/dev/null" => (Kind::Other("a character device"), 9, Identity::File(9, 1)),
        "/link/vol" | "/mnt/disk1/vol" => (Kind::Nothing, 1, name("/mnt/disk1/vol")),
        "/mnt/disk1/old" => (Kind::File(4 * GIB), 1, Identity::File(1, 7)),
        other if other.starts_with("/mnt/disk1/") => (Kind::Nothing, 1, name(other)),
        other if other.starts_with("/mnt/disk2/") => (Kind::Nothing, 2, name(other)),
        other => (Kind::NoFolder, 0, name(other)),
    };
    Some(PathInfo {
        kind,
        identity,
        file_system,
        free: 8 * GIB,
    })
}

fn name(path: &str) -> Identity {
    Identity::Name(PathBuf::from(path))
}

/// Returns the rendered errors of a text on this machine, or its warnings if it has no errors.
fn said(text: &str) -> String {
    match examine("sluice.toml", text, &machine, &|_| None, Purpose::Reload) {
        Ok(loaded) => loaded.warnings.render(false),
        Err(report) => report.render(false),
    }
}

#[test]
fn defaults_are_the_documented_ones() {
    let plan = plan(&volume("path = \"/mnt/disk1/vol\"\nsize = \"5GiB\""));
    let expected = volume::Options {
        name: "disk1".to_owned(),
        path: "/mnt/disk1/vol".into(),
        size: 5 * GIB,
        segment: 0,
        queue: 32 * MIB,
        readers: 4,
        write_delay: Duration::from_millis(50),
        read_timeout: Duration::from_secs(1),
        retry: Duration::from_secs(10),
        overwrite: false,
    };
    assert_eq!(plan.volumes["disk1"], expected);
    let kept = &plan.caches["a"].disk_tier;
    let expected = disk_tier::Options {
        volumes: vec!["disk1".to_owned()],
        ..disk_tier::Options::default()
    };
    assert_eq!(kept, &expected);
    let two = super::plan(&cached("volumes = [\"disk2\", \"disk1\"]"));
    let kept = &two.caches["a"].disk_tier;
    assert_eq!(kept.placement.kind, PlacementKind::Hash);
    assert_eq!(kept.volumes, ["disk2", "disk1"]);
}

#[test]
fn everything_typed_is_in_the_plan_and_described() {
    let text = cached(
        "volumes = [\"disk1\", \"disk2\"]\nplacement = \"hash\"\nweights = [1, 2]\ninactive = \"1day\"\n\
         min_uses = 2\nadmit_min = \"1KiB\"\nadmit_max = \"1GiB\"",
    )
    .replacen(
        "size = \"5GiB\"",
        "size = \"5GiB\"\nsegment = \"32MiB\"\nqueue = \"64MiB\"\nreaders = 8\nread_timeout = \"200ms\"\nretry = \"1m\"\noverwrite = true",
        1,
    );
    let all = plan(&text);
    let disk = &all.volumes["disk1"];
    assert_eq!((disk.segment, disk.queue), (32 * MIB, 64 * MIB));
    assert_eq!(disk.readers, 8);
    assert_eq!(disk.read_timeout, Duration::from_millis(200));
    assert_eq!(
        (disk.retry, disk.overwrite),
        (Duration::from_secs(60), true)
    );
    let expected = disk_tier::Options {
        volumes: vec!["disk1".to_owned(), "disk2".to_owned()],
        placement: Placement {
            kind: PlacementKind::Hash,
            weights: vec![1, 2],
        },
        inactive: Duration::from_secs(86400),
        admit: Admit::Second,
        admit_min: 1 << 10,
        admit_max: GIB,
    };
    assert_eq!(all.caches["a"].disk_tier, expected);
    let described = |text: &str| {
        let loaded = examine("sluice.toml", text, &machine, &|_| None, Purpose::Reload)
            .unwrap_or_else(|e| panic!("{e}"));
        let all = describe(&loaded.plan);
        let of_volumes = all
            .lines()
            .filter(|line| line.starts_with("volume ") || line.starts_with("  kept"));
        of_volumes
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    let texts = [
        described(&text),
        described(&cached("volumes = [\"disk1\", \"disk2\"]")),
        described(&cached(
            "volumes = [\"disk1\", \"disk2\"]\nplacement = \"stripe\"\nadmit_min = 1",
        )),
        described(&cached(
            "volumes = [\"disk1\", \"disk2\"]\nplacement = \"mirror\"\nadmit_max = 1",
        )),
        described(&volume("path = \"/dev/sdb\"")),
    ];
    insta::assert_snapshot!("volumes_described", texts.join("\n"));
}

#[test]
fn errors_and_doubts_show_the_line_and_the_fix() {
    let good = "path = \"/mnt/disk1/vol\"";
    let sized = "path = \"/mnt/disk1/vol\"\nsize = ";
    let of_two = |more: &str| cached(&format!("volumes = [\"disk1\", \"disk2\"]\n{more}"));
    let cases = [
        ("no path, no size", volume("")),
        ("no size", volume(good)),
        ("no path to speak of", volume("path = \"\"\nsize = \"1GiB\"")),
        ("out of bounds", volume(&format!(
            "{sized}\"15MiB\"\nqueue = 1\nreaders = 0\nread_timeout = \"0s\"\nretry = \"2days\""
        ))),
        ("too large", volume(&format!("{sized}\"5TiB\""))),
        ("a part of a MiB", volume(&format!("{sized}\"1GiB\"\nsegment = \"1MB\""))),
        ("too few segments", volume(&format!("{sized}\"64MiB\"\nsegment = \"8MiB\""))),
        ("too many segments", volume("path = \"/mnt/disk2/vol\"\nsize = \"4TiB\"\nsegment = \"32MiB\"")),
        ("wrong types", volume("path = 1")),
        ("unknown key", volume(&format!("{sized}\"1GiB\"\nsegments = 8"))),
        ("a device", volume("path = \"/dev/sdb\"\nsize = \"17GiB\"")),
        ("no file", volume("path = \"/dev/null\"\nsize = \"1GiB\"")),
        ("no folder", volume("path = \"/mtn/disk1/vol\"\nsize = \"1GiB\"")),
        ("no space", volume(&format!("{sized}\"9GiB\""))),
        ("space that it has", volume("path = \"/mnt/disk1/old\"\nsize = \"12GiB\"")),
        ("no space for two", of_two("").replace("disk2/vol", "disk1/other")),
        ("two at one path", of_two("").replace("/mnt/disk2/vol", "/mnt/disk1/./vol")),
        ("two at one path, linked", of_two("").replace("/mnt/disk2/vol", "/link/vol")),
        ("a volume that nobody uses", cached("volumes = [\"disk1\"]")),
        ("unknown volume", cached("volumes = [\"disc1\", \"ssd\", \"disk2\", \"disk2\"]")),
        ("single over two", of_two("placement = \"single\"")),
        ("mirror over one", cached("volumes = [\"disk1\"]\nplacement = \"mirror\"")),
        ("stripe over one", volume(&format!("{sized}\"1GiB\"")).replace("\"disk1\"]", "\"disk1\"]\nplacement = \"stripe\"")),
        ("unknown placement", of_two("placement = \"striped\"")),
        ("weights of two, three", of_two("weights = [1, 2, 3]")),
        ("weights of none", of_two("weights = [0, 1001]")),
        ("weights without hash", of_two("placement = \"stripe\"\nweights = [1, 2]")),
        ("wrong type of weights", of_two("weights = \"50:50\"")),
        ("admitted", of_two("min_uses = 3")),
        ("nothing admitted", of_two("admit_min = \"1MiB\"\nadmit_max = \"1KiB\"")),
        ("inactive", of_two("inactive = \"20years\"")),
        ("without volumes", format!(
            "[cache.a]\nplacement = \"hash\"\nweights = [1]\ninactive = \"1h\"\nmin_uses = 1\nadmit_min = 1\nadmit_max = 1\n{LEAST}cache = \"a\"\n"
        ).replace("weights = [1]\n", "")),
        ("large blocks", volume(&format!("{sized}\"16MiB\""))),
        ("large blocks, small queue", volume(&format!("{sized}\"2GiB\"\nqueue = \"2MiB\"")).replace("\"disk1\"]", "\"disk1\"]\nslice = \"4MiB\"")),
        ("long queues", of_two("memory = \"100MiB\"")),
        ("mirror on one disk", of_two("placement = \"mirror\"").replace("disk2/vol", "disk1/other").replace("10GiB", "1GiB")),
        ("two of a mirror's three on one disk", of_two("placement = \"mirror\"")
            .replace("\"disk2\"]", "\"disk2\", \"disk3\"]")
            .replace("[volume.disk2]", "[volume.disk3]\npath = \"/mnt/disk1/other\"\nsize = \"1GiB\"\n[volume.disk2]")),
    ];
    let all: String = cases
        .iter()
        .map(|(name, text)| format!("== {name}\n{}\n", said(text)))
        .collect();
    insta::assert_snapshot!("volumes_errors", all);
}

/// Checks each recipe in the documentation, together with an origin.
#[test]
fn every_recipe_is_good() {
    let recipes = super::documentation::examples(include_str!("../../../../docs/volumes.md"));
    assert!(recipes.len() >= 5);
    for recipe in recipes {
        let text = match recipe.contains("[[site]]") {
            true => recipe.to_owned(),
            false => format!("{recipe}{LEAST}cache = \"main\"\n"),
        };
        let loaded = parse("docs/volumes.md", &text).unwrap_or_else(|report| panic!("{report}"));
        assert!(loaded.warnings.problems.is_empty(), "{}", loaded.warnings);
    }
}

#[test]
fn a_device_needs_no_size() {
    let loaded = examine(
        "sluice.toml",
        &volume("path = \"/dev/sdb\""),
        &machine,
        &|_| None,
        Purpose::Reload,
    );
    let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.plan.volumes["disk1"].size, 0);
    assert!(loaded.warnings.problems.is_empty(), "{}", loaded.warnings);
}

#[test]
fn a_file_is_read_with_a_look_at_its_volumes() -> std::io::Result<()> {
    let folder = tempfile::tempdir()?;
    let (file, volume_at) = (folder.path().join("c.toml"), folder.path().join("vol"));
    let text = volume(&format!(
        "path = {volume_at:?}\nsize = \"16MiB\"\nqueue = \"1MiB\""
    ));
    let text = text.replace("\"disk1\"]", "\"disk1\"]\nslice = \"64KiB\"");
    std::fs::write(&file, &text)?;
    let loaded = load(&file, Purpose::Reload).unwrap_or_else(|report| panic!("{report}"));
    assert!(loaded.warnings.problems.is_empty(), "{}", loaded.warnings);
    std::fs::write(&file, text.replace("vol\"", "no/vol\""))?;
    let loaded = load(&file, Purpose::Reload).unwrap_or_else(|report| panic!("{report}"));
    assert!(loaded.warnings.to_string().contains("there is no folder"));
    Ok(())
}

#[test]
fn options_name_volumes_by_number() {
    let options = Options {
        origins: vec!["http://a:1".to_owned()],
        volumes: vec!["/mnt/a:b/vol:1GiB".to_owned(), "/mnt/c:32MiB".to_owned()],
        placement: Some("mirror".to_owned()),
        ..Options::default()
    };
    let plan = plan(&options.to_text());
    let sizes: Vec<_> = plan
        .volumes
        .values()
        .map(|v| (v.path.to_str(), v.size))
        .collect();
    assert_eq!(
        sizes,
        [(Some("/mnt/a:b/vol"), GIB), (Some("/mnt/c"), 32 * MIB)]
    );
    let kept = &plan.caches["memory"].disk_tier;
    assert_eq!(kept.volumes, ["volume1", "volume2"]);
    assert_eq!(kept.placement.kind, PlacementKind::Mirror);
    let device = Options {
        volumes: vec!["/dev/sdb".to_owned()],
        ..options
    };
    assert!(
        device.to_text().contains("path = \"/dev/sdb\"\n[cache"),
        "{}",
        device.to_text()
    );
}

#[test]
fn a_volume_that_runs_stays_what_it_is() {
    let old = plan(&cached("volumes = [\"disk1\", \"disk2\"]"));
    let to = |text: &str| changes(&old, &plan(text)).to_string();
    let same = cached("volumes = [\"disk1\", \"disk2\"]");
    assert_eq!(to(&same), "nothing changed\n");
    assert_eq!(
        to(&same.replace("[cache.a]", "overwrite = true\n[cache.a]")),
        "volume disk2 changed\n"
    );
    assert_eq!(
        to(&same.replace("10GiB", "11GiB").replace(
            "[cache.a]",
            "[volume.new]\npath = \"/x\"\nsize = \"1GiB\"\n[cache.a]"
        )),
        "volume new added\nvolume disk2: differs, and needs a restart\n"
    );
    assert_eq!(
        to(&same
            .replace("disk2", "other")
            .replace("/mnt/other", "/mnt/disk2")),
        "volume other added\nvolume disk2 removed\ncache a changed\n\
         volume other: differs, and needs a restart\n"
    );
}
