//! Looks whether certificates could be obtained: the addresses of their hosts, and the directories of authorities.

use std::io::{self, Write};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::acme::{self, ProbeError};
use crate::config::{self, DirectoryFinding, Findings, HostFinding, Loaded, Obtained};
use crate::resolve;
use crate::sys::{Clock, port};
use crate::tls::ConnectError;
use crate::wiring;

/// Longest time for all look-ups of hosts, and for the response of each directory.
const WITHIN: Duration = Duration::from_secs(10);
/// Time after which a message says what is being done.
const MESSAGE_AFTER: Duration = Duration::from_secs(1);
/// Most hosts that are looked up.
const HOSTS_MAX: usize = 1000;

/// Adds the problems of hosts and directories to the warnings about a configuration.
pub fn check(loaded: &mut Loaded) -> anyhow::Result<()> {
    let Some(obtained) = config::obtained(&loaded.plan, &loaded.warnings.text) else {
        return Ok(());
    };
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("the network can't be checked")?;
    let findings = runtime.block_on(async {
        let found = async { tokio::join!(hosts(&obtained), directories(&obtained)) };
        tokio::pin!(found);
        let found = tokio::select! {
            found = &mut found => found,
            () = sleep(MESSAGE_AFTER) => {
                // Writing fails if standard error is closed.
                let _ = writeln!(io::stderr(), "asking name servers and directories (up to 10 s; --offline leaves this out)");
                found.await
            }
        };
        let (hosts, directories) = found;
        Findings { hosts, directories }
    });
    // A blocking look-up of a directory's name may still be in progress.
    runtime.shutdown_background();
    config::report_findings(&loaded.plan, &findings, &mut loaded.warnings);
    Ok(())
}

async fn hosts(obtained: &Obtained) -> Vec<(String, HostFinding)> {
    let hosts = &obtained.hosts[..obtained.hosts.len().min(HOSTS_MAX)];
    let looked_up = timeout(WITHIN, resolve::addresses(hosts, &obtained.name_servers)).await;
    let failed = |why: &str| {
        let all = hosts.iter();
        all.map(|host| (host.clone(), HostFinding::Nowhere(why.to_owned())))
            .collect()
    };
    match looked_up {
        Err(_) => failed("no name server has answered in 10 s"),
        Ok(Err(why)) => failed(&why),
        Ok(Ok(answers)) => answers
            .into_iter()
            .map(|(host, answer)| (host, finding(answer)))
            .collect(),
    }
}

fn finding(answer: Result<Vec<IpAddr>, String>) -> HostFinding {
    match answer {
        Err(why) => HostFinding::Nowhere(why),
        Ok(addresses) if addresses.iter().any(|address| port::is_here(*address)) => {
            HostFinding::Here
        }
        Ok(addresses) => HostFinding::Elsewhere(addresses),
    }
}

async fn directories(obtained: &Obtained) -> Vec<(String, DirectoryFinding)> {
    let mut probes = JoinSet::new();
    let mut findings = Vec::new();
    for directory in &obtained.options.directories {
        let url = directory.url.clone();
        match wiring::directory_tls(&obtained.options) {
            // The files of authorities are checked when Sluice starts.
            Err(error) => {
                let why = format!("{error:#}");
                findings.push((url, DirectoryFinding::Unverified(why)));
            }
            Ok(tls) => {
                probes.spawn(async move {
                    let clock = Clock::system();
                    let probed = timeout(
                        WITHIN,
                        acme::probe(tls.config().clone(), clock.clone(), &url),
                    )
                    .await;
                    let now_unix_s = clock.unix_s();
                    let finding = match probed {
                        Err(_) => DirectoryFinding::Unreachable("no response in 10 s".to_owned()),
                        Ok(Err(error)) => of_error(error),
                        Ok(Ok(date_unix_s)) => DirectoryFinding::Answered {
                            ahead_s: date_unix_s.map(|at| at.saturating_sub(now_unix_s)),
                        },
                    };
                    (url, finding)
                });
            }
        }
    }
    findings.extend(probes.join_all().await);
    findings
}

fn of_error(error: ProbeError) -> DirectoryFinding {
    match error {
        ProbeError::Other(why) => DirectoryFinding::Unreachable(why),
        ProbeError::Tls(
            error @ (ConnectError::NotTrusted
            | ConnectError::OtherCertificate
            | ConnectError::Expired
            | ConnectError::NotValidYet
            | ConnectError::WrongName
            | ConnectError::Certificate),
        ) => DirectoryFinding::Unverified(error.to_string()),
        ProbeError::Tls(error) => DirectoryFinding::Unreachable(format!("TLS: {error}")),
    }
}
