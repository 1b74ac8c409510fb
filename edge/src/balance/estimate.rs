//! Estimates of how soon each server would respond, for the balancers that compare servers by time.

use super::policy::{Now, Outcome};

/// Expected time of a server that has not responded yet, if it has requests in progress or failed:
/// further requests wait for its first response where other servers are known.
const UNKNOWN_US: f64 = 1e6;
/// Largest expected time.
const EXPECTED_MAX_US: f64 = 600e6;
/// Largest factor by which one response raises the expected time. With it, a single slow response of
/// a fast server does not make the server seem as slow as one that is always slow. A server that
/// became ten times slower is known to be so after six responses.
const RISE: f64 = 1.5;
/// Least part of the difference by which a faster response lowers the expected time. The number of
/// responses counts and not only the time between them: at a thousand responses per second, a slow
/// one is forgotten within milliseconds.
const FALL: f64 = 0.25;
/// Time since the previous response after which a faster response lowers the expected time by half
/// of the difference.
const CONFIRMED_US: f64 = 1e6;
/// Time since the previous response after which an outcome counts as much as all earlier ones in the
/// share of failures.
const FAILING_US: f64 = 3e6;
/// Factor by which a server that fails all requests seems slower. Otherwise a server that fails at
/// once would seem the fastest.
const FAILING: f64 = 100.0;
/// Time without a choice or response, and number of choices of other servers, which together make a
/// server seem 16 times faster than its estimate ([`growth`]), so that it is tried again. The time
/// limits the tries at high rates, the number limits their share at low rates.
const DOUBT_US: f64 = 4e6;
const DOUBT_CHOICES: f64 = 500.0;
/// Part of the average load of all servers that is added to each one's own load. Without it, a slow
/// server that is idle would seem the best during a burst of requests to all, although the others
/// respond sooner as long as the requests do not slow them down. If they do, their expected times
/// tell that.
const AVERAGE: f64 = 0.5;
/// Number of choices that the recent share of a server mainly depends on: enough to tell a weight of
/// one percent from none.
const RECENT_CHOICES: f64 = 200.0;

/// The end of the time that a balancer measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// The time to the complete header.
    #[default]
    Header,
    /// The time to the last byte of the response.
    LastByte,
}

/// Estimates for the servers of an upstream, and their requests in progress.
///
/// The expected time of a server is a peak-sensitive moving average: slower responses than expected
/// raise it in full, but at most by half, and faster ones lower it gradually.
pub(super) struct Estimates {
    measure: Measure,
    servers: Vec<Server>,
    /// Sum of the weights of all servers, and number of those with a weight.
    weight: u64,
    present: usize,
    /// Number of requests in progress at all servers.
    in_progress: u64,
    /// Number of the last choice.
    choices: u64,
}

#[derive(Clone, Copy, Default)]
struct Server {
    weight: u32,
    in_progress: u64,
    /// Expected time, or `None` without a response.
    expected_us: Option<f64>,
    /// Share of the exchanges that failed, from 0 to 1, as a moving average.
    failing: f64,
    /// Time of the last response or failure.
    sampled_us: u64,
    /// Time and number of the last choice of this server.
    chosen_us: u64,
    chosen: u64,
    /// Share of the recent choices that were of this server, from 0 to 1.
    recent: f64,
}

/// A failed exchange.
struct Failed;

impl Estimates {
    pub(super) fn new(measure: Measure) -> Estimates {
        Estimates {
            measure,
            servers: Vec::new(),
            weight: 0,
            present: 0,
            in_progress: 0,
            choices: 0,
        }
    }

    pub(super) fn set_weights(&mut self, weights: &[u32]) {
        self.servers.resize(weights.len(), Server::default());
        for (server, &weight) in self.servers.iter_mut().zip(weights) {
            if server.weight == 0 {
                // The address of a new server may have been another one's before.
                server.expected_us = None;
                server.failing = 0.0;
            }
            server.weight = weight;
        }
        self.weight = weights.iter().map(|&weight| u64::from(weight)).sum();
        self.present = weights.iter().filter(|&&weight| weight > 0).count();
    }

