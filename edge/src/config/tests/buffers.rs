//! Tests of `[buffers]`.

use std::path::PathBuf;
use std::time::Duration;

use super::{said, with};
use crate::config::{changes, describe, parse};
use crate::spool::{DiskOptions, Options};

const ALL: &str = "[buffers]\nmemory = \"64MiB\"\nfolder = \"/var/tmp\"\nmemory_per_body = \"1MiB\"\n\
    disk = \"4GiB\"\ndisk_per_body = \"256MiB\"\ndisk_timeout = \"5s\"\n";

fn plan(more: &str) -> crate::config::Plan {
    parse("sluice.toml", &with(more)).expect("a good file").plan
}

#[test]
fn every_key_is_planned_and_described() {
    let plan = plan(ALL);
    let disk = DiskOptions {
        folder: PathBuf::from("/var/tmp"),
        memory_per_body: 1 << 20,
        bytes: 4 << 30,
        bytes_per_body: 256 << 20,
        timeout: Duration::from_secs(5),
    };
    let expected = Options {
        memory: 64 << 20,
        disk: Some(disk),
    };
    assert_eq!(plan.buffers, expected);
    let described = describe(&plan);
    let line = "buffers of bodies take up to 64 MiB of memory; beyond 1 MiB a body goes on in a file in /var/tmp, \
                of up to 256 MiB, together up to 4 GiB, at most 5s for a write or read\n";
    assert!(described.contains(line), "{described}");
    assert_eq!(said(&with(ALL)), "\n");
}

#[test]
fn without_a_folder_bodies_are_only_in_memory() {
    assert_eq!(plan("").buffers, Options::default());
    let said = said(&with("[buffers]\ndisk = \"1GiB\"\ndisk_timeout = \"1s\"\n"));
    for text in [
        "warning: `disk` does nothing here",
        "warning: `disk_timeout` does nothing here",
        "sluice.toml:2",
        "add `folder = \"/var/tmp\"`",
    ] {
        assert!(said.contains(text), "{text}: {said}");
    }
}

#[test]
fn mistakes_are_explained() {
    let folder = "[buffers]\nfolder = \"/var/tmp\"\n";
    for (lines, text) in [
        (
            "[buffers]\nfolder = \"\"\n".to_owned(),
            "`folder` is not a path",
        ),
        (
            format!("{folder}memory_per_body = \"1KiB\"\n"),
            "choose a value from 64 KiB to 64 MiB",
        ),
        (
            format!("{folder}disk = \"1GiB\"\ndisk_per_body = \"1GiB\"\n"),
            "half of `disk` is 512 MiB",
        ),
        (
            format!("{folder}memory = \"1MiB\"\nmemory_per_body = \"1MiB\"\n"),
            "half of `memory` is 512 KiB",
        ),
    ] {
        let said = said(&with(&lines));
        assert!(said.contains(text), "{text}: {said}");
    }
}

#[test]
fn all_of_it_can_be_changed_by_a_reload() {
    let changed = changes(&plan(""), &plan(ALL));
    assert_eq!(changed.to_string(), "buffers of bodies changed\n");
}
