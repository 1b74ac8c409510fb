//! The tables of the placement experiment.

use super::Report;
use crate::bench::plain;
use crate::disk::Usage;
use crate::figures;

const LAYOUTS: [(&str, &str); 8] = [
    ("", ""),
    ("no cache", "MB/s"),
    ("cache", "MB/s"),
    ("ratio", ""),
    ("stored", "MB/s"),
    ("shed", "MB/s"),
    ("hits", "%"),
    ("held/size", ""),
];

const DISKS: [(&str, &str); 7] = [
    ("", ""),
    ("reads", "/s"),
    ("read", "MB/s"),
    ("writes", "/s"),
    ("written", "MB/s"),
    ("wait", "ms"),
    ("util", "%"),
];

const REAL: [(&str, &str); 4] = [
    ("", ""),
    ("clients", "MB/s"),
    ("CPU", "ns/byte"),
    ("stored", "%"),
];

pub(super) fn render(report: &Report) -> String {
    let mib = |bytes: u64| bytes >> 20;
    let mut text = format!(
        "bodies of 1 MiB, each requested once; {} workers; medians of {} runs\n\
         slow disks of {} MB/s, {} MiB each, runs of {} s; {} MiB on the machine's disk, runs of {} s\n\n",
        report.workers,
        report.rounds,
        report.rate / 1_000_000,
        mib(report.size),
        report.seconds,
        mib(report.real_size),
        report.real_seconds,
    );
    if !report.layouts.is_empty() {
        text.push_str(&plain(&LAYOUTS, &layouts(report)));
        text.push('\n');
        text.push_str(&plain(&DISKS, &disks(report)));
        text.push('\n');
    }
    if !report.real.is_empty() {
        text.push_str(&real(report));
        text.push('\n');
    }
    text.push_str(&figures::render(&report.figures, report.rival.as_deref()));
    for note in &report.notes {
        text.push_str(&format!("{note}\n"));
    }
    text
}

fn mb(bytes: f64) -> String {
    match bytes / 1e6 {
        small if small < 1000.0 => format!("{small:.1}"),
        large => format!("{large:.0}"),
    }
}

fn layouts(report: &Report) -> Vec<Vec<String>> {
    let cells = report.layouts.iter().map(|row| {
        vec![
            row.name.clone(),
            mb(row.plain),
            mb(row.clients),
            format!("{:.3}", row.ratio),
            mb(row.stored),
            mb(row.shed),
            format!("{:.1}", row.hits * 100.0),
            format!("{:.4}", row.over),
        ]
    });
    cells.collect()
}

fn usage(name: String, usage: &Usage) -> Vec<String> {
    vec![
        name,
        format!("{:.1}", usage.reads),
        mb(usage.read_bytes),
        format!("{:.1}", usage.writes),
        mb(usage.written_bytes),
        format!("{:.1}", usage.wait_ms),
        format!("{:.1}", usage.utilization * 100.0),
    ]
}

fn disks(report: &Report) -> Vec<Vec<String>> {
    let rows = report.layouts.iter().flat_map(|row| {
        let disks = (1..).zip(&row.disks);
        disks.map(|(number, disk)| usage(format!("{}: disk {number}", row.name), disk))
    });
    rows.collect()
}

fn real(report: &Report) -> String {
    let mut titles = REAL.to_vec();
    titles.extend(&DISKS[1..]);
    let rows = report.real.iter().map(|row| {
        let mut cells = vec![
            row.name.clone(),
            mb(row.clients),
            format!("{:.3}", row.cpu_ns),
            format!("{:.1}", row.stored * 100.0),
        ];
        cells.extend(usage(String::new(), &row.disk).into_iter().skip(1));
        cells
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let rate = report.fio.map_or_else(String::new, mb);
    format!(
        "the machine's disk; fio: {rate} MB/s of sequential writes with direct I/O\n{}",
        plain(&titles, &rows)
    )
}

#[cfg(test)]
mod tests {
    use super::super::{LayoutRow, RealRow};
    use super::*;

    #[test]
    fn each_disk_has_its_line() {
        let disk = Usage {
            writes: 40.0,
            written_bytes: 40e6,
            wait_ms: 25.0,
            utilization: 0.995,
            ..Usage::default()
        };
        let report = Report {
            rate: 40_000_000,
            size: 256 << 20,
            real_size: 1 << 30,
            rounds: 3,
            seconds: 8.0,
            real_seconds: 20.0,
            workers: 2,
            rival: None,
            fio: Some(2.5e9),
            layouts: vec![LayoutRow {
                name: "Sluice mirror".to_owned(),
                plain: 900e6,
                clients: 880e6,
                ratio: 0.978,
                stored: 40e6,
                shed: 840e6,
                hits: 0.0,
                over: 1.0,
                disks: vec![disk; 2],
                spread: None,
            }],
            real: vec![RealRow {
                name: "Sluice, no cache".to_owned(),
                clients: 900e6,
                cpu_ns: 1.5,
                stored: 0.0,
                disk: Usage::default(),
            }],
            figures: Vec::new(),
            configurations: Default::default(),
            notes: vec!["a note".to_owned()],
        };
        let text = report.render();
        let words = |start: &str| {
            let line = text.lines().find(|line| line.starts_with(start));
            let line = line.unwrap_or_else(|| panic!("no {start} in:\n{text}"));
            let words = line[start.len()..].split_whitespace();
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            words("Sluice mirror  "),
            ["900.0", "880.0", "0.978", "40.0", "840.0", "0.0", "1.0000"]
        );
        let line = ["0.0", "0.0", "40.0", "40.0", "25.0", "99.5"];
        assert_eq!(words("Sluice mirror: disk 1"), line);
        assert_eq!(words("Sluice mirror: disk 2"), line);
        assert_eq!(words("Sluice, no cache")[..3], ["900.0", "1.500", "0.0"]);
        assert!(text.contains("fio: 2500 MB/s") && text.ends_with("a note\n"));
    }
}
