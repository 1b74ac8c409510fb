//! Reads the admin API for `sluice top`, once per second on a thread of its own, so that a slow server stops no key.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::bail;
use serde_json::Value;

use super::lists::{LIST_MAX, ROUTE_SERIES};
use super::model::{Answer, Listed};
use super::tables::URL_ORDERS;
use crate::commands::admin::AdminArgs;
use crate::commands::output::{harmless, refused};
use crate::commands::status::values::number;
use crate::config::Report;
use crate::sys::Clock;

/// Time from the beginning of a poll to that of the next one.
pub const PERIOD: Duration = Duration::from_secs(1);
/// Polls after which a list is read again. Lists change slowly, and making them costs more than the status.
const LISTS_EVERY: u64 = 5;
/// Polls after which a server that does not have a list is asked for it again.
const UNKNOWN_EVERY: u64 = 60;
/// Time over which the URLs are counted.
const URL_MINUTES: u32 = 5;
/// Time over which the rates of routes are means.
const ROUTE_SECONDS: u32 = 60;

/// Reads the admin API.
pub struct Poll {
    admin: AdminArgs,
    clock: Clock,
    polls: u64,
    has_routes: bool,
    has_urls: bool,
    url_order: Arc<AtomicUsize>,
    /// Order of the URLs that were read last.
    read_order: usize,
}

impl Poll {
    /// Makes a reader of the admin API. `url_order` is the index of the wanted order of URLs.
    pub fn new(admin: AdminArgs, url_order: Arc<AtomicUsize>) -> Poll {
        Poll {
            admin,
            clock: Clock::system(),
            polls: 0,
            has_routes: true,
            has_urls: true,
            url_order,
            read_order: 0,
        }
    }

    /// Reads the admin API once.
    ///
    /// # Errors
    ///
    /// No Sluice answers, or the answer is not the status.
    pub fn read(&mut self) -> anyhow::Result<Answer> {
        let reply = self.admin.request("GET", "/status")?;
        if reply.status != 200 {
            return Err(refused(&reply.text()));
        }
        let status = serde_json::from_slice::<Value>(&reply.body).ok();
        let Some(status) = status.filter(is_status) else {
            bail!("the answer to /status is not a status");
        };
        // Rates follow from the times at which the status was read. Reading the lists takes more or less long.
        let read_us = Some(self.clock.monotonic_us());
        let (routes, urls) = (self.read_routes(), self.read_urls());
        self.polls += 1;
        Ok(Answer {
            status,
            read_us,
            routes,
            urls,
        })
    }

    /// Whether it is time to read a list.
    fn is_due(&self, is_there: bool) -> bool {
        self.polls.is_multiple_of(match is_there {
            true => LISTS_EVERY,
            false => UNKNOWN_EVERY,
        })
    }

    fn read_routes(&mut self) -> Listed {
        if !self.is_due(self.has_routes) {
            return Listed::Unread;
        }
        let routes = self.list(
            &format!(
                "/history?scope=route&members=*&series={ROUTE_SERIES}&from=-{ROUTE_SECONDS}&top={LIST_MAX}"
            ),
            "members",
        );
        self.has_routes = matches!(routes, Listed::Read(_));
        routes
    }

    fn read_urls(&mut self) -> Listed {
        let order = self.url_order.load(Ordering::Relaxed);
        let has_other_order = self.has_urls && order != self.read_order;
        if !(self.is_due(self.has_urls) || has_other_order) {
            return Listed::Unread;
        }
        self.read_order = order;
        let by = URL_ORDERS.get(order).unwrap_or(&URL_ORDERS[0]);
        let target = format!("/top?by={by}&minutes={URL_MINUTES}&n={LIST_MAX}");
        let urls = self.list(&target, "urls");
        self.has_urls = matches!(urls, Listed::Read(_));
        urls
    }

    /// Reads a list, which is the member `name` of an answer. A server without it, or one that does not show it to this
    /// user, has none.
    fn list(&self, target: &str, name: &str) -> Listed {
        let reply = self.admin.request("GET", target).ok();
        let reply = reply.filter(|reply| reply.status == 200);
        let value = reply.and_then(|reply| serde_json::from_slice::<Value>(&reply.body).ok());
        let value = value.filter(|value| value[name].is_array());
        value.map_or(Listed::Unknown, Listed::Read)
    }

    /// Reads the admin API once per second on a thread of its own, which ends after the receiver is dropped.
    pub fn spawn(mut self) -> std::io::Result<Receiver<Result<Answer, String>>> {
        let (sender, receiver) = sync_channel(1);
        thread::Builder::new()
            .name("poll".to_owned())
            .spawn(move || self.run(&sender))?;
        Ok(receiver)
    }

    fn run(&mut self, sender: &SyncSender<Result<Answer, String>>) {
        let clock = self.clock.clone();
        let period_us = PERIOD.as_micros() as u64;
        loop {
            let next_us = clock.monotonic_us() + period_us;
            let answer = self.read().map_err(|error| one_line(&error));
            if sender.send(answer).is_err() {
                return;
            }
            let left_us = next_us.saturating_sub(clock.monotonic_us());
            thread::sleep(Duration::from_micros(left_us));
        }
    }
}

/// Returns an error as one line without its advice.
fn one_line(error: &anyhow::Error) -> String {
    let report = error.downcast_ref::<Report>();
    let problem = report.and_then(|report| report.problems.first());
    let text = match problem {
        Some(problem) => problem.title.clone(),
        None => format!("{error:#}"),
    };
    harmless(text.lines().next().unwrap_or_default())
}

/// Whether an answer of `GET /status` is one: other programs may answer with JSON, too.
fn is_status(status: &Value) -> bool {
    status["counters"].is_object() && number(status, "pid") > 0
}
