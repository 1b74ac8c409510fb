//! One attempt to obtain a certificate, at each authority in turn, and its outcome.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::time::timeout;

use super::authority::Authority;
use super::failure::Failure;
use super::options::Options;
use super::order::Ordering;
use super::record::Record;
use super::revocation::Revocation;
use super::schedule;
use super::shared::{Shared, Task};
use super::state::State;
use super::window;
use crate::tls::Certificate;

/// Most times that an attempt goes on after the authority has refused a nonce (RFC 8555 6.5). The ACME library repeats
/// each request twice by itself.
const NONCES_MAX: usize = 10;

/// Longest attempt at one authority, and longest one that may wait for records of DNS-01.
const WITHIN: Duration = Duration::from_secs(15 * 60);
const WITH_DNS_WITHIN: Duration = Duration::from_secs(3 * 3600);

/// The tools of an attempt.
pub struct Attempt {
    /// The options of all certificates.
    pub options: Options,
    /// The authorities, in the order in which they are asked.
    pub authorities: Arc<[Authority]>,
}

/// Guard of the task for one certificate, which also ends after a panic.
struct Busy<'a> {
    shared: &'a Shared,
    id: &'a str,
    task: Task,
}

impl<'a> Busy<'a> {
    fn new(shared: &'a Shared, id: &'a str, task: Task) -> Busy<'a> {
        Busy { shared, id, task }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        // After a panic, the task is repeated as after a failure.
        let panicked = thread::panicking().then_some(self.task);
        self.shared.end_task(self.id, panicked);
    }
}

/// Obtains a certificate, or notes why that failed and when to try again.
pub async fn obtain(shared: &Shared, attempt: &Attempt, state: State) {
    let id = Record::id(&state.names);
    let busy = Busy::new(shared, &id, Task::Obtain);
    let Some(mut record) = read(shared, &id, &state) else {
        return;
    };
    let on_demand = &attempt.options.on_demand;
    if record.on_demand && !shared.permits(on_demand, &id, &record.names).await {
        return;
    }
    record.last_attempt_unix_s = Some(shared.clock.unix_s());
    let current = shared.certificate(&id);
    let replaced = current.as_ref();
    match in_turn(shared, attempt, replaced, &mut record).await {
        Ok(certificate) => {
            tracing::info!(
                target: "sluice::event::certificate::obtained",
                names = record.names.join(", "),
                issuer = certificate.facts.issuer,
                "a certificate was obtained"
            );
            shared.take(&record, Some(certificate));
        }
        Err(failure) if failure.is_postponed => {
            shared.postpone(&id, &record, &failure);
        }
        Err(failure) => {
            let spread = schedule::spread(&record.names);
            let wait_s = schedule::wait_s(record.failures + 1, spread);
            let now_unix_s = shared.clock.unix_s();
            let again_unix_s = failure.not_before_unix_s.max(now_unix_s + wait_s);
            let settings = attempt.options.settings();
            record.fail(&failure.message, &settings, again_unix_s);
            tracing::error!(
                target: "sluice::event::certificate::failed",
                names = record.names.join(", "),
                cause = record.last_error.as_deref(),
                again_in_s = again_unix_s - now_unix_s,
                "a certificate could not be obtained"
            );
            store(shared, &record);
            shared.take(&record, current);
        }
    }
    drop(busy);
    shared.decide(&record);
}

/// Asks the authority for the time of a certificate's renewal.
pub async fn ask_window(shared: &Shared, attempt: &Attempt, state: State) {
    let id = Record::id(&state.names);
    let _busy = Busy::new(shared, &id, Task::AskWindow);
    let Some(certificate) = shared.certificate(&id) else {
        return;
    };
    let Some(mut record) = read(shared, &id, &state) else {
        return;
    };
    let now_unix_s = shared.clock.unix_s();
    let asked = window::ask(&attempt.authorities, &certificate, &mut record, now_unix_s).await;
    if let Err(failure) = asked {
        tracing::warn!(
            names = record.names.join(", "),
            cause = failure.message,
            "the authority has not said when a certificate is to be renewed"
        );
    }
    store(shared, &record);
    shared.take(&record, Some(certificate));
}

