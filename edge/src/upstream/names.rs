//! The names of an upstream's servers, and what is known about them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::options::Options;
use crate::resolve::{Answer, Failure, Hosts, Name, Target};

/// The names of an upstream's servers.
pub(super) struct Names {
    /// Name of the upstream, for messages.
    upstream: String,
    /// Addresses of the name servers.
    pub(super) resolver: Vec<SocketAddr>,
    /// The names, each with the index of its server among the configured ones.
    pub(super) all: Vec<(usize, Name)>,
    /// Whether the upstream has servers without a name, too.
    has_others: bool,
    begun: AtomicBool,
    /// The state of each name.
    states: Mutex<Vec<State>>,
    /// Changes with each answer.
    answers: watch::Sender<()>,
}

/// The state of a name's resolution.
#[derive(Clone, PartialEq, Eq)]
enum State {
    /// There was no answer yet.
    Waiting,
    /// There was never an answer with addresses, for this reason.
    Failed(Failure),
    /// The last answer has these targets, on these hosts. `fails`: later attempts failed, or a part of them.
    Known {
        targets: Vec<Target>,
        hosts: Hosts,
        fails: bool,
    },
}

/// Whether an answer is the first one about a name.
pub(super) struct IsFirst(pub(super) bool);

impl Names {
    /// Returns the names in the options of the upstream with this name. Names that it had `before` a
    /// reload keep their states.
    pub(super) fn new(upstream: &str, options: &Options, before: Option<&Names>) -> Names {
        let servers = options.servers.iter().enumerate();
        let all = servers.filter_map(|(index, server)| Some((index, server.name()?)));
        let all: Vec<(usize, Name)> = all.collect();
        let kept = |name| before.and_then(|before| before.known(name));
        let states = all
            .iter()
            .map(|(_, name)| kept(name).unwrap_or(State::Waiting));
        Names {
            upstream: upstream.to_owned(),
            resolver: options.resolver.clone(),
            has_others: all.len() < options.servers.len(),
            begun: AtomicBool::new(all.is_empty()),
            states: Mutex::new(states.collect()),
            all,
            answers: watch::Sender::default(),
        }
    }

    /// Returns the state of this name, if there was an answer.
    fn known(&self, name: &Name) -> Option<State> {
        let index = self.all.iter().position(|(_, other)| other == name)?;
        let state = self.states.lock().get(index)?.clone();
        matches!(state, State::Known { .. }).then_some(state)
    }

    /// Returns the targets of the names that are known, each with the index of its server.
    pub(super) fn targets(&self) -> Vec<(usize, Vec<Target>)> {
        let states = self.states.lock();
        let known = states.iter().zip(&self.all);
        let targets = known.filter_map(|(state, (server, _))| match state {
            State::Known { targets, .. } => Some((*server, targets.clone())),
            State::Waiting | State::Failed(_) => None,
        });
        targets.collect()
    }

    /// Returns the hosts of the last answer about the name with this index.
    pub(super) fn hosts(&self, index: usize) -> Hosts {
        match self.states.lock().get(index) {
            Some(State::Known { hosts, .. }) => hosts.clone(),
            _ => Hosts::default(),
        }
    }

    /// Returns the index of each server whose name has no address yet, and why, if there was an answer.
    pub(super) fn without_address(&self) -> Vec<(usize, Option<Failure>)> {
        let states = self.states.lock();
        let all = states.iter().zip(&self.all);
        let without = all.filter_map(|(state, (server, _))| match state {
            State::Waiting => Some((*server, None)),
            State::Failed(failure) => Some((*server, Some(failure.clone()))),
            State::Known { .. } => None,
        });
        without.collect()
    }

    /// Returns true once: to the caller who has to begin the resolution.
    pub(super) fn begins(&self) -> bool {
        !self.begun.load(Ordering::Relaxed) && !self.begun.swap(true, Ordering::Relaxed)
    }

    /// Whether the address of a server is known.
    #[cfg(test)]
    pub(super) fn is_resolved(&self) -> bool {
        self.is_known() == Some(true)
    }

