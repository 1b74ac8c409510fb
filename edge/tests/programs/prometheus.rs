//! Tests with Prometheus, which scrapes the edge and evaluates the rules and the dashboard in `packaging`.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use sluice_lab::client;
use sluice_lab::origin::{Origin, Resource};
use sluice_lab::process::{Launch, Process, free_port};

use crate::harness::{Edge, SOON, Setup, eventually, fresh, origin};
use crate::tools::{installed, run};

const PROGRAMS: [&str; 2] = ["prometheus", "promtool"];
const RULES: &str = "prometheus/sluice.rules.yml";
/// Panels that may show nothing: the kernel counts the work of some disks only, and not of file systems in memory.
const QUIET: [&str; 1] = ["Disk: time of a read or write"];

fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../packaging")
        .join(file)
}

fn read(file: &str) -> String {
    fs::read_to_string(packaging(file)).expect("a file of the repository")
}

/// Returns the dashboard.
fn dashboard() -> Value {
    serde_json::from_str(&read("grafana/sluice.json")).expect("JSON")
}

/// Returns the panels that have queries.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let panels = dashboard["panels"].as_array().expect("panels");
    panels.iter().filter(|panel| panel["type"] != "row")
}

/// Returns the queries of a panel or of the dashboard's annotations, with values in place of variables.
fn queries(list: &Value) -> Vec<String> {
    let list = list.as_array().expect("a list of queries");
    let query = |target: &Value| {
        let query = target["expr"].as_str().expect("a query");
        let query = query.replace("$__rate_interval", "20s");
        let query = ["$instance", "$upstream"]
            .iter()
            .fold(query, |query, variable| query.replace(variable, ".*"));
        assert!(!query.contains('$'), "a variable is left: {query}");
        query
    };
    list.iter().map(query).collect()
}

/// Returns the names of Sluice's metrics in a text of rules or queries. Names with a colon belong to recording rules.
fn metrics(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.split(|c| !is_part(c))
        .filter(|word| word.starts_with("sluice_") && !word.contains(':'))
        .map(str::to_owned)
        .collect()
}