    pub(super) fn len(&self) -> usize {
        self.servers.len()
    }

    /// Returns the weight of a server; 0: it is absent.
    pub(super) fn weight(&self, server: usize) -> u32 {
        self.servers[server].weight
    }

    /// Returns the number of the last choice of a server.
    pub(super) fn chosen(&self, server: usize) -> u64 {
        self.servers[server].chosen
    }

    /// Returns the cost of one more request to a server: its expected time, which failures make longer
    /// and doubt in an old estimate makes shorter, multiplied by its load. The load is the sum of the
    /// server's requests in progress and its share of recent choices, both relative to its weight, of
    /// one request, and of a part of the average number in progress.
    ///
    /// The recent share makes equally fast servers get requests by weight also when few are in progress.
    pub(super) fn cost(&self, server: usize, now_us: u64) -> f64 {
        let all = self.present as f64 + AVERAGE * self.in_progress as f64;
        self.servers[server].cost(now_us, self.choices, all / self.weight as f64)
    }

    /// Notes that a server is chosen.
    pub(super) fn choose(&mut self, server: usize, now_us: u64) {
        self.choices += 1;
        for other in &mut self.servers {
            other.recent -= other.recent / RECENT_CHOICES;
        }
        let server = &mut self.servers[server];
        server.recent += 1.0 / RECENT_CHOICES;
        server.chosen = self.choices;
        server.chosen_us = now_us;
    }

    pub(super) fn begin(&mut self, server: usize) {
        self.servers[server].in_progress += 1;
        self.in_progress += 1;
    }

    pub(super) fn end(&mut self, server: usize, outcome: Outcome, now: Now<'_>) {
        let sample = self.sample(outcome);
        let server = &mut self.servers[server];
        server.in_progress = server.in_progress.saturating_sub(1);
        self.in_progress = self.in_progress.saturating_sub(1);
        if let Some(sample) = sample {
            server.add(sample, now());
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

impl Server {
    /// Returns the cost; `common` is the part of the load that is the same for all servers.
    fn cost(&self, now_us: u64, choices: u64, common: f64) -> f64 {
        let past_us = now_us.saturating_sub(self.sampled_us.max(self.chosen_us)) as f64;
        let others = choices.saturating_sub(self.chosen) as f64;
        let (time, number) = (past_us / DOUBT_US, others / DOUBT_CHOICES);
        let failing = self.failing / growth(time);
        let (busy, weight) = (self.in_progress as f64, f64::from(self.weight));
        let cost = match self.expected_us {
            Some(us) => us * (1.0 + FAILING * failing) * ((busy + self.recent) / weight + common),
            None => (busy + failing) / weight * UNKNOWN_US,
        };
        cost / growth(time.min(number))
    }

    fn add(&mut self, sample: Result<f64, Failed>, now_us: u64) {
        let past_us = now_us.saturating_sub(self.sampled_us) as f64;
        let failed = f64::from(u8::from(sample.is_err()));
        self.failing += (failed - self.failing) * part(past_us, FAILING_US);
        if let Ok(us) = sample {
            let next_us = match self.expected_us {
                Some(expected_us) if us < expected_us => {
                    expected_us + (us - expected_us) * part(past_us, CONFIRMED_US).max(FALL)
                }
                Some(expected_us) => us.min(expected_us * RISE),
                None => us,
            };
            self.expected_us = Some(next_us.clamp(1.0, EXPECTED_MAX_US));
        }
        self.sampled_us = now_us;
    }
}

/// Returns the part that an outcome counts for, from 0 to 1, this time after the previous one: a half
/// after `half_us`.
fn part(past_us: f64, half_us: f64) -> f64 {
    past_us / (past_us + half_us)
}

/// Returns the factor by which an estimate is in doubt: 16 at `age` 1. The function resembles `exp`
/// and costs less.
fn growth(age: f64) -> f64 {
    (1.0 + age).powi(4)
}
