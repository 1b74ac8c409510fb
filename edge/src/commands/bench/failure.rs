//! The error of a load whose requests all failed: the reason, and advice that fits the reason.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::io::Errno;
use sluice_lab::load::{Choice, LoadPlan, LoadResult};

use super::handshake;
use crate::commands::output::{failed, harmless};
use crate::config::show_time;

/// Most statuses that the error names.
const STATUSES_MAX: usize = 4;

/// Returns the error of a load without any good response. Its first line names the most frequent kind of failure.
pub fn error(plan: &LoadPlan, result: &LoadResult) -> anyhow::Error {
    let errors = &result.errors;
    let kinds: [(u64, Tell); 9] = [
        (errors.connect, connect),
        (errors.tls, handshake::tell),
        (errors.closed, closed),
        (errors.timeout, timeout),
        (errors.status, status),
        (errors.length, length),
        (errors.range, range),
        (errors.malformed, malformed),
        (errors.content, content),
    ];
    let total = errors.total();
    if total == 0 {
        return failed(
            "no response came before the load ended",
            "a longer --duration or a lower --rate gives the server more time",
        );
    }
    let Some((count, tell)) = kinds.into_iter().max_by_key(|(count, _)| *count) else {
        return failed("every request failed", "the result has the errors by kind");
    };
    // While a server is down, requests of an open loop wait for the next try to connect until they time out.
    let is_down = result.first_connect_error.is_some() && result.statuses.is_empty();
    if count == errors.timeout && is_down {
        let (reason, help) = connect(plan, result);
        return failed(harmless(&format!("every request failed: {reason}")), help);
    }
    let (reason, help) = tell(plan, result);
    let most = if count < total { " in most cases" } else { "" };
    failed(
        harmless(&format!("every request failed:{most} {reason}")),
        help,
    )
}

/// The reason of a failure, and advice.
type Told = (String, String);
/// Describes a kind of failure.
type Tell = fn(&LoadPlan, &LoadResult) -> Told;

fn connect(plan: &LoadPlan, result: &LoadResult) -> Told {
    let address = plan.target;
    let title = format!("no connection to {address} could be made");
    match &result.first_connect_error {
        Some(error) => {
            let help = connect_help(Errno::from_raw_os_error(error.errno), address);
            (format!("{title}: {}", error.text), help)
        }
        None => (title, format!("is the server running at {address}?")),
    }
}

fn connect_help(error: Errno, address: SocketAddr) -> String {
    match error {
        Errno::ADDRNOTAVAIL => {
            "this machine has no free port left: use more source addresses (--sources), or leave --close out".to_owned()
        }
        Errno::MFILE | Errno::NFILE => {
            "use fewer connections (-c), or raise the limit of open files with `ulimit -n`".to_owned()
        }
        _ => format!("is the server running at {address}?"),
    }
}

fn timeout(plan: &LoadPlan, _: &LoadResult) -> Told {
    let limit = Duration::try_from_secs_f64(plan.timeout_seconds).unwrap_or(Duration::MAX);
    let limit = show_time(limit);
    let help = match plan.rate {
        Some(_) => "--timeout permits longer times, a lower --rate gives the server more time",
        None => "--timeout permits longer times, fewer connections (-c) give the server more time",
    };
    let reason = format!("no response was complete within {limit}");
    (reason, help.to_owned())
}

fn status(plan: &LoadPlan, result: &LoadResult) -> Told {
    let mut statuses: Vec<(u16, u64)> = result
        .statuses
        .iter()
        .map(|(status, count)| (*status, *count))
        .collect();
    statuses.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let named = statuses.iter().take(STATUSES_MAX);
    let named: Vec<String> = named
        .map(|(status, count)| format!("{status} ({count} times)"))
        .collect();
    let more = match statuses.len() > STATUSES_MAX {
        true => " and others",
        false => "",
    };
    let reason = format!(
        "the status was {}{more}, and not the expected one",
        named.join(", ")
    );
    let most = statuses.first().map_or(0, |(most, _)| *most);
    (reason, status_help(plan, most))
}

/// Returns advice for a load whose most frequent status is not the expected one.
fn status_help(plan: &LoadPlan, most: u16) -> String {
    let help = match most {
        // A response to a range has the status 206 if the server supports ranges.
        200 if plan.expect_status.is_none() => {
            return match plan.choice {
                Choice::Replay(_) => {
                    "the log has ranges, and the server sends none: --expect 200 permits that"
                }
                _ => "the server sends no ranges of this URL: leave --range out",
            }
            .to_owned();
        }
        300..=399 if most != 304 => {
            "redirects are not followed: give the URL to which they lead (`curl -I` shows it)."
        }
        400 if plan.tls.is_none() => "does the server expect https://?",
        _ => "check the URL.",
    };
    format!("{help} --expect {most} accepts this status")
}

fn closed(plan: &LoadPlan, _: &LoadResult) -> Told {
    let reason = "the server closed the connection before the response was complete";
    (reason.to_owned(), protocol_help(plan))
}

