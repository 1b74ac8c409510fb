//! The tables of `sluice top`: their columns, rows and order.

use super::format::time as long_time;
use super::format::{byte_rate, bytes, count, duration, percent, rate, shortened};
use super::lists::{Route, Url};
use super::snapshot::{Cache, Disk, Origin, Snapshot, Worker};

/// Most characters of a cell.
const CELL_MAX: usize = 60;
/// Most characters of a URL or route, in the last column of its table.
const URL_MAX: usize = 200;

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pane {
    /// Caches.
    Caches,
    /// Volumes.
    Volumes,
    /// Servers of upstreams.
    Servers,
    /// Workers.
    Workers,
    /// Routes with the most requests.
    Routes,
    /// URLs with the most traffic.
    Urls,
}

impl Pane {
    /// All tables, in the order in which they are shown.
    pub const ALL: [Pane; 6] = [
        Pane::Caches,
        Pane::Volumes,
        Pane::Servers,
        Pane::Workers,
        Pane::Routes,
        Pane::Urls,
    ];

    /// Returns the position of the table among all.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns the name of the table's rows.
    pub fn title(self) -> &'static str {
        match self {
            Pane::Caches => "caches",
            Pane::Volumes => "volumes",
            Pane::Servers => "servers",
            Pane::Workers => "workers",
            Pane::Routes => "routes",
            Pane::Urls => "URLs",
        }
    }

    /// Returns the number of rows that the table has in a snapshot; `None` if the server does not know them.
    pub fn len(self, snapshot: &Snapshot) -> Option<usize> {
        match self {
            Pane::Caches => Some(snapshot.caches.len()),
            Pane::Volumes => Some(snapshot.volumes.len()),
            Pane::Servers => Some(snapshot.servers.len()),
            Pane::Workers => Some(snapshot.workers.len()),
            Pane::Routes => snapshot.routes.as_ref().map(Vec::len),
            Pane::Urls => snapshot.urls.as_ref().map(Vec::len),
        }
    }

    /// Returns the titles of the columns.
    pub fn columns(self) -> Vec<&'static str> {
        match self {
            Pane::Caches => titles(CACHES),
            Pane::Volumes => titles(VOLUMES),
            Pane::Servers => titles(SERVERS),
            Pane::Workers => titles(WORKERS),
            Pane::Routes => titles(ROUTES),
            Pane::Urls => titles(URLS),
        }
    }
}

/// How remarkable a value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// Nothing remarkable.
    #[default]
    Plain,
    /// Something works as it should.
    Good,
    /// Something needs attention soon.
    Warning,
    /// Something does not work.
    Bad,
}

/// One cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The text that is shown.
    pub text: String,
    /// Whether the text is a number, which is aligned to the right.
    pub is_number: bool,
    /// How remarkable the value is.
    pub mood: Mood,
    /// The value by which rows are sorted, if they are not sorted by text. Unknown values are last.
    value: Option<f64>,
}

/// A column: its title, and its cell in a row.
type Column<R> = (&'static str, fn(&R) -> Cell);

/// The order of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Index of the column by which rows are sorted; `None`: in the order of the server.
    pub column: Option<usize>,
    /// Whether the smallest value, or the last text, comes first.
    pub is_reversed: bool,
}

/// Returns the rows of a table in this order.
pub fn rows(pane: Pane, snapshot: &Snapshot, order: Order) -> Vec<Vec<Cell>> {
    let mut rows = match pane {
        Pane::Caches => cells(CACHES, &snapshot.caches),
        Pane::Volumes => cells(VOLUMES, &snapshot.volumes),
        Pane::Servers => cells(SERVERS, &snapshot.servers),
        Pane::Workers => cells(WORKERS, &snapshot.workers),
        Pane::Routes => cells(ROUTES, snapshot.routes.as_deref().unwrap_or_default()),
        Pane::Urls => cells(URLS, snapshot.urls.as_deref().unwrap_or_default()),
    };
    sort(&mut rows, order);
    rows
}

/// Sorts rows: numbers from the largest on, texts from the first on.
fn sort(rows: &mut [Vec<Cell>], order: Order) {
    if let Some(column) = order.column {
        rows.sort_by(|a, b| match (a.get(column), b.get(column)) {
            (Some(a), Some(b)) => compare(a, b, order.is_reversed),
            _ => std::cmp::Ordering::Equal,
        });
    } else if order.is_reversed {
        rows.reverse();
    }
}

fn compare(a: &Cell, b: &Cell, is_reversed: bool) -> std::cmp::Ordering {
    let natural = match (a.is_number, a.value, b.value) {
        (false, ..) => a.text.cmp(&b.text),
        (true, Some(a), Some(b)) => b.total_cmp(&a),
        // Unknown values are last in both orders.
        (true, a, b) => return b.is_some().cmp(&a.is_some()),
    };
    match is_reversed {
        true => natural.reverse(),
        false => natural,
    }
}

