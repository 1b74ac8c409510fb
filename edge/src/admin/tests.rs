//! Tests of the admin API over real sockets, with a made-up edge.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sluice_lab::client::{self, Reply};

use super::*;
use crate::http::purge::{Answer, Purge, Purged};
use crate::sys::Clock;
use crate::sys::listener::bind_one;
use crate::telemetry::history::SharedHistory;
use crate::telemetry::{
    BufferNumbers, CacheNumbers, CompressNumbers, EffectiveState, FilesNumbers, Notices, Observed,
    ProcessNumbers, Rates, RouteNumbers, ServerNumbers, Telemetry, VolumeNumbers, WorkerNumbers,
};

/// Number of objects whose state takes more bytes than the buffers of a connection.
const LONG: usize = 60_000;

struct Edge {
    tokens: Arc<Tokens>,
    changes: parking_lot::Mutex<Vec<Change>>,
    reloads: AtomicU32,
    history: Option<Arc<SharedHistory>>,
    telemetry: Telemetry,
    observed: Observed,
}

impl Default for Edge {
    fn default() -> Edge {
        let clock = Clock::system();
        Edge {
            tokens: Arc::default(),
            changes: parking_lot::Mutex::default(),
            reloads: AtomicU32::default(),
            history: None,
            telemetry: Telemetry::default(),
            observed: Observed::new(clock.clone(), Notices::new(clock)),
        }
    }
}

impl Inspect for Edge {
    fn observed(&self) -> &Observed {
        &self.observed
    }

    fn note_counters(&self) {}

    fn history(&self) -> Option<Arc<SharedHistory>> {
        self.history.clone()
    }

    fn price(&self) -> Price {
        Price {
            per_gb: 0.05,
            currency: "EUR".to_owned(),
        }
    }

    fn host_name(&self) -> String {
        "edge1".to_owned()
    }

    fn admin_tokens(&self) -> Arc<Tokens> {
        self.tokens.clone()
    }

    fn now_us(&self) -> u64 {
        0
    }

    fn note_change(&self, change: &Change) {
        self.changes.lock().push(change.clone());
    }

    fn admin_tls(&self) -> Option<Arc<crate::tls::Server>> {
        None
    }

    fn is_admin_host(&self, name: &str) -> bool {
        name == "edge.example"
    }

    fn status(&self) -> Status {
        let cache = CacheNumbers {
            objects: 3,
            bytes: 2048,
            limit: 4096,
            ..CacheNumbers::default()
        };
        let route = RouteNumbers {
            requests: 7,
            hits: 3,
            body_bytes: 900,
            ..RouteNumbers::default()
        };
        let server = ServerState {
            address: "127.0.0.1:9000".to_owned(),
            name: "origin.example:9000".to_owned(),
            state: EffectiveState::Up,
            weight: 1,
            backup: false,
            numbers: ServerNumbers {
                requests: 7,
                ..ServerNumbers::default()
            },
            ..ServerState::default()
        };
        let workers = self.telemetry.workers();
        Status {
            version: "1.2.3".to_owned(),
            pid: 42,
            uptime_s: 5,
            process: ProcessNumbers {
                uptime_seconds: 5,
                config_generation: 1,
                tls_files_refused: 2,
                config_reload_failed: 0,
                resident_bytes: 7 << 20,
                memory_limit: 1 << 30,
                process_cpu_ms: 1500,
            },
            workers: workers.iter().map(|worker| worker.numbers()).collect(),
            counters: WorkerNumbers {
                requests: 7,
                ..WorkerNumbers::default()
            },
            routes: vec![("a.example /x\"*".into(), route)],
            sites: [("a.example".to_owned(), route)].into(),
            cache_traffic: [("a\"\\\nb".to_owned(), route)].into(),
            measures_by_worker: workers.iter().map(|worker| worker.measures()).collect(),
            recent: Rates::default(),
            caches: [("a\"\\\nb".to_owned(), cache)].into(),
            buffers: BufferNumbers {
                disk_bytes: 4,
                ..BufferNumbers::default()
            },
            compress: Some(CompressNumbers {
                made: 3,
                ..CompressNumbers::default()
            }),
            volumes: vec![VolumeState {
                name: "disk1".to_owned(),
                state: VolumeUse::Loading,
                loaded: 0.5,
                numbers: VolumeNumbers {
                    size: 16 << 20,
                    ..VolumeNumbers::default()
                },
                caches: vec!["video".to_owned()],
                ..VolumeState::default()
            }],
            files: vec![FilesState {
                root: "/srv/www".to_owned(),
                numbers: FilesNumbers {
                    entries: 3,
                    bytes: 7000,
                    limit: 64 << 20,
                    open: 1,
                    loaded: 9,
                },
            }],
            upstreams: [(
                "origin".to_owned(),
                UpstreamState {
                    servers: vec![server],
                    ..UpstreamState::default()
                },
            )]
            .into(),
            reload: ReloadState {
                generation: 1,
                last_error: None,
            },
            certificates: self.certificates(),
            tls_files_refused: 2,
            ..Status::default()
        }
    }