/// Revokes a certificate, after which a new one is due.
pub async fn revoke(shared: &Shared, attempt: &Attempt, revocation: Revocation) {
    let id = Record::id(&revocation.names);
    let busy = Busy::new(shared, &id, Task::Obtain);
    let (storage, managed) = (&*shared.storage, &*shared.managed);
    let revoked = revocation
        .carry_out(&attempt.authorities, storage, managed)
        .await;
    if let Ok(record) = &revoked {
        shared.take(record, None);
    }
    drop(busy);
    revocation.end(revoked.err());
}

fn read(shared: &Shared, id: &str, state: &State) -> Option<Record> {
    match Record::read(&*shared.storage, &state.names) {
        Ok(record) => Some(Record {
            on_demand: state.is_on_demand,
            // If the record can't be stored, the waits become longer all the same.
            failures: record.failures.max(state.failures),
            ..record
        }),
        Err(error) => {
            tracing::error!(%error, certificate = id, "the state of a certificate can't be read");
            let next_unix_s = shared.clock.unix_s() + schedule::wait_s(1, 0.0);
            shared.note(id, |state| state.next_unix_s = next_unix_s);
            None
        }
    }
}

fn store(shared: &Shared, record: &Record) {
    if let Err(error) = record.write(&*shared.storage) {
        let certificate = Record::id(&record.names);
        tracing::error!(%error, certificate, "the state of a certificate can't be stored");
    }
}

/// Asks each authority in turn, the one with an order in progress first.
async fn in_turn(
    shared: &Shared,
    attempt: &Attempt,
    replaced: Option<&Certificate>,
    record: &mut Record,
) -> Result<Certificate, Failure> {
    let pending = record.order.as_ref().map(|order| order.directory.clone());
    let has_order = |one: &&Authority| pending.as_deref() == Some(one.url());
    let authorities = attempt.authorities.iter();
    let first = authorities.clone().filter(has_order);
    let others = authorities.filter(|one| !has_order(one));
    let mut failures: Vec<Failure> = Vec::new();
    for authority in first.chain(others) {
        let ordering = |account| Ordering {
            account,
            authority,
            replaced,
            options: &attempt.options,
            challenges: &shared.challenges,
            storage: &*shared.storage,
            clock: &shared.clock,
        };
        let within = match attempt.options.dns.is_some() {
            true => WITH_DNS_WITHIN,
            false => WITHIN,
        };
        let asked = timeout(within, ask(shared, authority, ordering, record)).await;
        match asked.unwrap_or_else(|_| Err(Failure::new("the attempt took too long"))) {
            Ok(certificate) => return Ok(certificate),
            Err(failure) => failures.push(failure.at(authority.url())),
        }
        let order = record.order.as_ref();
        if order.is_some_and(|order| order.key.is_some()) {
            // This authority may still issue the certificate, so no other one is asked.
            break;
        }
    }
    Err(all_of(&failures))
}

/// Returns the failure of an attempt in which all of these authorities failed.
fn all_of(failures: &[Failure]) -> Failure {
    let messages: Vec<&str> = failures.iter().map(|one| one.message.as_str()).collect();
    let not_before = failures.iter().map(|one| one.not_before_unix_s).min();
    Failure {
        not_before_unix_s: not_before.unwrap_or(0),
        is_postponed: failures.iter().all(|one| one.is_postponed),
        ..Failure::new(messages.join("; "))
    }
}

/// Asks one authority. An attempt whose nonces the authority does not take goes on at once.
async fn ask<'a>(
    shared: &Shared,
    authority: &'a Authority,
    ordering: impl Fn(&'a instant_acme::Account) -> Ordering<'a>,
    record: &mut Record,
) -> Result<Certificate, Failure> {
    let asked_until = || match authority.asked_s() {
        0 => 0,
        asked_s => shared.clock.unix_s() + asked_s.min(schedule::RETRY_AFTER_MAX_S),
    };
    if asked_until() > 0 {
        let message = "the authority wants no request at the moment (Retry-After)";
        return Err(Failure::postponed(asked_until(), message));
    }
    let mut nonces = 0;
    loop {
        let result = match authority.account().await {
            Ok(account) => ordering(account).obtain(record).await,
            Err(failure) => Err(failure),
        };
        match result {
            Err(failure) if failure.is_nonce && nonces < NONCES_MAX => nonces += 1,
            Err(failure) => {
                return Err(Failure {
                    not_before_unix_s: failure.not_before_unix_s.max(asked_until()),
                    ..failure
                });
            }
            Ok(certificate) => return Ok(certificate),
        }
    }
}