    /// Waits until a name is resolved. Returns at once if the upstream has servers without a name.
    /// Returns false if no name can be resolved.
    pub(super) async fn resolved(&self) -> bool {
        let mut answers = self.answers.subscribe();
        loop {
            if let Some(known) = self.is_known() {
                return known;
            }
            if answers.changed().await.is_err() {
                return false;
            }
        }
    }

    /// Whether the address of a server is known, `None` if that is still to be found out.
    fn is_known(&self) -> Option<bool> {
        let states = self.states.lock();
        let known = |state: &State| matches!(state, State::Known { .. });
        match self.has_others || states.is_empty() || states.iter().any(known) {
            true => Some(true),
            false => (!states.contains(&State::Waiting)).then_some(false),
        }
    }

    /// Logs that the name servers have not answered the first question about the name with this index.
    pub(super) fn report_late(&self, index: usize, name_servers: &[SocketAddr]) {
        let is_waiting = self.states.lock().get(index) == Some(&State::Waiting);
        if let Some((_, name)) = self.all.get(index).filter(|_| is_waiting) {
            let name_servers = name_servers.iter().map(SocketAddr::to_string);
            let name_servers = name_servers.collect::<Vec<_>>().join(", ");
            let upstream = &self.upstream;
            tracing::warn!(%upstream, server = %name, %name_servers, "the name of a server is still being resolved");
        }
    }

    /// Wakes the requests that wait for the resolution.
    pub(super) fn wake(&self) {
        self.answers.send_replace(());
    }

    /// Whether an answer about the name with this index has other targets than the last one. If so,
    /// also returns whether it is the first answer.
    pub(super) fn changes(&self, index: usize, answer: &Answer) -> Option<IsFirst> {
        match self.states.lock().get(index)? {
            State::Known { targets, .. } if *targets == answer.targets => None,
            state => Some(IsFirst(*state == State::Waiting)),
        }
    }

    /// Notes an answer about the name with this index, and logs changes. The targets are in use
    /// before that, so that a request which finds the name resolved finds its servers, too. A failure
    /// changes nothing: the targets of the last answer stay in use.
    pub(super) fn note(&self, index: usize, answer: Result<Answer, Failure>) {
        let mut states = self.states.lock();
        let (Some(state), Some((_, name))) = (states.get_mut(index), self.all.get(index)) else {
            return;
        };
        let upstream = &self.upstream;
        match (answer, &mut *state) {
            (Err(error), State::Waiting) => {
                tracing::warn!(target: "sluice::event::server::unresolved", %upstream, server = %name, %error, "the name of a server does not resolve");
                *state = State::Failed(error);
            }
            (Err(error), State::Failed(failure)) => *failure = error,
            (Err(error), State::Known { fails, .. }) => {
                if !std::mem::replace(fails, true) {
                    tracing::warn!(target: "sluice::event::server::unresolved", %upstream, server = %name, %error, "the name of a server does not resolve any more; its last addresses stay in use");
                }
            }
            (Ok(answer), _) => self.note_targets(name, state, answer),
        }
    }

    /// Notes the targets of an answer.
    fn note_targets(&self, name: &Name, state: &mut State, answer: Answer) {
        let upstream = &self.upstream;
        let (is_same, failed) = match state {
            State::Known { targets, fails, .. } => (*targets == answer.targets, *fails),
            State::Waiting | State::Failed(_) => (false, false),
        };
        if !is_same {
            let addresses = answer.targets.iter().map(|one| one.address.to_string());
            let addresses = addresses.collect::<Vec<_>>().join(", ");
            tracing::info!(target: "sluice::event::server::addresses-changed", %upstream, server = %name, %addresses, "a server has other addresses");
        }
        match (failed, &answer.kept) {
            (false, Some(error)) => {
                tracing::warn!(%upstream, server = %name, %error, "the name of a server resolves only in part; its last addresses stay in use for the other part");
            }
            (true, None) => {
                tracing::info!(target: "sluice::event::server::resolved", %upstream, server = %name, "the name of a server resolves again");
            }
            _ => {}
        }
        *state = State::Known {
            targets: answer.targets,
            hosts: answer.hosts,
            fails: answer.kept.is_some(),
        };
    }
}