    fn explain(&self, question: &Question) -> Result<Explanation, String> {
        match question.url.as_str() {
            "http://a/" => Ok(Explanation {
                method: question.method.clone(),
                decision: "miss".to_owned(),
                ..Explanation::default()
            }),
            _ => Err("no such URL".to_owned()),
        }
    }

    fn fetch(&self, order: FetchOrder) -> Result<Fetching, Refusal> {
        let (report, fetching) = tokio::sync::oneshot::channel();
        let _ = report.send(Fetched {
            state: "complete".to_owned(),
            bytes: u64::from(order.refresh),
            ..Fetched::default()
        });
        Ok(fetching)
    }

    fn certificates(&self) -> Certificates {
        let file = CertificateState {
            names: vec!["a.example".to_owned(), "b.example".to_owned()],
            file: Some("/etc/a.pem".to_owned()),
            in_use: true,
            not_after_unix_s: Some(2_000_000_000),
            ..CertificateState::default()
        };
        let missing = CertificateState {
            names: vec!["c.example".to_owned(), "d.example".to_owned()],
            source: CertificateSource::Acme,
            failures: 3,
            renewal_unix_s: Some(1_900_000_000),
            last_error: Some("refused\n\u{1b}".to_owned()),
            warning: Some("there is no certificate yet".to_owned()),
            ..CertificateState::default()
        };
        Certificates::new(vec![file, missing], 1_800_000_000)
    }

    fn order_certificate(&self, order: &CertificateOrder) -> Result<Ordered, Refusal> {
        let text = format!("{:?} {:?}\n", order.order, order.reason);
        let (done, result) = tokio::sync::oneshot::channel();
        let outcome = match order.name.as_str() {
            "a.example" => None,
            "b.example" => Some(Ok(())),
            "c.example" => Some(Err("the authority refuses".to_owned())),
            _ => {
                let why = "no such certificate\n".to_owned();
                return Err(Refusal { status: 404, why });
            }
        };
        let result = outcome.map(|outcome| {
            done.send(outcome).expect("a receiver");
            result
        });
        Ok(Ordered { text, result })
    }

    fn what_if(&self) -> WhatIf {
        let ratios = HitRatios {
            hit_ratio: Some(0.75),
            byte_hit_ratio: None,
        };
        let video = CacheWhatIf {
            memory: 4096,
            sampled: 1.0,
            points: vec![SizeRatios {
                times: 2.0,
                bytes: 8192,
                ratios,
            }],
            ..CacheWhatIf::default()
        };
        WhatIf {
            caches: [("video".to_owned(), video)].into(),
        }
    }

    fn upstreams(&self) -> BTreeMap<String, UpstreamState> {
        self.status().upstreams
    }

    fn exchanges(&self, _: &str) -> Result<ServerExchanges, Refusal> {
        Ok(ServerExchanges::default())
    }

    fn order_server(&self, order: &ServerOrder) -> Result<(), Refusal> {
        let expected = ServerOrder {
            upstream: "origin".to_owned(),
            server: "127.0.0.1:9000".to_owned(),
            set: Some(ServerSet::Drain),
            weight: None,
        };
        match *order == expected {
            true => Ok(()),
            false => Err(Refusal {
                status: 404,
                why: "no such server\n".to_owned(),
            }),
        }
    }

