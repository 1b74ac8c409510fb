//! Writes `GET /metrics`: the status in Prometheus' text format (version 0.0.4).

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use super::status::{Status, VolumeState, VolumeUse};
use crate::telemetry::{
    BufferNumbers, CacheNumbers, CertificateNumbers, CertificateTotals, CompressNumbers, Counters,
    EffectiveState, Failures, FilesNumbers, Histogram, Kind, Metric, Numbers, ProcessNumbers,
    ServerCounters, ServerMeasures, ServerNumbers, VolumeFlags, VolumeNumbers, WorkerNumbers,
};

/// Media type of the format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the complete text of the response.
pub(super) fn render(status: &Status) -> String {
    let mut out = Exposition(String::with_capacity(16 << 10));
    out.family("sluice_info", "The program's version.", Kind::Gauge);
    out.sample("sluice_info", &["version"], &[&status.version], 1);
    let process = ProcessNumbers {
        uptime_seconds: status.uptime_s,
        config_generation: status.reload.generation,
        tls_files_refused: status.tls_files_refused,
    };
    out.numbers::<ProcessNumbers, 0>([([], process)]);
    let workers: Vec<String> = (0..status.workers.len()).map(|n| n.to_string()).collect();
    let numbers = status.workers.iter().copied();
    out.numbers::<WorkerNumbers, 1>(workers.iter().map(|n| [n.as_str()]).zip(numbers));
    let durations = workers.iter().zip(&status.durations);
    let durations = durations.map(|(worker, histogram)| (vec![worker.as_str()], histogram));
    out.histogram(&Counters::HISTOGRAMS[0], durations);
    let caches = status.caches.iter();
    out.numbers::<CacheNumbers, 1>(caches.map(|(name, numbers)| ([name.as_str()], *numbers)));
    out.numbers::<BufferNumbers, 0>([([], status.buffers)]);
    out.numbers::<CompressNumbers, 0>(status.compress.map(|numbers| ([], numbers)));
    let volumes = status.volumes.iter();
    out.numbers::<VolumeFlags, 1>(volumes.clone().map(|v| ([v.name.as_str()], flags(v))));
    out.numbers::<VolumeNumbers, 1>(volumes.map(|v| ([v.name.as_str()], v.numbers)));
    let files = status.files.iter();
    out.numbers::<FilesNumbers, 1>(files.map(|files| ([files.root.as_str()], files.numbers)));
    let certificates = &status.certificates;
    out.numbers::<CertificateTotals, 0>([([], certificates.totals)]);
    let listed: Vec<_> = certificates.list.iter().collect();
    let labels: Vec<[String; 2]> = listed.iter().map(|one| one.labels()).collect();
    let labels = labels
        .iter()
        .map(|labels| labels.each_ref().map(String::as_str));
    let numbers = listed.iter().map(|one| one.numbers());
    out.numbers::<CertificateNumbers, 2>(labels.zip(numbers));
    out.servers(&servers(status));
    out.0
}

fn flags(volume: &VolumeState) -> VolumeFlags {
    VolumeFlags {
        up: u64::from(volume.state != VolumeUse::Out),
        loading: u64::from(volume.state == VolumeUse::Loading),
    }
}

/// The values of one address of an upstream's servers.
struct Server {
    numbers: ServerNumbers,
    measures: ServerMeasures,
    state: EffectiveState,
}

/// Returns the values of each address of each upstream. Several names of an upstream may lead to one address, which
/// then has the sum of their numbers: each combination of labels may occur only once.
fn servers(status: &Status) -> BTreeMap<[&str; 2], Server> {
    let mut all = BTreeMap::new();
    for (upstream, state) in &status.upstreams {
        for server in &state.servers {
            let labels = [upstream.as_str(), server.address.as_str()];
            let sum = all.entry(labels).or_insert_with(|| Server {
                numbers: ServerNumbers::default(),
                measures: ServerMeasures::default(),
                state: server.state,
            });
            if server.state == EffectiveState::Up {
                // The address gets requests by this name, whatever its state by others, such as `down`.
                sum.state = EffectiveState::Up;
            }
            sum.numbers.add(&server.numbers);
            sum.measures.add(&server.measures);
        }
    }
    all
}

