//! Prints the volumes in `sluice status`: a table, and below the table why some volumes are out.

use std::fmt::Write;

use serde::Deserialize;
use serde_json::Value;

use super::table::table;
use super::values::{items, number, text};
use crate::admin::VolumeUse;
use crate::commands::output::harmless;
use crate::config::show_size;
use crate::telemetry::{Numbers, VolumeNumbers};

const HEADING: [&str; 14] = [
    "volume", "state", "size", "laps", "records", "waiting", "written", "again", "at", "read",
    "cached", "wait", "shed", "damaged",
];
/// Number of text columns, which are aligned to the left. The other columns are numbers.
const TEXT_COLUMNS: usize = 2;

/// Returns the table, or an empty text if there are no volumes.
pub fn show(volumes: &Value) -> String {
    let rows: Vec<[String; 14]> = items(volumes).map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut out = table(&HEADING, |column| column < TEXT_COLUMNS, &rows);
    for volume in items(volumes) {
        // Writing to a String can't fail, here and in the rest of this file.
        if let Some(why) = volume["why"].as_str() {
            let _ = writeln!(
                out,
                "volume {} is out: {}",
                text(&volume["name"]),
                harmless(why)
            );
        }
        let errors = number(volume, "errors");
        if errors > 0 {
            let _ = writeln!(
                out,
                "volume {}: {errors} failures of its disk",
                text(&volume["name"])
            );
        }
    }
    out
}

fn row(volume: &Value) -> [String; 14] {
    let numbers = VolumeNumbers::read(|name| number(volume, name));
    let share = |part: u64, all: u64| match all {
        0 => "-".to_owned(),
        all => format!("{}%", u128::from(part) * 100 / u128::from(all)),
    };
    let state = match VolumeUse::deserialize(&volume["state"]) {
        Ok(VolumeUse::Loading) => format!(
            "loading {:.0}%",
            volume["loaded"].as_f64().unwrap_or(0.0) * 100.0
        ),
        _ => text(&volume["state"]),
    };
    let rate = match numbers.write_ms {
        0 => "-".to_owned(),
        ms => {
            let per_second = u128::from(numbers.written_bytes) * 1000 / u128::from(ms);
            let per_second = u64::try_from(per_second).unwrap_or(u64::MAX);
            format!("{}/s", show_size(per_second))
        }
    };
    let wait = match numbers.reads {
        0 => "-".to_owned(),
        reads => format!("{:.1}ms", numbers.read_ms as f64 / reads as f64),
    };
    [
        text(&volume["name"]),
        state,
        show_size(numbers.size),
        numbers.laps.to_string(),
        numbers.records.to_string(),
        show_size(numbers.queue_bytes),
        show_size(numbers.written_bytes),
        share(numbers.rewritten_bytes, numbers.written_bytes),
        rate,
        show_size(numbers.read_bytes),
        share(numbers.reads_cached, numbers.reads),
        wait,
        numbers.shed.to_string(),
        numbers.damaged.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volumes_are_a_table() {
        let volumes = json!([
            {
                "name": "disk1", "state": "up", "loaded": 1.0, "size": 5_u64 << 30, "laps": 2, "records": 41_234,
                "queue_bytes": 3_u64 << 20, "written_bytes": 12_u64 << 30, "rewritten_bytes": 1_u64 << 30,
                "write_ms": 300_000, "read_bytes": 700_u64 << 20, "reads": 1000, "reads_cached": 930,
                "read_ms": 840, "shed": 17, "damaged": 1, "errors": 0
            },
            { "name": "ssd", "state": "loading", "loaded": 0.43, "size": 64_u64 << 20 },
            { "name": "old", "state": "out", "why": "Input/output error\u{1b}[2J", "errors": 3 }
        ]);
        insta::assert_snapshot!("volumes", show(&volumes));
    }

    #[test]
    fn hostile_numbers_do_no_harm() {
        assert_eq!(show(&json!(null)), "");
        assert_eq!(show(&json!({ "name": 1 })), "");
        let most = u64::MAX;
        let volumes = json!([{
            "name": 5, "state": ["x"], "loaded": "y", "written_bytes": most, "rewritten_bytes": most, "write_ms": 1,
            "reads": 1, "read_ms": most, "reads_cached": most
        }]);
        assert!(show(&volumes).contains("100%"));
    }
}
