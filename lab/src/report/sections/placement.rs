//! The section of the placement experiment.

use serde_json::Value;

use super::super::page::{Cell, Table, details, measured};
use super::super::svg::{Bar, Group};
use super::super::values::{digits, list, named, number, text, with_unit};
use super::charts::{Kind, article, bar, bars};
use super::{Section, figures};

pub(super) const SECTION: Section = Section {
    name: "placement",
    title: "Caches on slow disks",
    question: "What do clients and disks receive while a cache on a slow disk fills?",
    method: "Bodies of 1 MiB that are never requested twice, so the cache only stores. Slow disks are file systems in \
             memory with a limited rate; runs with and without the cache alternate. nginx has a cache on each disk (hash), \
             or one cache on two disks that btrfs joins (mirror, stripe). A last part uses this machine's disk.",
    article: "nginx with 1 MB files and two disks: the rate of clients without a cache, with one disk, and with four \
              layouts of two. There, the rate of clients fell to that of the disks.",
    summary,
    body,
    tables: |data| vec![beside_the_article(data), figures::table(data)],
};

/// The article's MB/s: layout, two magnetic volumes of EC2, two disks of bare metal.
const ARTICLE: [(&str, f64, f64); 5] = [
    ("no cache", 486.0, 6300.0),
    ("single", 39.8, 95.0),
    ("mirror", 31.5, 81.0),
    ("stripe", 51.1, 192.5),
    ("hash", 56.0, 215.3),
];

fn megabytes(rate: f64) -> String {
    format!("{} MB/s", digits(rate))
}

/// Returns a rate of a layout in MB/s. The layout `no cache` is the rate without the cache of the layout `single`.
fn rate(data: &Value, server: &str, layout: &str, field: &str) -> Option<f64> {
    let (layout, field) = match layout {
        "no cache" => ("single", "plain"),
        layout => (layout, field),
    };
    let rows = [
        format!("{server} {layout}, threads"),
        format!("{server} {layout}"),
    ];
    let of = |row: &String| number(named(data, "layouts", row)?, field);
    let rates = rows.iter().filter_map(of);
    // nginx was measured with writes in workers and in threads; the faster of both counts. btrfs makes its mirror and
    // its stripe.
    let fastest = rates.max_by(f64::total_cmp);
    let rate = fastest.or_else(|| of(&format!("{server} {layout}, btrfs")));
    rate.map(|rate| rate / 1e6)
}

fn share(data: &Value, server: &str) -> Option<f64> {
    let rows = [
        format!("{server} single, threads"),
        format!("{server} single"),
    ];
    let shares = rows
        .iter()
        .filter_map(|row| number(named(data, "layouts", row)?, "ratio"));
    shares.max_by(f64::total_cmp)
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
    let single = rate(data, "Sluice", "single", "stored");
    let two = rate(data, "Sluice", "hash", "stored")
        .zip(single)
        .map(|(hash, single)| {
            let times = measured(&digits(hash / single.max(1e-9)));
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
    let mut table = Table::new("MB/s beside the article", &titles);
    for (layout, cloud, metal) in ARTICLE {
        let here = |server, field| Cell::measured(with_unit(rate(data, server, layout, field), ""));
        let stored = match layout {
            "no cache" => Cell::text(""),
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
    }
    table
}

fn chart(data: &Value) -> String {
    let group = |(layout, cloud, metal): (&str, f64, f64)| {
        let named = |server: &str, what: &str, field: &str| {
            let value = rate(data, server, layout, field);
            value.map(|value| Bar {
                name: format!("{server}, {what}"),
                ..bar(server, Some(value), megabytes)
            })
        };
        let mut bars = vec![
            article("article, EC2", cloud, megabytes),
            article("article, bare metal", metal, megabytes),
        ];
        bars.extend(named("nginx", "sent to clients", "clients"));
        bars.extend(named("Sluice", "sent to clients", "clients"));
        if layout != "no cache" {
            bars.extend(named("Sluice", "stored on disks", "stored"));
        }
        Group {
            name: layout.to_owned(),
            bars,
        }
    };
    if list(data, "layouts").next().is_none() {
        return String::new();
    }
    bars("Throughput by layout", &ARTICLE.map(group), Kind::Powers)
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