fn malformed(plan: &LoadPlan, _: &LoadResult) -> Told {
    let reason = match plan.streams {
        Some(_) => "the responses are no valid HTTP/2",
        None => "the responses are no valid HTTP/1.1",
    };
    (reason.to_owned(), protocol_help(plan))
}

fn protocol_help(plan: &LoadPlan) -> String {
    let protocol = match (plan.tls.is_some(), plan.streams.is_some()) {
        (false, false) => "HTTP/1.1 without TLS (https:// uses TLS, --http2 uses HTTP/2)",
        (false, true) => "HTTP/2 without TLS (https:// uses TLS)",
        (true, false) => "HTTP/1.1 (--http2 uses HTTP/2)",
        (true, true) => "HTTP/2",
    };
    format!("does the server expect {protocol}? Its log may say why")
}

fn length(_: &LoadPlan, _: &LoadResult) -> Told {
    let reason = "the responses had another length than expected";
    let help = "does the content change while the load runs?";
    (reason.to_owned(), help.to_owned())
}

fn range(_: &LoadPlan, _: &LoadResult) -> Told {
    let reason = "the responses had another range than requested, or none";
    let help = "does the content change while the load runs?";
    (reason.to_owned(), help.to_owned())
}

fn content(_: &LoadPlan, _: &LoadResult) -> Told {
    let reason = "the bodies are not those of the lab's test origin";
    let help = "leave --verify out for other servers";
    (reason.to_owned(), help.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_lab::load::{ConnectError, Replayed};

    fn told(change: impl Fn(&mut LoadPlan, &mut LoadResult)) -> String {
        let address = "127.0.0.1:1".parse().expect("an address");
        let mut plan = LoadPlan::new(address, "/");
        let mut result = LoadResult::default();
        change(&mut plan, &mut result);
        format!("{:?}", error(&plan, &result))
    }

    #[test]
    fn the_most_frequent_kind_is_named_with_its_advice() {
        let mixed = told(|_, result| {
            result.errors.timeout = 5;
            result.errors.closed = 2;
        });
        assert!(
            mixed.contains("in most cases no response was complete within 10s"),
            "{mixed}"
        );
        assert!(mixed.contains("--timeout"), "{mixed}");
        let status = told(|_, result| {
            result.errors.status = 7;
            result.statuses = [(404, 2), (503, 5)].into();
        });
        assert!(
            status.contains("failed: the status was 503 (5 times), 404 (2 times)"),
            "{status}"
        );
        assert!(status.contains("--expect 503"), "{status}");
    }

    #[test]
    fn timeouts_while_the_server_is_down_are_failures_to_connect() {
        let down = |result: &mut LoadResult| {
            result.errors.timeout = 500;
            result.errors.connect = 20;
            result.first_connect_error = Some(ConnectError {
                errno: Errno::CONNREFUSED.raw_os_error(),
                text: "Connection refused".to_owned(),
            });
        };
        let said = told(|_, result| down(result));
        let title = "failed: no connection to 127.0.0.1:1 could be made: Connection refused";
        assert!(said.contains(title), "{said}");
        assert!(said.contains("is the server running"), "{said}");
        let slow = told(|_, result| {
            down(result);
            result.errors.status = 1;
            result.statuses = [(500, 1)].into();
        });
        assert!(slow.contains("in most cases no response"), "{slow}");
    }

    #[test]
    fn the_advice_fits_the_status() {
        let advice = |most| {
            told(|_, result| {
                result.errors.status = 1;
                result.statuses = [(most, 1)].into();
            })
        };
        for (most, help) in [
            (200, "leave --range out"),
            (301, "redirects are not followed: give the URL"),
            (304, "check the URL. --expect 304"),
            (400, "does the server expect https://? --expect 400"),
            (404, "check the URL. --expect 404"),
        ] {
            let said = advice(most);
            assert!(said.contains(help), "{said}");
        }
    }

    #[test]
    fn the_advice_for_a_replayed_log_names_no_option_that_excludes_it() {
        let said = told(|plan, result| {
            plan.choice = Choice::Replay(Vec::<Replayed>::new().into());
            result.errors.status = 1;
            result.statuses = [(200, 1)].into();
        });
        assert!(said.contains("the log has ranges"), "{said}");
        assert!(said.contains("--expect 200"), "{said}");
        assert!(!said.contains("--range"), "{said}");
    }

    #[test]
    fn a_lack_of_ports_or_descriptors_is_not_blamed_on_the_server() {
        let address = "127.0.0.1:1".parse().expect("an address");
        let help = |errno: Errno| connect_help(errno, address);
        assert!(help(Errno::MFILE).contains("ulimit -n"));
        assert!(help(Errno::ADDRNOTAVAIL).contains("--sources"));
        assert!(help(Errno::CONNREFUSED).contains("running at 127.0.0.1:1?"));
    }
}