    fn url(&self, url: &str, _: &str) -> Result<UrlObjects, String> {
        match url {
            "http://a/x?y=1&z" => Ok(UrlObjects {
                note: None,
                caches: vec![UrlState {
                    cache: "video".to_owned(),
                    objects: vec![ObjectState {
                        stored: vec![Span::of(0..10)],
                        ..ObjectState::default()
                    }],
                }],
            }),
            "http://a/long" => Ok(UrlObjects {
                note: None,
                caches: vec![UrlState {
                    cache: "video".to_owned(),
                    objects: vec![ObjectState::default(); LONG],
                }],
            }),
            _ => Err("not a URL".to_owned()),
        }
    }

    fn purge(&self, order: &Order) -> Result<Purging, Refusal> {
        let purged = |rule: &Purge| Purged {
            cache: order.cache.clone(),
            sequence: 12,
            rule: rule.clone(),
            soft: order.soft,
            matched: None,
        };
        match order.cache.as_deref() {
            Some("c") => Ok(Purging {
                answer: Answer {
                    purged: order.what.iter().map(purged).collect(),
                },
                logged: None,
            }),
            _ => Err(Refusal {
                status: 404,
                why: "there is no such cache".to_owned(),
            }),
        }
    }

    fn reload(&self) -> Result<String, String> {
        match self.reloads.fetch_add(1, Ordering::SeqCst) {
            0 => Ok("cache video changed\n".to_owned()),
            1 => Err("error: no site\n".to_owned()),
            _ => panic!("reload"),
        }
    }
}

fn start() -> (Admin, Arc<Edge>) {
    start_with(Edge::default())
}

fn start_with(edge: Edge) -> (Admin, Arc<Edge>) {
    let edge = Arc::new(edge);
    for (index, requests) in [3, 4].into_iter().enumerate() {
        let worker = edge.telemetry.worker(index);
        worker.requests.add(requests);
        worker.request_duration.record(1_000 * requests);
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = bind_one(address).expect("a port");
    let admin = Admin::start(AdminSocket::Tcp(listener), edge.clone());
    (admin.expect("a free port"), edge)
}

fn address(admin: &Admin) -> SocketAddr {
    admin.address().expect("a TCP socket")
}

fn ask(admin: &Admin, method: &str, target: &str, headers: &[(&str, &str)]) -> Reply {
    client::once(address(admin), method, target, headers, b"").expect("an answer")
}

#[test]
fn status_is_json() {
    let (admin, _) = start();
    let reply = ask(&admin, "GET", "/status", &[]);
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some("application/json"))
    );
    let value: serde_json::Value = serde_json::from_str(&reply.text()).expect("JSON");
    assert_eq!(value["pid"], 42);
    assert_eq!(value["counters"]["requests"], 7);
    assert_eq!(value["workers"][1]["requests"], 4);
    assert_eq!(value["upstreams"]["origin"]["servers"][0]["requests"], 7);
    assert_eq!(value["volumes"][0]["loaded"], 0.5);
    assert_eq!(value["volumes"][0]["caches"][0], "video");
    assert_eq!(value["reload"]["generation"], 1);
}

// Only one of the names may be `down` in the configuration, or have tried to connect.
#[test]
fn an_address_of_two_names_has_the_sum_of_their_numbers_and_is_up_if_one_of_them_is() {
    let mut status = Edge::default().status();
    let origin = status.upstreams.get_mut("origin").expect("an upstream");
    let up = origin.servers[0].clone();
    let down = ServerState {
        state: EffectiveState::Down,
        ..up.clone()
    };
    for servers in [vec![up.clone(), down.clone()], vec![down, up]] {
        let origin = status.upstreams.get_mut("origin").expect("an upstream");
        origin.servers = servers;
        let text = metrics::render(&status, metrics::Format::Prometheus);
        let labels = "upstream=\"origin\",server=\"127.0.0.1:9000\"";
        for (state, value) in [("up", 1), ("down", 0)] {
            let sample = format!("sluice_server_state{{{labels},state=\"{state}\"}} {value}\n");
            assert_eq!(text.matches(&sample).count(), 1, "{text}");
        }
        let requests = format!("sluice_server_requests_total{{{labels}}} 14\n");
        assert!(text.contains(&requests), "{text}");
    }
}

