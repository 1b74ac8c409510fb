//! One attempt to obtain a certificate, at each authority in turn, and its outcome.

use std::sync::Arc;
use std::thread;

use super::authority::Authority;
use super::failure::Failure;
use super::options::Options;
use super::order::Ordering;
use super::record::Record;
use super::revocation::Revocation;
use super::schedule;
use super::shared::Shared;
use super::state::State;
use super::window;
use crate::tls::Certificate;

/// Most times that an attempt goes on after the authority has refused a nonce (RFC 8555 6.5). The ACME library repeats
/// each request twice by itself.
const NONCES_MAX: usize = 10;

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
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let again_unix_s = self.shared.clock.unix_s() + schedule::wait_s(1, 0.0, 0);
        self.shared.note(self.id, |state| {
            state.is_busy = false;
            if thread::panicking() {
                state.next_unix_s = again_unix_s;
                state.ask_window_unix_s = again_unix_s;
            }
        });
    }
}

/// Obtains a certificate, or notes why that failed and when to try again.
pub async fn obtain(shared: &Shared, attempt: &Attempt, state: State) {
    let id = Record::id(&state.names);
    let busy = Busy { shared, id: &id };
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
                names = record.names.join(", "),
                issuer = certificate.facts.issuer,
                "a certificate was obtained"
            );
            shared.take(&record, Some(certificate));
        }
        Err(failure) => {
            let asked_s = attempt.authorities.iter().map(Authority::asked_s);
            let asked_s = asked_s.max().unwrap_or(0);
            let spread = schedule::spread(&record.names);
            let wait_s = schedule::wait_s(record.failures + 1, spread, asked_s);
            let now_unix_s = shared.clock.unix_s();
            let again_unix_s = failure.not_before_unix_s.max(now_unix_s + wait_s);
            record.fail(&failure.message, again_unix_s);
            tracing::error!(
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
    let _busy = Busy { shared, id: &id };
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
    let busy = Busy { shared, id: &id };
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
            ..record
        }),
        Err(error) => {
            tracing::error!(%error, certificate = id, "the state of a certificate can't be read");
            let next_unix_s = shared.clock.unix_s() + schedule::wait_s(1, 0.0, 0);
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
    let mut failures: Vec<String> = Vec::new();
    let mut soonest_unix_s = i64::MAX;
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
        match ask(authority, ordering, record).await {
            Ok(certificate) => return Ok(certificate),
            Err(failure) => {
                failures.push(format!("{}: {}", authority.url(), failure.message));
                soonest_unix_s = soonest_unix_s.min(failure.not_before_unix_s);
            }
        }
    }
    Err(Failure {
        not_before_unix_s: soonest_unix_s,
        ..Failure::new(failures.join("; "))
    })
}

/// Asks one authority. An attempt whose nonces the authority does not take goes on at once.
async fn ask<'a>(
    authority: &'a Authority,
    ordering: impl Fn(&'a instant_acme::Account) -> Ordering<'a>,
    record: &mut Record,
) -> Result<Certificate, Failure> {
    let mut nonces = 0;
    loop {
        let result = match authority.account().await {
            Ok(account) => ordering(account).obtain(record).await,
            Err(failure) => Err(failure),
        };
        match result {
            Err(failure) if failure.is_nonce && nonces < NONCES_MAX => nonces += 1,
            result => return result,
        }
    }
}