fn titles<R>(columns: &[Column<R>]) -> Vec<&'static str> {
    columns.iter().map(|(title, _)| *title).collect()
}

fn cells<R>(columns: &[Column<R>], rows: &[R]) -> Vec<Vec<Cell>> {
    let row = |row: &R| columns.iter().map(|(_, cell)| cell(row)).collect();
    rows.iter().map(row).collect()
}

fn text(text: &str) -> Cell {
    Cell {
        text: shortened(text, CELL_MAX),
        is_number: false,
        mood: Mood::Plain,
        value: None,
    }
}

fn number(text: String, value: Option<f64>) -> Cell {
    Cell {
        text,
        is_number: true,
        mood: Mood::Plain,
        value,
    }
}

fn whole(value: u64) -> Cell {
    number(count(value as f64), Some(value as f64))
}

fn size(value: u64) -> Cell {
    number(bytes(value as f64), Some(value as f64))
}

fn per_second(value: Option<f64>) -> Cell {
    number(rate(value), value)
}

fn bytes_per_second(value: Option<f64>) -> Cell {
    number(byte_rate(value), value)
}

fn share(value: Option<f64>) -> Cell {
    number(percent(value), value)
}

fn time(us: Option<u64>) -> Cell {
    number(duration(us), us.map(|us| us as f64))
}

impl Cell {
    /// Marks a cell whose number is above zero.
    fn bad_if_any(self) -> Cell {
        let mood = match self.value {
            Some(value) if value > 0.0 => Mood::Bad,
            _ => self.mood,
        };
        Cell { mood, ..self }
    }
}

/// Returns a state, which is marked.
fn state(name: &str, suffix: &str) -> Cell {
    let mood = match name {
        "up" => Mood::Good,
        "drain" | "checking" | "resolving" | "loading" => Mood::Warning,
        _ => Mood::Bad,
    };
    Cell {
        mood,
        ..text(&format!("{name}{suffix}"))
    }
}

/// Share of a cache's memory from which on it is worth a look: objects are evicted then, which is normal.
const FULL: f64 = 0.98;

const CACHES: &[Column<Cache>] = &[
    ("cache", |row| text(&row.name)),
    ("objects", |row| whole(row.objects)),
    ("memory", |row| size(row.memory_bytes)),
    ("of", |row| size(row.memory_limit_bytes)),
    ("used", used),
    ("pinned", |row| size(row.pinned_bytes)),
    ("fetches", |row| whole(row.flights)),
    ("evicted/s", |row| per_second(row.evicted_per_s)),
    ("unused for", |row| {
        let age = row.evicted_age_s;
        number(age.map_or("-".to_owned(), long_time), age.map(|s| s as f64))
    }),
    ("disk hits/s", |row| per_second(row.volume_hits_per_s)),
    ("from disk", |row| bytes_per_second(row.volume_bytes_per_s)),
];

fn used(row: &Cache) -> Cell {
    let limit = row.memory_limit_bytes;
    let used = (limit > 0).then(|| row.memory_bytes as f64 / limit as f64);
    let mood = match used {
        Some(used) if used >= FULL => Mood::Warning,
        _ => Mood::Plain,
    };
    Cell {
        mood,
        ..share(used)
    }
}

const VOLUMES: &[Column<Disk>] = &[
    ("volume", |row| text(&row.name)),
    ("state", |row| state(&row.state, "")),
    ("size", |row| size(row.size_bytes)),
    ("written", |row| bytes_per_second(row.written_bytes_per_s)),
    ("read", |row| bytes_per_second(row.read_bytes_per_s)),
    ("reads/s", |row| per_second(row.reads_per_s)),
    ("per read", |row| time(row.read_us)),
    ("writing", |row| share(row.writing)),
    ("disk busy", |row| share(row.busy)),
    ("queued", |row| size(row.queue_bytes)),
    ("shed/s", |row| per_second(row.shed_per_s).bad_if_any()),
    ("errors", |row| whole(row.errors).bad_if_any()),
    ("damaged", |row| whole(row.damaged).bad_if_any()),
    ("laps", |row| whole(row.laps)),
];

const SERVERS: &[Column<Origin>] = &[
    ("server", |row| text(&row.address)),
    ("upstream", |row| text(&row.upstream)),
    ("state", |row| {
        state(&row.state, if row.backup { " (backup)" } else { "" })
    }),
    ("requests/s", |row| per_second(row.requests_per_s)),
    ("failures/s", |row| {
        per_second(row.failures_per_s).bad_if_any()
    }),
    ("busy", |row| whole(row.busy)),
    ("idle", |row| whole(row.idle)),
    ("reused", |row| share(row.reused)),
    ("received", |row| bytes_per_second(row.bytes_in_per_s)),
    ("head p50", |row| time(row.header.p50_us)),
    ("p99", |row| time(row.header.p99_us)),
    ("rtt p50", |row| time(row.rtt.p50_us)),
    ("failures", |row| whole(row.failures)),
    ("why", |row| text(row.why.as_deref().unwrap_or_default())),
];