#[test]
fn the_state_of_a_url_is_json_and_a_wrong_url_is_refused() {
    let (admin, _) = start();
    let reply = ask(
        &admin,
        "GET",
        "/status?url=http%3A%2F%2Fa%2Fx%3Fy%3D1%26z",
        &[],
    );
    let value: serde_json::Value = serde_json::from_str(&reply.text()).expect("JSON");
    assert_eq!(value[0]["objects"][0]["stored"][0]["last"], 9);
    let reply = ask(&admin, "GET", "/status?url=x", &[]);
    assert_eq!((reply.status, reply.text().as_str()), (400, "not a URL\n"));
}

#[test]
fn servers_are_listed_and_orders_about_them_are_checked() {
    let (admin, _) = start();
    let listed = ask(&admin, "GET", "/servers", &[]);
    let value: serde_json::Value = serde_json::from_str(&listed.text()).expect("JSON");
    let server = &value["origin"]["servers"][0];
    assert_eq!(
        (&server["state"], &server["requests"]),
        (&"up".into(), &7.into())
    );
    let order = |query: &str| {
        let target = format!("/servers?{query}");
        ask(&admin, "POST", &target, &[("x-sluice", "1")])
    };
    let named = "upstream=origin&server=127.0.0.1%3A9000";
    assert_eq!(order(&format!("{named}&set=drain")).status, 200);
    let forged = ask(&admin, "POST", &format!("/servers?{named}&set=drain"), &[]);
    assert_eq!(forged.status, 403);
    for (query, status) in [
        (format!("{named}&set=down"), 404),
        (format!("{named}&set=gone"), 400),
        (named.to_owned(), 400),
        (format!("{named}&weight=0"), 400),
        (format!("{named}&weight=1001"), 400),
        (format!("{named}&set=drain&more=1"), 400),
        ("set=drain".to_owned(), 400),
    ] {
        let reply = order(&query);
        assert_eq!(reply.status, status, "{query}: {}", reply.text());
    }
}

#[test]
fn certificates_are_listed_and_orders_about_them_have_a_result() {
    let (admin, _) = start();
    let value: serde_json::Value =
        serde_json::from_str(&ask(&admin, "GET", "/certificates", &[]).text()).expect("JSON");
    assert_eq!(
        (&value["configured"], &value["failing"]),
        (&2.into(), &1.into())
    );
    // The one with a warning is the first one.
    assert_eq!(value["list"][0]["names"][0], "c.example");
    assert_eq!(value["list"][1]["source"], "file");
    let status: serde_json::Value =
        serde_json::from_str(&ask(&admin, "GET", "/status", &[]).text()).expect("JSON");
    assert_eq!(status["certificates"], value);
    let order = |query: &str| {
        let target = format!("/certificates?{query}");
        let reply = ask(&admin, "POST", &target, &[("x-sluice", "1")]);
        (reply.status, reply.text())
    };
    let forged = ask(
        &admin,
        "POST",
        "/certificates?name=a.example&order=renew",
        &[],
    );
    assert_eq!(forged.status, 403);
    for (query, status, text) in [
        ("name=a.example&order=renew", 200, "Renew None\n"),
        (
            "name=b.example&order=revoke&reason=superseded",
            200,
            "Revoke Some(\"superseded\")\n",
        ),
        (
            "name=c.example&order=revoke",
            502,
            "the authority refuses\n",
        ),
        ("name=x&order=renew", 404, "no such certificate\n"),
    ] {
        assert_eq!(order(query), (status, text.to_owned()), "{query}");
    }
    for query in [
        "",
        "name=a.example",
        "name=a.example&order=forget",
        "name=a&order=renew&more=1",
    ] {
        assert_eq!(order(query).0, 400, "{query}");
    }
}

