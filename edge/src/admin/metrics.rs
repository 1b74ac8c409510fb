//! Writes `GET /metrics`: the status in Prometheus' text format (version 0.0.4) or as OpenMetrics (version 1.0.0).

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use super::status::{Status, VolumeState, VolumeUse};
use crate::telemetry::{
    BufferNumbers, CacheNumbers, CertificateNumbers, CertificateTotals, CompressNumbers,
    EffectiveState, Failures, FilesNumbers, Histogram, Kind, Measures, Metric, Numbers,
    ProcessNumbers, Reasons, RouteNumbers, Scope, ServerMeasures, ServerNumbers, Turns,
    VolumeFlags, VolumeNumbers, WorkerNumbers,
};

/// The format of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Prometheus' own format.
    Prometheus,
    /// OpenMetrics.
    OpenMetrics,
}

impl Format {
    /// Chooses the format by the values of Accept.
    pub(super) fn accepted<'a>(mut accept: impl Iterator<Item = &'a str>) -> Format {
        match accept.any(|value| value.contains("application/openmetrics-text")) {
            true => Format::OpenMetrics,
            false => Format::Prometheus,
        }
    }

    /// Returns the media type.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Returns the complete text of the response.
pub(super) fn render(status: &Status, format: Format) -> String {
    let mut out = Exposition {
        text: String::with_capacity(64 << 10),
        format,
        turns: Turns::of(SAMPLES_PER_TURN),
    };
    out.info(status);
    out.workers(status);
    out.routes(status);
    let caches = status.caches.iter();
    out.numbers::<CacheNumbers, 1>(caches.map(|(name, numbers)| ([name.as_str()], *numbers)));
    out.numbers::<BufferNumbers, 0>([([], status.buffers)]);
    out.numbers::<CompressNumbers, 0>(status.compress.map(|numbers| ([], numbers)));
    let volumes = status.volumes.iter();
    out.numbers::<VolumeFlags, 1>(volumes.clone().map(|v| ([v.name.as_str()], flags(v))));
    out.numbers::<VolumeNumbers, 1>(volumes.map(|v| ([v.name.as_str()], v.numbers)));
    let files = status.files.iter();
    out.numbers::<FilesNumbers, 1>(files.map(|files| ([files.root.as_str()], files.numbers)));
    out.certificates(status);
    out.servers(&servers(status));
    out.end()
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

/// Number of samples that are written in one turn, which takes about half a millisecond.
const SAMPLES_PER_TURN: usize = 2048;

struct Exposition {
    text: String,
    format: Format,
    turns: Turns,
}

impl Exposition {
    /// Writes the numbers of the process.
    fn info(&mut self, status: &Status) {
        self.family("sluice_info", "The program's version.", Kind::Gauge, None);
        self.sample("sluice_info", &["version"], &[&status.version], 1);
        self.numbers::<ProcessNumbers, 0>([([], status.process)]);
    }

    /// Writes the numbers and histograms of the workers, and the requests by reason.
    fn workers(&mut self, status: &Status) {
        let workers: Vec<String> = (0..status.workers.len()).map(|n| n.to_string()).collect();
        let numbers = status.workers.iter().copied();
        self.numbers::<WorkerNumbers, 1>(workers.iter().map(|n| [n.as_str()]).zip(numbers));
        let measures = workers.iter().zip(&status.measures_by_worker);
        self.measures(measures.map(|(worker, measures)| ([worker.as_str()], measures)));
        let metric = &Reasons::METRIC;
        self.described(metric);
        let name = metric.exposed_name();
        for (reason, n) in status.measures.requests_by_reason.iter() {
            self.sample(&name, metric.scope.labels(), &[reason], n);
        }
    }

    /// Writes the numbers of routes, and their sums by site and cache.
    fn routes(&mut self, status: &Status) {
        let routes = status.routes.iter();
        self.numbers::<RouteNumbers, 1>(routes.map(|(name, numbers)| ([&**name], *numbers)));
        for (scope, sums) in [
            (Scope::Site, &status.sites),
            (Scope::Cache, &status.cache_traffic),
        ] {
            let sums = sums.iter();
            let sums = sums.map(|(name, numbers)| ([name.as_str()], *numbers));
            self.numbers_of::<RouteNumbers, 1>(scope, sums);
        }
    }

    /// Writes the numbers of the certificates.
    fn certificates(&mut self, status: &Status) {
        let certificates = &status.certificates;
        self.numbers::<CertificateTotals, 0>([([], certificates.totals)]);
        let listed: Vec<_> = certificates.list.iter().collect();
        let labels: Vec<[String; 2]> = listed.iter().map(|one| one.labels()).collect();
        let labels = labels
            .iter()
            .map(|labels| labels.each_ref().map(String::as_str));
        let numbers = listed.iter().map(|one| one.numbers());
        self.numbers::<CertificateNumbers, 2>(labels.zip(numbers));
    }

    /// Writes the metrics of all members of a scope. Each member has the values of the scope's `L`
    /// labels, and its numbers.
    fn numbers<'a, N: Numbers, const L: usize>(
        &mut self,
        members: impl IntoIterator<Item = ([&'a str; L], N)>,
    ) {
        if let Some(metric) = N::METRICS.first() {
            self.numbers_of(metric.scope, members);
        }
    }

    /// Writes metrics like `numbers`, for the members of this scope.
    fn numbers_of<'a, N: Numbers, const L: usize>(
        &mut self,
        scope: Scope,
        members: impl IntoIterator<Item = ([&'a str; L], N)>,
    ) {
        let members: Vec<([&str; L], Vec<u64>)> = members
            .into_iter()
            .map(|(labels, numbers)| (labels, numbers.values().collect()))
            .collect();
        for (index, metric) in N::METRICS.iter().enumerate() {
            let metric = metric.of_scope(scope);
            self.described(&metric);
            let name = metric.exposed_name();
            for (labels, values) in &members {
                let value = metric.in_base_unit(values[index]);
                self.sample(&name, scope.labels(), labels, value);
            }
        }
    }

    /// Writes the numbers, durations, failures and states of the servers.
    fn servers(&mut self, servers: &BTreeMap<[&str; 2], Server>) {
        let numbers = servers.iter();
        self.numbers::<ServerNumbers, 2>(numbers.map(|(labels, server)| (*labels, server.numbers)));
        let measures = servers.iter();
        self.measures(measures.map(|(labels, server)| (*labels, &server.measures)));
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
        self.described(metric);
        let name = metric.exposed_name();
        let labels = [metric.scope.labels(), &[label]].concat();
        for ([upstream, server], text, value) in values {
            self.sample(&name, &labels, &[upstream, server, text], value);
        }
    }

    /// Writes the histograms of all members of a scope. Each member has the values of the scope's `L` labels.
    fn measures<'a, M: Measures, const L: usize>(
        &mut self,
        members: impl Iterator<Item = ([&'a str; L], &'a M)>,
    ) {
        let members: Vec<_> = members.collect();
        for (index, metric) in M::METRICS.iter().enumerate() {
            self.described(metric);
            for (labels, measures) in &members {
                if let Some((metric, histogram)) = measures.histograms().nth(index) {
                    self.histogram(metric, labels, histogram);
                }
            }
        }
    }

    /// Writes the histogram of one member.
    fn histogram(&mut self, metric: &Metric, member: &[&str], histogram: &Histogram) {
        let name = metric.exposed_name();
        let labels = metric.scope.labels();
        let bucket_labels = [labels, &["le"]].concat();
        let count = histogram.count();
        let bucket = format!("{name}_bucket");
        let finite = histogram.exported(metric.unit);
        let bounds = finite.map(|(bound, n)| (float(bound), n));
        for (bound, n) in bounds.chain([("+Inf".to_owned(), count)]) {
            let values = [member, &[&bound]].concat();
            self.sample(&bucket, &bucket_labels, &values, n);
        }
        let sum = histogram.base_sum(metric.unit);
        self.sample(&format!("{name}_sum"), labels, member, float(sum));
        self.sample(&format!("{name}_count"), labels, member, count);
    }

    /// Writes the description of a metric.
    fn described(&mut self, metric: &Metric) {
        let name = match self.format {
            Format::Prometheus => metric.exposed_name(),
            Format::OpenMetrics => metric.family_name(),
        };
        self.family(&name, metric.help, metric.kind, metric.unit.base());
    }

    fn family(&mut self, name: &str, help: &str, kind: Kind, unit: Option<&str>) {
        let mut help = help.replace('\\', "\\\\").replace('\n', "\\n");
        if self.format == Format::OpenMetrics {
            help = help.replace('"', "\\\"");
        }
        let kind = kind.as_str();
        // Writing to a String can't fail, here and in the rest of this file.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        if let (Format::OpenMetrics, Some(unit)) = (self.format, unit) {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
    }

    /// Returns the complete text.
    fn end(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    fn sample(&mut self, name: &str, labels: &[&str], texts: &[&str], value: impl Display) {
        self.text.push_str(name);
        for (i, (label, text)) in labels.iter().zip(texts).enumerate() {
            self.text.push(if i == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            self.escaped(text);
            self.text.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
        self.turns.step();
    }

    /// Writes the text of a label.
    fn escaped(&mut self, text: &str) {
        let mut rest = text;
        while let Some(at) = rest.find(['\\', '"', '\n']) {
            let (plain, special) = rest.split_at(at);
            self.text.push_str(plain);
            self.text.push_str(match special.as_bytes()[0] {
                b'\n' => "\\n",
                b'"' => "\\\"",
                _ => "\\\\",
            });
            rest = &special[1..];
        }
        self.text.push_str(rest);
    }
}

/// Writes a number so that OpenMetrics takes it for one with a fraction.
fn float(number: f64) -> String {
    match number.fract() == 0.0 {
        true => format!("{number:.1}"),
        false => number.to_string(),
    }
}
