//! `GET /metrics`: the status in Prometheus' text format (version 0.0.4).

use std::fmt::Write;

use super::{CacheState, FilesState, ServerState, Status, VolumeState};

/// The format's media type.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

type Number<T> = (&'static str, &'static str, fn(&T) -> u64);

const CACHE: &[Number<CacheState>] = &[
    (
        "objects_now",
        "Objects of which something is stored.",
        |c| c.objects,
    ),
    (
        "bytes_now",
        "Bytes of memory in use, bookkeeping included.",
        |c| c.bytes,
    ),
    (
        "limit_bytes_now",
        "Bytes of memory that may be used.",
        |c| c.limit,
    ),
    (
        "pinned_bytes_now",
        "Bytes that readers or fetches hold.",
        |c| c.pinned,
    ),
    ("flights_now", "Fetches in progress.", |c| c.flights),
    ("evicted", "Objects dropped to make room.", |c| c.evicted),
    (
        "purges_now",
        "Purges that objects may still have to be checked against.",
        |c| c.purges,
    ),
    ("volume_hits", "Objects and blocks that volumes had.", |c| {
        c.volume_hits
    }),
    ("volume_bytes", "Bytes read from volumes.", |c| {
        c.volume_bytes
    }),
];

const VOLUME: &[Number<VolumeState>] = &[
    ("up_now", "Whether it is used.", |v| u64::from(v.is_up())),
    (
        "loading_now",
        "Whether it is used while its index fills.",
        |v| u64::from(v.state == "loading"),
    ),
    ("size_bytes_now", "Bytes it takes on the device.", |v| {
        v.size
    }),
    ("records_now", "Records in its index.", |v| v.records),
    ("queue_bytes_now", "Bytes that wait to be written.", |v| {
        v.queue_bytes
    }),
    ("written_bytes", "Bytes written.", |v| v.written_bytes),
    (
        "rewritten_bytes",
        "Bytes of records written again when their segment was reclaimed.",
        |v| v.rewritten_bytes,
    ),
    ("read_bytes", "Bytes read.", |v| v.read_bytes),
    ("reads", "Reads.", |v| v.reads),
    (
        "reads_at_hand",
        "Reads that the page cache answered.",
        |v| v.reads_at_hand,
    ),
    ("shed", "Records not written, as the queue was full.", |v| {
        v.shed
    }),
    (
        "shed_bytes",
        "Bytes not written, as the queue was full.",
        |v| v.shed_bytes,
    ),
    ("damaged", "Records found damaged.", |v| v.damaged),
    ("errors", "Failures of the device.", |v| v.errors),
    ("laps", "How often all of it was written.", |v| v.laps),
    (
        "write_ms",
        "Milliseconds in which something was being written.",
        |v| v.write_ms,
    ),
    ("read_ms", "Milliseconds that reads took, summed.", |v| {
        v.read_ms
    }),
];

const FILES: &[Number<FilesState>] = &[
    ("entries_now", "Paths of which something is known.", |f| {
        f.entries
    }),
    (
        "bytes_now",
        "Bytes of memory in use, bookkeeping included.",
        |f| f.bytes,
    ),
    (
        "limit_bytes_now",
        "Bytes of memory that may be used.",
        |f| f.limit,
    ),
    ("open_now", "Files held open.", |f| f.open),
    ("loaded", "Paths looked up in the file system.", |f| {
        f.loaded
    }),
];

const SERVER: &[Number<ServerState>] = &[
    ("idle_now", "Idle connections in the pools.", |s| s.idle),
    ("busy_now", "Connections in use.", |s| s.busy),
    ("requests", "Requests sent.", |s| s.requests),
    ("failures", "Exchanges that failed.", |s| s.failures),
];

/// The whole exposition.
pub(super) fn render(status: &Status) -> String {
    let mut out = Exposition(String::with_capacity(16 << 10));
    out.family("info_now", "The program's version.");
    out.sample("info_now", &[("version", &status.version)], 1);
    out.family("uptime_seconds_now", "Since the start.");
    out.sample("uptime_seconds_now", &[], status.uptime_s);
    out.family(
        "config_generation_now",
        "Configurations brought into force, the first included.",
    );
    out.sample("config_generation_now", &[], status.reload.generation);
    counters(&mut out, status);
    for (name, meaning, value) in CACHE {
        let name = format!("cache_{name}");
        out.family(&name, meaning);
        for (cache, state) in &status.caches {
            out.sample(&name, &[("cache", cache)], value(state));
        }
    }
    for (name, meaning, value) in VOLUME {
        let name = format!("volume_{name}");
        out.family(&name, meaning);
        for volume in &status.volumes {
            out.sample(&name, &[("volume", &volume.name)], value(volume));
        }
    }
    for (name, meaning, value) in FILES {
        let name = format!("files_{name}");
        out.family(&name, meaning);
        for files in &status.files {
            out.sample(&name, &[("root", &files.root)], value(files));
        }
    }
    for (name, meaning, value) in SERVER {
        let name = format!("server_{name}");
        out.family(&name, meaning);
        for (upstream, state) in &status.upstreams {
            for server in &state.servers {
                let labels = [("upstream", upstream.as_str()), ("server", &server.address)];
                out.sample(&name, &labels, value(server));
            }
        }
    }
    out.0
}

/// Each counter, with a line for each worker.
fn counters(out: &mut Exposition, status: &Status) {
    for (index, (name, meaning, _)) in status.counters.0.iter().enumerate() {
        out.family(name, meaning);
        for (worker, numbers) in status.workers.iter().enumerate() {
            if let Some((_, _, value)) = numbers.0.get(index) {
                out.sample(name, &[("worker", &worker.to_string())], *value);
            }
        }
    }
}

struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, meaning: &str) {
        let (name, kind) = exposed(name);
        let meaning = meaning.trim().replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a String can't fail, here and below.
        let _ = writeln!(self.0, "# HELP {name} {meaning}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.0.push_str(&exposed(name).0);
        for (i, (label, text)) in labels.iter().enumerate() {
            let text = text
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = write!(
                self.0,
                "{}{label}=\"{text}\"",
                if i == 0 { '{' } else { ',' }
            );
        }
        let _ = writeln!(
            self.0,
            "{} {value}",
            if labels.is_empty() { "" } else { "}" }
        );
    }
}

/// Our name's form over there: `requests` is the counter `sluice_requests_total`, `requests_now` the
/// gauge `sluice_requests`.
fn exposed(name: &str) -> (String, &'static str) {
    match name.strip_suffix("_now") {
        Some(gauge) => (format!("sluice_{gauge}"), "gauge"),
        None => (format!("sluice_{name}_total"), "counter"),
    }
}