const WORKERS: &[Column<Worker>] = &[
    ("worker", |row| whole(row.worker as u64)),
    ("cpu", |row| share(row.cpu)),
    ("connections", |row| whole(row.connections_now)),
    ("requests", |row| whole(row.requests_now)),
    ("requests/s", |row| per_second(row.requests_per_s)),
    ("hits", |row| share(row.hit_ratio)),
    ("to clients", |row| bytes_per_second(row.client_bytes_per_s)),
    ("from origins", |row| {
        bytes_per_second(row.upstream_bytes_per_s)
    }),
    ("fetches", |row| whole(row.flights_now)),
    ("panics", |row| whole(row.panics).bad_if_any()),
];

const ROUTES: &[Column<Route>] = &[
    ("requests/s", |row| per_second(row.requests_per_s)),
    ("hits", |row| share(row.hit_ratio)),
    ("5xx/s", |row| {
        per_second(row.responses_5xx_per_s).bad_if_any()
    }),
    ("p99", |row| time(row.p99_us)),
    ("to clients", |row| bytes_per_second(row.body_bytes_per_s)),
    ("from origins", |row| {
        bytes_per_second(row.upstream_bytes_per_s)
    }),
    ("route, in the last minute", |row| Cell {
        text: shortened(&row.route, URL_MAX),
        ..text("")
    }),
];

/// The columns of URLs. Those at the indexes in `URL_ORDERS` have an order that the server knows.
const URLS: &[Column<Url>] = &[
    ("requests", |row| whole(row.requests)),
    ("misses", |row| whole(row.misses)),
    ("bytes", |row| size(row.bytes)),
    ("latency", |row| time(row.latency_us)),
    ("URL of the last 5 minutes", |row| Cell {
        text: shortened(&row.url, URL_MAX),
        ..text("")
    }),
];

/// Names of the columns of URLs in the query of `GET /top`.
pub const URL_ORDERS: [&str; 4] = ["requests", "misses", "bytes", "latency"];

#[cfg(test)]
mod tests {
    use super::*;

    fn by(column: usize, is_reversed: bool) -> Order {
        Order {
            column: Some(column),
            is_reversed,
        }
    }

    fn names(order: Order) -> String {
        let cache = |name: &str, evicted_per_s| Cache {
            name: name.to_owned(),
            evicted_per_s,
            ..Cache::default()
        };
        let snapshot = Snapshot {
            caches: vec![
                cache("b", Some(2.0)),
                cache("a", None),
                cache("c", Some(10.0)),
            ],
            ..Snapshot::default()
        };
        let rows = rows(Pane::Caches, &snapshot, order);
        rows.iter().map(|row| row[0].text.as_str()).collect()
    }

    #[test]
    fn rows_are_sorted_by_text_or_number() {
        assert_eq!(names(Order::default()), "bac");
        assert_eq!(names(by(0, false)), "abc");
        assert_eq!(names(by(0, true)), "cba");
        assert_eq!(names(by(7, false)), "cba");
        // The unknown number is last in both directions.
        assert_eq!(names(by(7, true)), "bca");
        assert_eq!(names(by(99, true)), "bac");
    }

    #[test]
    fn every_table_has_as_many_cells_as_columns() {
        let snapshot = Snapshot {
            caches: vec![Cache::default()],
            volumes: vec![Disk::default()],
            servers: vec![Origin::default()],
            workers: vec![Worker::default()],
            routes: Some(vec![Route::default()]),
            urls: Some(vec![Url::default()]),
            ..Snapshot::default()
        };
        for pane in Pane::ALL {
            let rows = rows(pane, &snapshot, Order::default());
            assert_eq!(rows.len(), 1);
            assert_eq!(rows[0].len(), pane.columns().len());
            assert_eq!(Pane::ALL[pane.index()], pane);
        }
        assert_eq!(
            URLS.iter().map(|(title, _)| *title).collect::<Vec<_>>()[..4],
            URL_ORDERS
        );
    }

    #[test]
    fn states_are_marked() {
        let mood = |name: &str| state(name, "").mood;
        assert_eq!(mood("up"), Mood::Good);
        assert_eq!(mood("drain"), Mood::Warning);
        assert_eq!(mood("ejected"), Mood::Bad);
        assert_eq!(whole(0).bad_if_any().mood, Mood::Plain);
        assert_eq!(whole(1).bad_if_any().mood, Mood::Bad);
    }
}
