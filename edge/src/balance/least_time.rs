//! Balancer that chooses the server which is expected to respond first.

use super::policy::{Ask, Balancer, Now, Outcome};

/// Time in which an estimate that no new response confirms falls to 37 % (1/e). A server that was
/// slow is therefore tried again after some time.
const DECAY_US: f64 = 3e6;
/// Largest expected time.
const EXPECTED_MAX_US: f64 = 600e6;
/// Expected time of a server that has not responded yet, if it has requests in progress or failed:
/// further requests wait for its first response where other servers are known.
const UNKNOWN_US: f64 = 1e6;
/// Factor by which a server that fails all requests seems slower. Otherwise a server that fails at
/// once would seem the fastest.
const FAILING: f64 = 100.0;

/// The end of the time that `least-time` measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// The time to the complete header.
    #[default]
    Header,
    /// The time to the last byte of the response.
    LastByte,
}

/// Chooses the server with the smallest product of expected time and requests in progress, divided
/// by its weight.
///
/// The expected time is a peak-sensitive moving average: a longer time than expected counts at once
/// and in full, shorter ones change the average slowly.
pub(super) struct LeastTime {
    measure: Measure,
    servers: Vec<Server>,
    /// Number of the last choice.
    choices: u64,
}

#[derive(Clone, Copy, Default)]
struct Server {
    weight: u32,
    in_progress: u64,
    /// Expected time at `at_us`, or `None` without a response.
    expected_us: Option<f64>,
    /// Share of the exchanges that failed, from 0 to 1, as a moving average at `at_us`.
    failing: f64,
    at_us: u64,
    /// Number of the last choice of this server, by which equal servers take turns.
    chosen: u64,
}

impl LeastTime {
    pub(super) fn new(measure: Measure) -> LeastTime {
        LeastTime {
            measure,
            servers: Vec::new(),
            choices: 0,
        }
    }

    /// Returns the time that counts for an exchange with this outcome: `Err` for a failure, `None`
    /// if the outcome says nothing about the server.
    fn sample(&self, outcome: Outcome) -> Option<Result<f64, Failed>> {
        match (outcome, self.measure) {
            (Outcome::Cancelled, _) => None,
            (Outcome::Answered { status, .. }, _) if status >= 500 => Some(Err(Failed)),
            (Outcome::Answered { head_us, .. }, Measure::Header) => Some(Ok(head_us as f64)),
            (Outcome::Answered { total_us, .. }, Measure::LastByte) => {
                total_us.map(|total_us| Ok(total_us as f64))
            }
            (Outcome::ConnectFailed | Outcome::TimedOut | Outcome::Broken, _) => Some(Err(Failed)),
        }
    }
}

/// A failed exchange.
struct Failed;

impl Server {
    /// Returns the part of the expected time that remains at `now_us`: how much a value of the past
    /// counts now, from 0 to 1.
    fn decay(&self, now_us: u64) -> f64 {
        let past_us = now_us.saturating_sub(self.at_us) as f64;
        (-past_us / DECAY_US).exp()
    }

    fn cost(&self, now_us: u64) -> f64 {
        let (busy, decay) = (self.in_progress as f64, self.decay(now_us));
        let failing = self.failing * decay;
        let cost = match self.expected_us {
            Some(us) => (us * decay).max(1.0) * (1.0 + FAILING * failing) * (busy + 1.0),
            None => (busy + failing) * UNKNOWN_US,
        };
        cost / f64::from(self.weight)
    }

    fn add(&mut self, sample: Result<f64, Failed>, now_us: u64) {
        let decay = self.decay(now_us);
        let average = |old: f64, new: f64| old * decay + new * (1.0 - decay);
        self.failing = average(self.failing, f64::from(u8::from(sample.is_err())));
        if let Ok(us) = sample {
            let next_us = match self.expected_us {
                Some(expected_us) if us < expected_us => average(expected_us, us),
                _ => us,
            };
            self.expected_us = Some(next_us.clamp(1.0, EXPECTED_MAX_US));
        }
        self.at_us = now_us;
    }
}

impl Balancer for LeastTime {
    fn set_weights(&mut self, weights: &[u32]) {
        self.servers.resize(weights.len(), Server::default());
        for (server, &weight) in self.servers.iter_mut().zip(weights) {
            if server.weight == 0 {
                // The address of a new server may have been another one's before.
                server.expected_us = None;
                server.failing = 0.0;
            }
            server.weight = weight;
        }
    }

    fn choose(&mut self, ask: &Ask<'_>) -> Option<usize> {
        let now_us = (ask.now)();
        let mut best: Option<(usize, f64)> = None;
        for (index, server) in self.servers.iter().enumerate() {
            if server.weight == 0 || !ask.allows(index) {
                continue;
            }
            let cost = server.cost(now_us);
            let is_better = best.is_none_or(|(other, least)| {
                cost < least || (cost == least && server.chosen < self.servers[other].chosen)
            });
            if is_better {
                best = Some((index, cost));
            }
        }
        let (chosen, _) = best?;
        self.choices += 1;
        self.servers[chosen].chosen = self.choices;
        Some(chosen)
    }

    fn begin(&mut self, server: usize) {
        self.servers[server].in_progress += 1;
    }

    fn end(&mut self, server: usize, outcome: Outcome, now: Now<'_>) {
        let sample = self.sample(outcome);
        let server = &mut self.servers[server];
        server.in_progress = server.in_progress.saturating_sub(1);
        if let Some(sample) = sample {
            server.add(sample, now());
        }
    }
}