#[test]
fn a_reload_needs_its_header_and_reports_its_result() {
    let (admin, edge) = start();
    assert_eq!(ask(&admin, "POST", "/reload", &[]).status, 403);
    assert_eq!(
        ask(&admin, "GET", "/reload", &[("x-sluice", "1")]).status,
        405
    );
    assert_eq!(edge.reloads.load(Ordering::SeqCst), 0);
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        let reply = ask(&admin, "POST", "/reload", &[("x-sluice", "1")]);
        outcomes.push((reply.status, reply.text()));
    }
    assert_eq!(outcomes[0], (200, "cache video changed\n".to_owned()));
    assert_eq!(outcomes[1], (422, "error: no site\n".to_owned()));
    assert_eq!(outcomes[2].0, 500);
    assert_eq!(ask(&admin, "GET", "/health", &[]).status, 200);
}

#[test]
fn an_explanation_is_json_and_a_wrong_question_an_error() {
    let (admin, _) = start();
    let get = |query: &str| ask(&admin, "GET", &format!("/explain{query}"), &[]);
    let reply = get("?url=http://a/");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let explanation: Explanation = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(
        (&*explanation.method, &*explanation.decision),
        ("GET", "miss")
    );
    for query in [
        "",
        "?url=x",
        "?url=http://a/&more=1",
        "?url=%ff",
        "?method=GET",
    ] {
        assert_eq!(get(query).status, 400, "{query}");
    }
}

#[test]
fn a_fetch_needs_its_header_and_reports_its_end() {
    let (admin, _) = start();
    let own: &[_] = &[("x-sluice", "1")];
    let target = "/fetch?url=http://a/";
    assert_eq!(ask(&admin, "POST", target, &[]).status, 403);
    assert_eq!(ask(&admin, "GET", target, own).status, 405);
    for (query, bytes) in [("", 0), ("&refresh=0", 0), ("&refresh=1", 1)] {
        let reply = ask(&admin, "POST", &format!("{target}{query}"), own);
        let fetched: Fetched = serde_json::from_slice(&reply.body).expect("JSON");
        assert_eq!(
            (&*fetched.state, fetched.bytes),
            ("complete", bytes),
            "{query}"
        );
    }
    for query in ["&refresh=yes", "&x=1"] {
        let reply = ask(&admin, "POST", &format!("{target}{query}"), own);
        assert_eq!(reply.status, 400, "{query}");
    }
}

#[test]
fn order_and_answer_of_a_purge_are_json() {
    let (admin, _) = start();
    let purge = |headers: &[(&str, &str)], body: &str| {
        client::once(address(&admin), "POST", "/purge", headers, body.as_bytes())
            .expect("an answer")
    };
    let own: &[_] = &[("x-sluice", "1")];
    assert_eq!(purge(&[], "{\"all\": true}").status, 403);
    let reply = purge(
        own,
        "{\"tags\": [\"t\", \"u\"], \"soft\": true, \"cache\": \"c\"}",
    );
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some("application/json"))
    );
    let one = |tag| {
        format!("{{\"cache\":\"c\",\"sequence\":12,\"rule\":{{\"tag\":\"{tag}\"}},\"soft\":true}}")
    };
    let both = format!("{{\"purged\":[{},{}]}}\n", one("t"), one("u"));
    assert_eq!(reply.text(), both);
    assert_eq!(purge(own, "{\"all\": true}").status, 404);
    let reply = purge(own, "{}");
    assert!(reply.status == 400 && reply.text().starts_with("name what to purge"));
    assert_eq!(purge(own, &"x".repeat(65 << 10)).status, 413);
    assert_eq!(ask(&admin, "GET", "/purge", own).status, 405);
}

#[test]
fn other_host_names_are_refused() {
    let (admin, edge) = start();
    for host in [
        "evil.example",
        "evil.example:9901",
        "127.0.0.1.evil.example",
        "localhost.evil",
    ] {
        let refused = ask(
            &admin,
            "POST",
            "/reload",
            &[("host", host), ("x-sluice", "1")],
        );
        assert_eq!(refused.status, 421, "{host}");
        assert_eq!(
            ask(&admin, "GET", "/status", &[("host", host)]).status,
            421,
            "{host}"
        );
        assert_eq!(
            ask(&admin, "GET", "/metrics", &[("host", host)]).status,
            421,
            "{host}"
        );
    }
    for host in [
        "localhost",
        "LOCALHOST:9901",
        "127.0.0.1:1",
        "10.0.0.1",
        "[::1]",
        "[::1]:9901",
        "edge.example",
        "EDGE.example.:9901",
    ] {
        assert_eq!(
            ask(&admin, "GET", "/status", &[("host", host)]).status,
            200,
            "{host}"
        );
    }
    assert_eq!(edge.reloads.load(Ordering::SeqCst), 0);
}

