//! Tests of how failing origins are reported: in the error log, and in the access log.

use std::thread;
use std::time::Instant;

use serde_json::Value;
use sluice_lab::origin::{Ending, Fault};

use crate::harness::{Edge, Setup, eventually, fresh, origin};

/// Returns the lines of the error log about failing requests, once it has at least this many.
fn reports(edge: &Edge, at_least: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    eventually("reports in the error log", || {
        let log = edge.process.stderr();
        let reports = log.lines().filter(|line| line.contains("fail upstream="));
        lines = reports.map(str::to_owned).collect();
        lines.len() >= at_least
    });
    lines
}

#[test]
fn the_error_log_names_server_url_and_cause_of_failed_requests() {
    let origin = origin();
    let server = origin.addr();
    for prefix in ["", "/pass"] {
        let cut = Fault::CutBody {
            after: 100_000,
            ending: Ending::Fin,
        };
        for (path, fault) in [
            ("/late", Fault::NeverAnswer),
            ("/early", Fault::EndBeforeHead(Ending::Fin)),
            ("/cut", cut),
        ] {
            origin.serve(&format!("{prefix}{path}"), fresh(1_000_000).fault(fault));
        }
    }
    let check = |setup: Setup, prefix: &str| {
        let edge = setup.upstream("read_timeout = \"7s\"").start();
        // Each cause gets one line in an interval.
        let lines_of = [("/late", 1), ("/early", 3), ("/cut", 3)].map(|(path, times)| {
            let begun = Instant::now();
            for _ in 0..times {
                edge.send_raw(
                    format!("GET {prefix}{path}?token=secret HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
                        .as_bytes(),
                );
            }
            let intervals = begun.elapsed().as_secs() as usize / 5;
            1 + intervals.min(times - 1)
        });
        let lines = reports(&edge, 3);
        for ((path, cause), most) in [
            ("/late", "head-timeout"),
            ("/early", "closed-before-head"),
            ("/cut", "body-cut"),
        ]
        .into_iter()
        .zip(lines_of)
        {
            let expected = format!(
                "WARN requests to a server fail upstream=origin server={server} \
                 url={}://a.example{prefix}{path} cause={cause} failures=1",
                edge.scheme()
            );
            let found = lines.iter().filter(|line| line.ends_with(&expected));
            let count = found.count();
            assert!((1..=most).contains(&count), "{expected} in {lines:#?}");
        }
        assert!(!edge.process.stderr().contains("secret"));
    };
    // At the same time, since each waits for the timeout.
    thread::scope(|scope| {
        scope.spawn(|| check(Setup::cached(&origin), ""));
        scope.spawn(|| check(Setup::cached(&origin), "/pass"));
        scope.spawn(|| check(Setup::uncached(&origin), ""));
    });
}

#[test]
fn the_error_log_says_that_a_name_does_not_resolve() {
    let setup = Setup::of_servers(vec!["http://no-such-host.invalid".to_owned()]);
    let edge = setup.start();
    assert_eq!(edge.get("/x", &[]).status, 502);
    let lines = reports(&edge, 1);
    assert!(
        lines[0].contains(" server=no-such-host.invalid:80 ") && lines[0].contains("=unresolved"),
        "{lines:?}"
    );
    let log = edge.process.stderr();
    assert!(
        log.contains("the name of a server does not resolve upstream=origin"),
        "{log}"
    );
    assert!(!log.contains("accepts no connections"), "{log}");
}

// Lines of failed requests have the server and the cache status, as those of other requests do.
#[test]
fn the_access_log_has_server_and_cache_status_of_failed_requests() {
    let origin = origin();
    for path in ["/late", "/pass/late"] {
        origin.serve(path, fresh(10).fault(Fault::NeverAnswer));
    }
    let setup = Setup::cached(&origin).upstream("read_timeout = \"1s\"");
    let edge = setup.clone().logged("json").workers(1).start();
    for path in ["/late", "/pass/late"] {
        assert_eq!(edge.get(path, &[]).status, 504);
    }
    edge.ask("POST", "/late", &[], b"");
    let lines = edge.json_log(3);
    let of = |line: &Value| [line["upstream"].clone(), line["cache"].clone()];
    let server: Value = origin.addr().to_string().into();
    assert_eq!(of(&lines[0]), [server.clone(), "uri-miss".into()]);
    assert_eq!(of(&lines[1]), [server.clone(), Value::Null]);
    assert_eq!(of(&lines[2]), [server, "method".into()]);
    let edge = setup.logged("combined_cache").workers(1).start();
    edge.get("/late", &[]);
    let lines = edge.log(1);
    assert!(lines[0].contains(" 504 "), "{lines:?}");
    assert!(lines[0].ends_with("\"-\" \"-\" uri-miss"), "{lines:?}");
}

#[test]
fn the_access_log_has_the_server_that_refuses_connections() {
    let gone = origin();
    let server: Value = gone.addr().to_string().into();
    drop(gone);
    let setup = Setup::of_servers(vec![format!("http://{}", server.as_str().expect("text"))]);
    let edge = setup.logged("json").workers(1).start();
    assert_eq!(edge.get("/x", &[]).status, 502);
    let line = &edge.json_log(1)[0];
    assert_eq!(
        (&line["upstream"], &line["cache"]),
        (&server, &"uri-miss".into())
    );
}
