//! The section of the placement experiment.

use serde::Deserialize as _;
use serde_json::Value;

use super::super::page::{Cell, Table, details, measured};
use super::super::svg::{Bar, Group};
use super::super::values::{MISSING, digits, list, named, number, text, with_unit};
use super::charts::{Kind, article, bar, bars};
use super::{Section, figures};
use crate::spread::Spread;

pub(super) const SECTION: Section = Section {
    name: "placement",
    title: "Caches on slow disks",
    question: "What do clients and disks receive while a cache on a slow disk fills?",
    method: "Bodies of 1 MiB that are never requested twice, so the cache only stores. Slow disks are file systems in \
             memory with a limited rate; runs with and without the cache alternate. nginx has a cache on each disk (hash), \
             or one cache on two disks that btrfs joins (mirror, stripe), beside which one disk with btrfs is measured. \
             nginx writes in its workers or in threads; beside the article, all its rates are those of the configuration \
             that slowed its clients less on one disk. A last part uses this machine's disk.",
    article: "nginx with 1 MB files and two disks: the rate of clients without a cache, with one disk, and with four \
              layouts of two. There, the rate of clients fell to that of the disks.",
    summary,
    body,
    tables: |data| vec![beside_the_article(data), figures::table(data)],
};

/// The article's MB/s: layout, two magnetic volumes of EC2, two disks of bare metal.
const ARTICLE: [(&str, f64, f64); 5] = [
    (NO_CACHE, 486.0, 6300.0),
    ("single", 39.8, 95.0),
    ("mirror", 31.5, 81.0),
    ("stripe", 51.1, 192.5),
    ("hash", 56.0, 215.3),
];

fn megabytes(rate: f64) -> String {
    format!("{} MB/s", digits(rate))
}

/// The layout that stands for no layout: the runs of `single` without the cache.
const NO_CACHE: &str = "no cache";

/// One disk with btrfs, with which mirror and stripe of btrfs are compared.
const BTRFS: &str = "single, btrfs";

/// Begin of the name of a row's configuration in which threads write.
const THREADS: &str = ", threads";

/// Returns the ending of the rows of a server that count: nginx was measured with writes in workers and in threads. One
/// configuration counts for all figures, the one with the higher share on one disk; nginx with btrfs has it, too.
fn variant(data: &Value, server: &str) -> &'static str {
    let share = |variant: &'static str| {
        let row = row(data, server, "single", variant)?;
        Some((variant, number(row, "ratio")?))
    };
    let shares = ["", THREADS].into_iter().filter_map(share);
    let fastest = shares.max_by(|(_, one), (_, other)| one.total_cmp(other));
    fastest.map_or("", |(variant, _)| variant)
}

fn row<'a>(data: &'a Value, server: &str, layout: &str, variant: &str) -> Option<&'a Value> {
    named(data, "layouts", &format!("{server} {layout}{variant}"))
}

/// Returns the row of a layout that counts.
fn counting<'a>(data: &'a Value, server: &str, layout: &str) -> Option<&'a Value> {
    match layout {
        BTRFS => row(data, server, BTRFS, ""),
        // btrfs makes the mirror and the stripe of nginx.
        layout => row(data, server, layout, variant(data, server))
            .or_else(|| row(data, server, layout, ", btrfs")),
    }
}

/// A rate of a layout in MB/s.
struct Rate {
    /// Median of the rounds.
    median: f64,
    /// All rounds; `None` in records that have only medians.
    spread: Option<Spread>,
    /// Whether btrfs joined the disks.
    is_btrfs: bool,
}

impl Rate {
    /// Returns a rate of a layout. The layout [`NO_CACHE`] is the rate without the cache of the layout `single`.
    fn of(data: &Value, server: &str, layout: &str, field: &str) -> Option<Rate> {
        let (layout, field) = match layout {
            NO_CACHE => ("single", "plain"),
            layout => (layout, field),
        };
        let row = counting(data, server, layout)?;
        let spread = row.pointer(&format!("/spread/{field}"));
        let spread = spread.and_then(|spread| Spread::deserialize(spread).ok());
        let megabytes = |spread: Spread| {
            let rounds = spread.rounds.into_iter().map(|rate| rate / 1e6);
            Spread::of(rounds.collect())
        };
        Some(Rate {
            median: number(row, field)? / 1e6,
            spread: spread.and_then(megabytes),
            is_btrfs: text(row, "name")?.ends_with(", btrfs"),
        })
    }

    /// Formats the median with the lowest and the highest round, as far as the record has them.
    fn show(&self) -> String {
        let rate = match &self.spread {
            Some(spread) => spread.show(digits),
            None => digits(self.median),
        };
        match self.is_btrfs {
            true => format!("{rate} (btrfs)"),
            false => rate,
        }
    }
}