#[test]
fn metrics_are_in_prometheus_text_format() {
    let (admin, _) = start();
    let reply = ask(&admin, "GET", "/metrics", &[]);
    assert_eq!(
        reply.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    insta::assert_snapshot!("metrics", reply.text());
}

// Prometheus sends several formats with weights, and the strict ones first.
#[test]
fn metrics_are_open_metrics_if_the_client_accepts_these() {
    let (admin, _) = start();
    let accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    let reply = ask(&admin, "GET", "/metrics", &[("accept", accept)]);
    assert_eq!(
        reply.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    let text = reply.text();
    assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1);
    let mut families = std::collections::BTreeSet::new();
    let mut last = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a kind");
            assert!(families.insert(name.to_owned()), "{name} twice");
            assert!(kind != "counter" || !name.ends_with("_total"), "{name}");
            last = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (name, unit) = rest.split_once(' ').expect("a unit");
            assert!(
                name == last && name.ends_with(&format!("_{unit}")),
                "{rest}"
            );
        } else if !line.starts_with('#') {
            assert!(line.starts_with(&last), "{line} after {last}");
        }
    }
    assert!(
        text.contains("# TYPE sluice_process_cpu_seconds counter\n"),
        "{text}"
    );
    assert!(
        text.contains("\nsluice_process_cpu_seconds_total 1.500\n"),
        "{text}"
    );
    let routes = "\nsluice_route_requests_total{route=\"a.example /x\\\"*\"} 7\n";
    assert!(text.contains(routes), "{text}");
}

#[test]
fn unknown_pages_and_other_methods_have_a_text() {
    let (admin, _) = start();
    let reply = ask(&admin, "GET", "/none", &[]);
    assert!(reply.status == 404 && reply.text().starts_with("there is no such page"));
    for (target, methods) in [("/status", "GET,HEAD"), ("/health", "GET,HEAD")] {
        let reply = ask(&admin, "PUT", target, &[("x-sluice", "1")]);
        assert_eq!((reply.status, reply.header("allow")), (405, Some(methods)));
        assert!(
            reply
                .text()
                .starts_with("the page does not have this method")
        );
    }
}

#[test]
fn a_malformed_or_incomplete_body_is_a_bad_request() {
    let (admin, _) = start();
    let head = "POST /reload HTTP/1.1\r\nHost: localhost\r\nx-sluice: 1\r\n";
    for (rest, ends) in [
        ("Transfer-Encoding: chunked\r\n\r\nnone\r\n", false),
        ("Content-Length: 10\r\n\r\nhalf", true),
    ] {
        let mut client = client::Client::connect(address(&admin)).expect("connected");
        client
            .send_raw(format!("{head}{rest}").as_bytes())
            .expect("sent");
        if ends {
            client.finish_sending().expect("the end");
        }
        let reply = client.read_response().expect("an answer");
        assert_eq!(reply.status, 400, "{rest}");
        assert_eq!(reply.text(), "the body is malformed or incomplete\n");
    }
}

#[test]
fn a_stopped_admin_api_does_not_listen() {
    let (admin, _) = start();
    let listened = address(&admin);
    drop(admin);
    assert!(std::net::TcpStream::connect(listened).is_err());
}

