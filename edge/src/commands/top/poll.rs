//! Reads the admin API for `sluice top`, once per second on a thread of its own, so that a slow server stops no key.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::bail;
use serde_json::Value;

use super::model::{Answer, Urls};
use super::snapshot::{URLS_MAX, is_status};
use super::tables::URL_ORDERS;
use crate::commands::admin::AdminArgs;
use crate::commands::output::{harmless, refused};
use crate::config::Report;
use crate::sys::Clock;

/// Time from the beginning of a poll to that of the next one.
pub const PERIOD: Duration = Duration::from_secs(1);
/// Polls after which the URLs with the most traffic are read again. They change slowly, and finding them costs more.
const URLS_EVERY: u64 = 5;
/// Polls after which a server that does not know them is asked again.
const UNKNOWN_URLS_EVERY: u64 = 60;
/// Time over which the URLs are counted.
const URL_MINUTES: u32 = 5;

/// Reads the admin API.
pub struct Poll {
    admin: AdminArgs,
    polls: u64,
    knows_urls: bool,
    url_order: Arc<AtomicUsize>,
    /// Order of the URLs that were read last.
    read_order: usize,
}

impl Poll {
    /// Makes a reader of the admin API. `url_order` is the index of the wanted order of URLs.
    pub fn new(admin: AdminArgs, url_order: Arc<AtomicUsize>) -> Poll {
        Poll {
            admin,
            polls: 0,
            knows_urls: true,
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
        let urls = self.read_urls();
        self.polls += 1;
        Ok(Answer { status, urls })
    }

    /// Reads the URLs with the most traffic if it is time. A server without them, or whose token may not see them, has
    /// none.
    fn read_urls(&mut self) -> Urls {
        let every = match self.knows_urls {
            true => URLS_EVERY,
            false => UNKNOWN_URLS_EVERY,
        };
        let order = self.url_order.load(Ordering::Relaxed);
        let is_due =
            self.polls.is_multiple_of(every) || (self.knows_urls && order != self.read_order);
        if !is_due {
            return Urls::Unread;
        }
        self.read_order = order;
        let by = URL_ORDERS.get(order).unwrap_or(&URL_ORDERS[0]);
        let target = format!("/top?by={by}&minutes={URL_MINUTES}&n={URLS_MAX}");
        let reply = self.admin.request("GET", &target).ok();
        let reply = reply.filter(|reply| reply.status == 200);
        let top = reply.and_then(|reply| serde_json::from_slice::<Value>(&reply.body).ok());
        let top = top.filter(|top| top["urls"].is_array());
        self.knows_urls = top.is_some();
        top.map_or(Urls::Unknown, Urls::Read)
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
        let clock = Clock::system();
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