fn share(data: &Value, server: &str) -> Option<f64> {
    number(row(data, server, "single", variant(data, server))?, "ratio")
}

fn percent(share: f64) -> String {
    format!("{} %", digits((share * 1000.0).round() / 10.0))
}

/// Returns the shares of both servers: clients' throughput with the cache on one slow disk over that without a cache.
pub(super) fn shares(data: &Value) -> Vec<(String, String)> {
    let share = |server: &str| Some((server.to_owned(), percent(share(data, server)?)));
    ["Sluice", "nginx"].into_iter().filter_map(share).collect()
}

fn summary(data: &Value) -> Vec<String> {
    let percent = |share: f64| measured(&percent(share));
    let disk = number(data, "rate").map_or_else(String::new, |rate| megabytes(rate / 1e6));
    let clients = share(data, "Sluice").map(|sluice| {
        let nginx = share(data, "nginx").map_or_else(String::new, |nginx| {
            format!("; with nginx {} (in the article 8 %)", percent(nginx))
        });
        format!(
            "While a cache on a disk of {} filled, Sluice sent its clients {} of the bytes per second that it sends without a cache{nginx}.",
            measured(&disk),
            percent(sluice)
        )
    });
    let single = Rate::of(data, "Sluice", "single", "stored");
    let two = Rate::of(data, "Sluice", "hash", "stored")
        .zip(single)
        .map(|(hash, single)| {
            let times = measured(&digits(hash.median / single.median.max(1e-9)));
            format!("On two disks (hash), Sluice stored {times} times as many bytes per second as on one.")
        });
    clients.into_iter().chain(two).collect()
}

fn body(data: &Value) -> String {
    let mut html = beside_the_article(data).render();
    html.push_str(&chart(data));
    html.push_str(&figures::table(data).render());
    html.push_str(&details("Each disk, as iostat shows it", &disks(data)));
    html.push_str(&figures::notes(data));
    html
}

fn beside_the_article(data: &Value) -> Table {
    let titles = [
        "layout",
        "article, EC2",
        "article, bare metal",
        "nginx here, sent to clients",
        "Sluice here, sent to clients",
        "Sluice here, stored on disks",
    ];
    let mut table = Table::new(&caption(data, "MB/s beside the article"), &titles);
    for (layout, cloud, metal) in ARTICLE {
        let here = |server, field| {
            let rate = Rate::of(data, server, layout, field);
            Cell::measured(rate.map_or_else(|| MISSING.to_owned(), |rate| rate.show()))
        };
        let stored = match layout {
            NO_CACHE => Cell::text(""),
            _ => here("Sluice", "stored"),
        };
        let cells = [
            Cell::article(digits(cloud)),
            Cell::article(digits(metal)),
            here("nginx", "clients"),
            here("Sluice", "clients"),
            stored,
        ];
        table.row(layout, cells);
        // The article has no such row, and Sluice needs no btrfs.
        if layout == "single"
            && let Some(base) = Rate::of(data, "nginx", BTRFS, "clients")
        {
            let cells = [
                Cell::article(""),
                Cell::article(""),
                Cell::measured(base.show()),
                Cell::text(""),
                Cell::text(""),
            ];
            table.row(BTRFS, cells);
        }
    }
    table
}

/// Returns a caption with the configuration of nginx, if nginx was measured.
fn caption(data: &Value, caption: &str) -> String {
    match (share(data, "nginx"), variant(data, "nginx")) {
        (None, _) => caption.to_owned(),
        (Some(_), THREADS) => format!("{caption}; nginx writes in threads"),
        (Some(_), _) => format!("{caption}; nginx writes in its workers"),
    }
}

fn chart(data: &Value) -> String {
    let of = |server: &str, layout: &str, what: &str, field: &str| {
        let rate = Rate::of(data, server, layout, field)?;
        let btrfs = if rate.is_btrfs { ", btrfs" } else { "" };
        let several = rate.spread.filter(|spread| spread.rounds.len() > 1);
        Some(Bar {
            name: format!("{server}, {what}{btrfs}"),
            spread: several.map(|spread| (spread.low, spread.high)),
            ..bar(server, Some(rate.median), megabytes)
        })
    };
    let group = |(layout, cloud, metal): (&str, f64, f64)| {
        let mut bars = vec![
            article("article, EC2", cloud, megabytes),
            article("article, bare metal", metal, megabytes),
        ];
        bars.extend(of("nginx", layout, "sent to clients", "clients"));
        if layout == "single" {
            bars.extend(of("nginx", BTRFS, "sent to clients", "clients"));
        }
        bars.extend(of("Sluice", layout, "sent to clients", "clients"));
        if layout != NO_CACHE {
            bars.extend(of("Sluice", layout, "stored on disks", "stored"));
        }
        Group {
            name: layout.to_owned(),
            bars,
        }
    };
    if list(data, "layouts").next().is_none() {
        return String::new();
    }
    let caption = caption(data, "Throughput by layout");
    bars(&caption, &ARTICLE.map(group), Kind::Powers)
}