// An idle connection ends after five seconds. A connection that opens after the long response has
// begun and ends thus shows that this time has passed.
#[test]
fn a_client_that_pauses_while_it_receives_a_response_receives_all_of_it() {
    let (admin, _) = start();
    let options = client::ClientOptions {
        receive_buffer: Some(16 << 10),
        ..client::ClientOptions::default()
    };
    let mut paused = client::Client::connect_with(address(&admin), &options).expect("connected");
    let target = "/status?url=http%3A%2F%2Fa%2Flong";
    paused
        .send("GET", target, &[("Host", "localhost")], b"")
        .expect("sent");
    let head = paused.read_head().expect("a head");
    let length: usize = head
        .header("content-length")
        .expect("a length")
        .parse()
        .expect("a number");
    assert!(length > 8 << 20, "{length} bytes");
    for _ in 0..2 {
        let mut idle = client::Client::connect(address(&admin)).expect("connected");
        idle.wait_closed(std::time::Duration::from_secs(15))
            .expect("closed");
    }
    assert_eq!(paused.read_some(length).expect("the rest").len(), length);
}

#[test]
fn what_if_is_json() {
    let (admin, _) = start();
    let reply = ask(&admin, "GET", "/what-if", &[]);
    assert_eq!(
        (reply.status, reply.header("cache-control")),
        (200, Some("no-store"))
    );
    let value: serde_json::Value = serde_json::from_str(&reply.text()).expect("JSON");
    let video = &value["caches"]["video"];
    let point = serde_json::json!(
        {"times": 2.0, "bytes": 8192, "hit_ratio": 0.75, "byte_hit_ratio": null}
    );
    assert_eq!(
        (&video["memory"], &video["points"][0]),
        (&4096.into(), &point)
    );
    assert!(video["measured"]["hit_ratio"].is_null());
}

const OPERATOR: &str = "operator-0123456789";
const READER: &str = "reader-0123456789";

/// Starts an admin API with tokens of an operator and a reader.
fn start_with_tokens() -> (Admin, Arc<Edge>) {
    let mut tokens = Tokens::default();
    let readers = format!("grafana {READER}");
    let added = tokens.add(OPERATOR, TokenForm::Only);
    assert_eq!(added, Ok(()));
    let added = tokens.add(&readers, TokenForm::Named(Role::Reader));
    assert_eq!(added, Ok(()));
    start_with(Edge {
        tokens: Arc::new(tokens),
        ..Edge::default()
    })
}

#[test]
fn every_request_but_for_health_and_the_dashboards_files_needs_a_token() {
    let (admin, edge) = start_with_tokens();
    let status = |method: &str, target: &str, authorization: &str| {
        let mut headers = vec![("x-sluice", "1")];
        headers.extend((!authorization.is_empty()).then_some(("authorization", authorization)));
        ask(&admin, method, target, &headers).status
    };
    let (operator, reader) = (format!("Bearer {OPERATOR}"), format!("bearer {READER}"));
    for target in ["/status", "/metrics", "/servers", "/nothing", "/dashboards"] {
        let found = match target {
            "/nothing" | "/dashboards" => 404,
            _ => 200,
        };
        for authorization in ["", "Basic YTpi", "Bearer short", "Bearer wrong,wrong"] {
            assert_eq!(
                status("GET", target, authorization),
                401,
                "{target} {authorization}"
            );
        }
        for authorization in [&operator, &reader] {
            assert_eq!(status("GET", target, authorization), found, "{target}");
        }
    }
    assert_eq!(edge.reloads.load(Ordering::SeqCst), 0);
    assert_eq!(status("GET", "/health", ""), 200);
    assert_eq!(status("GET", "/", ""), 200);
    assert_eq!(status("GET", "/dashboard/nothing.js", ""), 404);
    for authorization in ["", &reader] {
        let refused = if authorization.is_empty() { 401 } else { 403 };
        for target in [
            "/reload",
            "/purge",
            "/dashboard/x",
            "/servers?upstream=a&server=b&set=up",
        ] {
            assert_eq!(status("POST", target, authorization), refused, "{target}");
        }
    }
    assert_eq!(edge.reloads.load(Ordering::SeqCst), 0);
    assert_eq!(status("POST", "/reload", &operator), 200);
}