/// Returns the names of the samples that an exposition may have. A histogram has three.
fn exposed(exposition: &str) -> BTreeSet<String> {
    let types = exposition
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .flat_map(|line| {
            let (name, kind) = line.split_once(' ').expect("a name and a type");
            let ends: &[&str] = match kind {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            ends.iter().map(move |end| format!("{name}{end}"))
        })
        .collect()
}

/// Starts an edge with everything that the dashboard shows: a cache with a volume, two servers and a certificate.
fn edge(folder: &Path, origins: [&Origin; 2]) -> Edge {
    let volume = folder.join("volume");
    Setup::cached(origins[0])
        .also(origins[1])
        .encrypted()
        .cache("memory = \"16MiB\"\nvolumes = [\"disk\"]")
        .tables(&format!(
            "[volume.disk]\npath = {volume:?}\nsize = \"64MiB\"\n"
        ))
        .start()
}

/// A running Prometheus that scrapes an edge every second.
struct Prometheus {
    address: SocketAddr,
    _process: Process,
}

impl Prometheus {
    /// Starts the program with the rules. Alerts fire without their usual delay.
    fn start(folder: &Path, edge: &Edge) -> Prometheus {
        let rules = read(RULES);
        let at_once = rules
            .lines()
            .filter(|line| !line.trim_start().starts_with("for: "));
        let at_once: Vec<&str> = at_once.collect();
        fs::write(folder.join("rules.yml"), at_once.join("\n")).expect("written");
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [rules.yml]\n\
             scrape_configs:\n  - job_name: sluice\n    static_configs: [{{ targets: [\"{}\"] }}]\n",
            edge.admin
        );
        fs::write(folder.join("prometheus.yml"), config).expect("written");
        run(folder, "promtool", &["check", "config", "prometheus.yml"]);
        let address = SocketAddr::from(([127, 0, 0, 1], free_port().expect("a free port")));
        let config = folder.join("prometheus.yml");
        let data = folder.join("data");
        let mut process = Launch::new("prometheus", "prometheus", folder)
            .args([
                format!("--config.file={}", config.display()),
                format!("--storage.tsdb.path={}", data.display()),
                format!("--web.listen-address={address}"),
            ])
            .start()
            .expect("the program starts");
        process.wait_listening(address, SOON).expect("it listens");
        Prometheus {
            address,
            _process: process,
        }
    }

    /// Sends a GET to the API and returns `data` of the answer.
    fn get(&self, target: &str) -> Result<Value, String> {
        let reply = client::get(self.address, target, &[]).map_err(|error| error.to_string())?;
        let value: Value = serde_json::from_slice(&reply.body).map_err(|_| reply.text())?;
        match value["status"] == "success" {
            true => Ok(value["data"].clone()),
            false => Err(reply.text()),
        }
    }

    /// Evaluates a query. Returns the results, or the error of the query.
    fn query(&self, query: &str) -> Result<Vec<Value>, String> {
        let query = utf8_percent_encode(query, NON_ALPHANUMERIC);
        let data = self.get(&format!("/api/v1/query?query={query}"))?;
        Ok(data["result"].as_array().cloned().unwrap_or_default())
    }

    /// Returns the first value of a query.
    fn value(&self, query: &str) -> Option<f64> {
        let results = self.query(query).expect("a query");
        results.first()?["value"][1].as_str()?.parse().ok()
    }

    /// Whether an alert with this name fires for this server.
    fn fires(&self, alert: &str, server: &str) -> bool {
        let data = self.get("/api/v1/alerts").expect("alerts");
        let alerts = data["alerts"].as_array().expect("a list");
        alerts.iter().any(|one| {
            let labels = &one["labels"];
            labels["alertname"] == alert && labels["server"] == server && one["state"] == "firing"
        })
    }
}

#[test]
fn rules_are_valid_and_pass_their_tests() {
    if !installed(&PROGRAMS) {
        return;
    }
    let folder = packaging("prometheus");
    run(&folder, "promtool", &["check", "rules", "sluice.rules.yml"]);
    run(&folder, "promtool", &["test", "rules", "sluice.tests.yml"]);
}

#[test]
fn rules_and_dashboard_name_metrics_that_exist() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let origins = [origin(), origin()];
    let edge = edge(folder.path(), origins.each_ref());
    let exposed = exposed(&edge.get_admin("/metrics").text());
    let mut named = metrics(&read(RULES));
    let dashboard = dashboard();
    for panel in panels(&dashboard) {
        named.extend(
            queries(&panel["targets"])
                .iter()
                .flat_map(|query| metrics(query)),
        );
    }
    named.extend(metrics(&dashboard["templating"].to_string()));
    named.extend(metrics(&dashboard["annotations"].to_string()));
    assert!(named.len() > 50, "{named:?}");
    let unknown: Vec<_> = named.difference(&exposed).collect();
    assert!(unknown.is_empty(), "not in /metrics: {unknown:?}");
}

#[test]
fn panels_fit_beside_one_another() {
    let dashboard = dashboard();
    let mut seen = BTreeSet::new();
    let mut areas: Vec<[u64; 4]> = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        assert!(seen.insert(panel["id"].as_u64().expect("an id")), "{panel}");
        let area =
            ["x", "y", "w", "h"].map(|name| panel["gridPos"][name].as_u64().expect("a place"));
        let [x, y, w, h] = area;
        assert!(x + w <= 24, "{panel}");
        let overlaps =
            |[ox, oy, ow, oh]: &[u64; 4]| x < ox + ow && *ox < x + w && y < oy + oh && *oy < y + h;
        assert!(!areas.iter().any(overlaps), "{panel}");
        areas.push(area);
    }
    for panel in panels(&dashboard) {
        assert!(
            panel["description"]
                .as_str()
                .is_some_and(|text| text.ends_with(['.', ')'])),
            "{panel}"
        );
    }
}

#[test]
fn prometheus_evaluates_every_query_and_alerts_fire() {
    if !installed(&PROGRAMS) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let origins = [origin(), origin()];
    for (origin, number) in origins.iter().zip(0..) {
        origin.serve(&format!("/pass/{number}"), fresh(1000));
    }
    origins[1].serve("/pass/failing", Resource::status(503));
    let edge = edge(folder.path(), origins.each_ref());
    let prometheus = Prometheus::start(folder.path(), &edge);
    let scrapes = || prometheus.value("count_over_time(up[1m])").unwrap_or(0.0);
    for round in 1..=4 {
        for origin in &origins {
            origin.serve(&format!("/x/{round}"), fresh(100_000));
        }
        for _ in 0..3 {
            edge.get(&format!("/x/{round}"), &[]);
            edge.get("/pass/0", &[]);
            edge.get("/pass/1", &[]);
            edge.get("/pass/failing", &[]);
        }
        eventually("the edge is scraped", || scrapes() >= f64::from(round));
    }
    assert_eq!(prometheus.value("up{job=\"sluice\"}"), Some(1.0));
    assert_panels_have_values(&prometheus);
    eventually("every rule is evaluated", || {
        rules_are_evaluated(&prometheus)
    });
    assert_server_alerts(&prometheus, &edge, &origins[0].addr().to_string());
}

fn assert_panels_have_values(prometheus: &Prometheus) {
    let dashboard = dashboard();
    for panel in panels(&dashboard) {
        let (mut found, title) = (0, panel["title"].as_str().expect("a title"));
        for query in queries(&panel["targets"]) {
            let results = prometheus.query(&query);
            found += results
                .unwrap_or_else(|error| panic!("{title}: {query}: {error}"))
                .len();
        }
        assert!(found > 0 || QUIET.contains(&title), "{title} is empty");
    }
    for query in queries(&dashboard["annotations"]["list"]) {
        prometheus.query(&query).expect("the query of annotations");
    }
}

/// Whether every rule was evaluated. Fails the test if a rule has an error.
fn rules_are_evaluated(prometheus: &Prometheus) -> bool {
    let data = prometheus.get("/api/v1/rules").expect("rules");
    let groups = data["groups"].as_array().expect("groups");
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().expect("rules"));
    let rules: Vec<&Value> = rules.collect();
    assert!(
        rules.iter().all(|rule| rule["health"] != "err"),
        "{rules:?}"
    );
    rules.len() > 10 && rules.iter().all(|rule| rule["health"] == "ok")
}

/// Takes a server down by an order, and asserts that its alert fires, and ends when the server is up again.
fn assert_server_alerts(prometheus: &Prometheus, edge: &Edge, server: &str) {
    let alert = "SluiceServerOutOfUse";
    assert!(!prometheus.fires(alert, server));
    for (state, fires) in [("drain", true), ("up", false), ("down", true)] {
        let order = edge.command(&["servers", "origin", server, "--set", state]);
        assert!(order.status.success(), "{order:?}");
        eventually(state, || prometheus.fires(alert, server) == fires);
    }
}