struct Exposition(String);

impl Exposition {
    /// Writes the metrics of all members of a scope. Each member has the values of the scope's `L`
    /// labels, and its numbers.
    fn numbers<'a, N: Numbers, const L: usize>(
        &mut self,
        members: impl IntoIterator<Item = ([&'a str; L], N)>,
    ) {
        let members: Vec<([&str; L], Vec<u64>)> = members
            .into_iter()
            .map(|(labels, numbers)| (labels, numbers.values().collect()))
            .collect();
        for (index, metric) in N::METRICS.iter().enumerate() {
            let Metric { help, kind, .. } = *metric;
            let name = metric.exposed_name();
            self.family(&name, help, kind);
            for (labels, values) in &members {
                self.sample(&name, metric.scope.labels(), labels, values[index]);
            }
        }
    }

    /// Writes the numbers, durations, failures and states of the servers.
    fn servers(&mut self, servers: &BTreeMap<[&str; 2], Server>) {
        let numbers = servers.iter();
        self.numbers::<ServerNumbers, 2>(numbers.map(|(labels, server)| (*labels, server.numbers)));
        for (index, metric) in ServerCounters::HISTOGRAMS.iter().enumerate() {
            let members = servers.iter().filter_map(|(labels, server)| {
                let (_, histogram) = server.measures.histograms().nth(index)?;
                Some((labels.to_vec(), histogram))
            });
            self.histogram(metric, members);
        }
        let failures = servers.iter().flat_map(|(labels, server)| {
            let reasons = server.measures.failures_by_reason.iter();
            reasons.map(|(reason, n)| (*labels, reason.text(), n))
        });
        self.labelled(&Failures::METRIC, "reason", failures);
        let states = servers.iter().flat_map(|(labels, server)| {
            let states = EffectiveState::ALL.iter();
            states.map(|state| (*labels, state.name(), u64::from(*state == server.state)))
        });
        self.labelled(&EffectiveState::METRIC, "state", states);
    }

    /// Writes values that have a further label besides those of the servers.
    fn labelled<'a>(
        &mut self,
        metric: &Metric,
        label: &str,
        values: impl Iterator<Item = ([&'a str; 2], &'a str, u64)>,
    ) {
        let name = metric.exposed_name();
        self.family(&name, metric.help, metric.kind);
        let labels = [metric.scope.labels(), &[label]].concat();
        for ([upstream, server], text, value) in values {
            self.sample(&name, &labels, &[upstream, server, text], value);
        }
    }

    /// Writes a histogram of each member of a scope, given with the values of its labels.
    fn histogram<'a>(
        &mut self,
        metric: &Metric,
        members: impl Iterator<Item = (Vec<&'a str>, &'a Histogram)>,
    ) {
        let name = metric.exposed_name();
        self.family(&name, metric.help, metric.kind);
        let labels = metric.scope.labels();
        let bucket_labels = [labels, &["le"]].concat();
        let seconds = |us: u64| us as f64 / 1e6;
        for (member, histogram) in members {
            let count = histogram.count();
            let bucket = format!("{name}_bucket");
            let finite = histogram.exported();
            let bounds = finite.map(|(bound_us, n)| (seconds(bound_us).to_string(), n));
            for (bound, n) in bounds.chain([("+Inf".to_owned(), count)]) {
                let values = [&member[..], &[&bound]].concat();
                self.sample(&bucket, &bucket_labels, &values, n);
            }
            let sum = seconds(histogram.sum_us);
            self.sample(&format!("{name}_sum"), labels, &member, sum);
            self.sample(&format!("{name}_count"), labels, &member, count);
        }
    }

    fn family(&mut self, name: &str, help: &str, kind: Kind) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let kind = kind.as_str();
        // Writing to a String can't fail, here and in the rest of this file.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[&str], texts: &[&str], value: impl Display) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().zip(texts).enumerate() {
            let text = text
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let separator = if i == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{separator}{label}=\"{text}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }
}