#[test]
fn a_client_with_too_many_wrong_tokens_is_refused() {
    let (admin, _) = start_with_tokens();
    let reply = |token: &str| {
        let value = format!("Bearer {token}");
        ask(&admin, "GET", "/status", &[("authorization", &value)])
    };
    let first = reply("wrong");
    let challenge = "Bearer realm=\"sluice\", error=\"invalid_token\"";
    assert_eq!(first.header("www-authenticate"), Some(challenge));
    for _ in 1..tries::TRIES {
        assert_eq!(reply("wrong").status, 401);
    }
    for token in ["wrong", OPERATOR] {
        let refused = reply(token);
        assert_eq!(
            (refused.status, refused.header("retry-after")),
            (429, Some("6"))
        );
    }
    assert_eq!(ask(&admin, "GET", "/status", &[]).status, 401);
    assert_eq!(ask(&admin, "GET", "/health", &[]).status, 200);
}

#[test]
fn two_authorizations_are_none() {
    let (admin, _) = start_with_tokens();
    let value = format!("Bearer {OPERATOR}");
    let line = ("authorization", value.as_str());
    assert_eq!(ask(&admin, "GET", "/status", &[line]).status, 200);
    assert_eq!(ask(&admin, "GET", "/status", &[line, line]).status, 401);
}

#[test]
fn every_response_has_the_headers_that_protect_pages() {
    let (admin, _) = start();
    for (method, target) in [
        ("GET", "/"),
        ("GET", "/health"),
        ("GET", "/nothing"),
        ("GET", "/dashboard/"),
        ("POST", "/reload"),
        ("OPTIONS", "/status"),
    ] {
        let reply = ask(&admin, method, target, &[]);
        for (name, value) in headers::EVERYWHERE {
            assert_eq!(reply.header(name), Some(value), "{target}");
        }
        let lifetime = match target {
            "/dashboard/" => "no-cache",
            _ => "no-store",
        };
        assert_eq!(reply.header("cache-control"), Some(lifetime), "{target}");
        assert_eq!(reply.header("access-control-allow-origin"), None);
    }
    let rebound = ask(&admin, "GET", "/status", &[("host", "evil.example")]);
    let policy = rebound.header("content-security-policy").expect("a policy");
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self';"),
        "{policy}"
    );
}

#[test]
fn each_change_is_recorded_with_its_client_and_without_secrets() {
    let (admin, edge) = start_with_tokens();
    let operator = format!("Bearer {OPERATOR}");
    let reader = format!("Bearer {READER}");
    let post = |target: &str, authorization: &str, body: &str| {
        let headers = [("x-sluice", "1"), ("authorization", authorization)];
        client::once(address(&admin), "POST", target, &headers, body.as_bytes())
            .expect("an answer")
            .status
    };
    let url = r#"{"url": "http://a/b?token=secret&x=1", "cache": "c"}"#;
    assert_eq!(post("/purge", &operator, url), 200);
    assert_eq!(post("/purge", &operator, "nonsense"), 400);
    assert_eq!(
        post("/servers?upstream=u&server=s&set=drain", &operator, ""),
        404
    );
    assert_eq!(
        post("/certificates?name=a.example&order=renew", &operator, ""),
        200
    );
    assert_eq!(post("/reload", &operator, ""), 200);
    assert_eq!(
        post("/other?url=http%3A%2F%2Fa%2F%3Fsig%3Dsecret", &operator, ""),
        404
    );
    // Neither of these may change anything.
    assert_eq!(post("/reload", &reader, ""), 403);
    assert_eq!(
        ask(&admin, "POST", "/reload", &[("authorization", &operator)]).status,
        403
    );
    assert_eq!(
        ask(&admin, "GET", "/status", &[("authorization", &operator)]).status,
        200
    );
    let changes = edge.changes.lock().clone();
    let shown: Vec<_> = changes
        .iter()
        .map(|one| (one.action.as_str(), one.what.as_str(), one.status))
        .collect();
    let expected = [
        (
            "purge",
            "url http://a/b?token=***&x=1, in cache c",
            Some(200),
        ),
        ("purge", "/purge", Some(400)),
        ("servers", "s of u: drain", Some(404)),
        ("certificates", "renew a.example", Some(200)),
        ("reload", "read the configuration again", Some(200)),
        ("request", "/other", Some(404)),
    ];
    assert_eq!(shown, expected);
    let is_by_operator = |one: &Change| one.who == "operator" && one.client == "127.0.0.1";
    assert!(changes.iter().all(is_by_operator), "{changes:?}");
}