fn disks(data: &Value) -> String {
    let titles = [
        "layout",
        "disk",
        "reads/s",
        "writes/s",
        "read MB/s",
        "written MB/s",
        "mean wait",
        "busy",
    ];
    let mut table = Table::new("Activity of the disks", &titles);
    for row in list(data, "layouts") {
        for (number, disk) in (1..).zip(list(row, "disks")) {
            table.row(
                text(row, "name").unwrap_or_default(),
                usage(disk, &number.to_string()),
            );
        }
    }
    for row in list(data, "real") {
        if let Some(disk) = row.get("disk") {
            table.row(
                text(row, "name").unwrap_or_default(),
                usage(disk, "this machine's"),
            );
        }
    }
    table.render()
}

fn usage(disk: &Value, name: &str) -> Vec<Cell> {
    let value = |path| number(disk, path);
    let plain = |path| Cell::measured(with_unit(value(path), ""));
    let rate = |path| Cell::measured(with_unit(value(path).map(|bytes| bytes / 1e6), ""));
    vec![
        Cell::text(name),
        plain("reads"),
        plain("writes"),
        rate("read_bytes"),
        rate("written_bytes"),
        Cell::measured(with_unit(value("wait_ms"), "ms")),
        Cell::measured(with_unit(
            value("utilization").map(|share| share * 100.0),
            "%",
        )),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn layout(name: &str, clients: f64, ratio: f64) -> Value {
        json!({ "name": name, "plain": clients / ratio, "clients": clients, "ratio": ratio, "stored": 40e6 })
    }

    /// Returns a report in which each configuration of nginx is faster in one layout.
    fn data() -> Value {
        json!({ "layouts": [
            layout("Sluice single", 900e6, 0.9),
            layout("nginx single", 50e6, 0.05),
            layout("nginx single, threads", 80e6, 0.08),
            layout("nginx hash", 170e6, 0.17),
            layout("nginx hash, threads", 120e6, 0.12),
            layout("nginx single, btrfs", 60e6, 0.06),
            layout("nginx mirror, btrfs", 30e6, 0.03),
        ] })
    }

    fn row_of(table: &Table, name: &str) -> Vec<String> {
        let mut rows = table.rows().iter();
        let row = rows.find(|row| row[0].value() == name).expect("a row");
        row.iter().map(|cell| cell.value().to_owned()).collect()
    }

    #[test]
    fn all_rates_of_nginx_are_those_of_one_configuration() {
        let mut data = data();
        let table = beside_the_article(&data);
        assert!(table.caption().ends_with("; nginx writes in threads"));
        assert_eq!(row_of(&table, "single")[3], "80");
        assert_eq!(row_of(&table, "hash")[3], "120");
        assert_eq!(row_of(&table, "no cache")[3], "1,000");
        let percent = |server: &str, share: &str| (server.to_owned(), share.to_owned());
        assert_eq!(
            shares(&data),
            [percent("Sluice", "90 %"), percent("nginx", "8 %")]
        );
        data["layouts"][1]["ratio"] = json!(0.09);
        let table = beside_the_article(&data);
        assert!(table.caption().ends_with("; nginx writes in its workers"));
        assert_eq!(row_of(&table, "single")[3], "50");
        assert_eq!(row_of(&table, "hash")[3], "170");
        assert_eq!(shares(&data)[1], percent("nginx", "9 %"));
    }

    #[test]
    fn rates_with_btrfs_are_marked_and_stand_below_their_base() {
        let data = data();
        let table = beside_the_article(&data);
        let base = ["single, btrfs", "", "", "60 (btrfs)", "", ""];
        assert_eq!(row_of(&table, BTRFS), base);
        assert_eq!(row_of(&table, "mirror")[3], "30 (btrfs)");
        assert_eq!(row_of(&table, "stripe")[3], MISSING);
        assert_eq!(row_of(&table, "single")[4], "900");
        let chart = chart(&data);
        assert!(chart.contains("nginx, sent to clients, btrfs"), "{chart}");
    }

    #[test]
    fn rounds_are_shown_if_the_record_has_them() {
        let mut data = data();
        let rounds = Spread::of(vec![70e6, 80e6, 95e6]).expect("a spread");
        data["layouts"][2]["spread"] = json!({ "clients": rounds });
        let table = beside_the_article(&data);
        assert_eq!(row_of(&table, "single")[3], "80 (70-95)");
        assert_eq!(row_of(&table, "hash")[3], "120");
    }
}
