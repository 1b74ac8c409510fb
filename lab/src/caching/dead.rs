//! Part `dead` of the caching experiment: the origin fails in several ways while clients request stale objects that may
//! be served with stale-if-error (RFC 5861).

use std::time::Duration;

use super::{Measured, TestBed, fill, wait_until_stale};
use crate::caches::Running;
use crate::figures::Spec;
use crate::load::{self, LoadPlan, LoadResult};
use crate::origin::{Accept, Origin, OriginOptions, Resource};

/// Number of objects, which are requested in turn.
const OBJECTS: u64 = 20;

const LENGTH: u64 = 5000;

/// Number of connections: enough for all requests that wait while the server waits for a silent origin.
const CONNECTIONS: usize = 512;

/// Revalidation in the background, as nginx does it here (`proxy_cache_background_update`), so that no client has to wait
/// for the origin.
const BACKGROUND: [(&str, &str); 1] = [("stale_while_revalidate", "\"1d\"")];

/// Divisor of the experiment's duration that gives the duration of the second and the third failure.
const SHORTER: f64 = 4.0;

/// The way in which the origin fails.
#[derive(Debug, Clone, Copy)]
enum Failure {
    /// The origin's port refuses connections.
    Refused,
    /// The origin accepts connections and sends no response.
    Silent,
    /// The origin responds with 503 to all requests.
    Failing,
}

struct Keys {
    failure: Failure,
    what: &'static str,
    errors: &'static str,
    attempts: &'static str,
    p50: &'static str,
    p99: &'static str,
    max: &'static str,
}

const FAILURES: [Keys; 3] = [
    Keys {
        failure: Failure::Refused,
        what: "origin refuses",
        errors: "dead_errors",
        attempts: "dead_asked",
        p50: "dead_p50",
        p99: "dead_p99",
        max: "dead_max",
    },
    Keys {
        failure: Failure::Silent,
        what: "origin is silent",
        errors: "silent_errors",
        attempts: "silent_asked",
        p50: "silent_p50",
        p99: "silent_p99",
        max: "silent_max",
    },
    Keys {
        failure: Failure::Failing,
        what: "origin answers 503",
        errors: "failing_errors",
        attempts: "failing_asked",
        p50: "failing_p50",
        p99: "failing_p99",
        max: "failing_max",
    },
];

pub(super) fn specs() -> Vec<Spec> {
    let specs = FAILURES.iter().flat_map(|keys| {
        let line = |key, what: &str, unit| Spec::new(key, format!("{}: {what}", keys.what), unit);
        [
            line(keys.errors, "not answered with 200", "requests").most(0.0),
            line(keys.attempts, "tried at the origin", "attempts"),
            line(keys.p50, "median latency", "ms"),
            line(keys.p99, "99th percentile", "ms"),
            line(keys.max, "longest", "ms"),
        ]
    });
    // The origin can't count connection attempts that the kernel refuses, so there is no figure for them.
    specs
        .filter(|spec| spec.key != FAILURES[0].attempts)
        .collect()
}

pub(super) fn measure(bed: &TestBed<'_>, measured: &mut Measured) -> anyhow::Result<()> {
    let origins: Vec<FailingOrigin> = FAILURES
        .iter()
        .map(|keys| FailingOrigin::start(bed, keys, measured))
        .collect::<anyhow::Result<_>>()?;
    wait_until_stale(Duration::from_secs(1));
    for one in &origins {
        one.fail(bed, measured)?;
    }
    Ok(())
}

/// An origin that is going to fail, and a server that has stored all of its objects.
struct FailingOrigin {
    keys: &'static Keys,
    origin: Origin,
    server: Running,
}

impl FailingOrigin {
    fn start(
        bed: &TestBed<'_>,
        keys: &'static Keys,
        measured: &mut Measured,
    ) -> anyhow::Result<FailingOrigin> {
        let origin = Origin::start(OriginOptions::default())?;
        let object = Resource::offset(LENGTH).cache_control("max-age=1, stale-if-error=86400");
        origin.serve_rest(object);
        let server = match keys.failure {
            Failure::Silent => bed.start_impatient(origin.addr(), &BACKGROUND, measured)?,
            Failure::Refused | Failure::Failing => {
                bed.start(origin.addr(), &BACKGROUND, measured)?
            }
        };
        for number in 0..OBJECTS {
            fill(server.addr(), &format!("/{number}"))?;
        }
        Ok(FailingOrigin {
            keys,
            origin,
            server,
        })
    }

    fn fail(&self, bed: &TestBed<'_>, measured: &mut Measured) -> anyhow::Result<()> {
        let (keys, origin) = (self.keys, &self.origin);
        match keys.failure {
            Failure::Refused => origin.refuse()?,
            Failure::Silent => origin.set_rules(|rules| rules.accept = Accept::Ignore),
            Failure::Failing => origin.serve_rest(Resource::status(503)),
        }
        if !matches!(keys.failure, Failure::Failing) {
            origin.drop_connections();
        }
        origin.reset_record();
        let seconds = match keys.failure {
            Failure::Refused => bed.options.seconds,
            Failure::Silent | Failure::Failing => bed.options.seconds / SHORTER,
        };
        bed.progress(&format!("{}: {seconds} s", keys.what));
        let result = load::run(LoadPlan {
            numbers: Some((0, OBJECTS)),
            connections: CONNECTIONS,
            rate: Some(bed.options.rate),
            seconds: Some(seconds),
            expect_length: Some(LENGTH),
            verify: true,
            timeout_seconds: 20.0,
            ..LoadPlan::new(self.server.addr(), "/{n}")
        })?;
        let attempts = match keys.failure {
            Failure::Failing => origin.read_record(|seen| seen.requests_total),
            Failure::Refused | Failure::Silent => {
                origin.read_record(|seen| seen.connections.len()) as u64
            }
        };
        measured.put(keys.attempts, attempts as f64);
        keys.count(&result, measured);
        measured.notes.push(format!(
            "{}: {}: {} responses in {:.1} s, by status {:?}",
            bed.kind.name(),
            keys.what,
            result.statuses.values().sum::<u64>(),
            result.seconds,
            result.statuses
        ));
        Ok(())
    }
}

impl Keys {
    fn count(&self, result: &LoadResult, measured: &mut Measured) {
        measured.put(self.errors, result.errors.total() as f64);
        if result.requests > 0 {
            for (key, us) in [
                (self.p50, result.latency.p50_us),
                (self.p99, result.latency.p99_us),
                (self.max, result.latency.max_us),
            ] {
                measured.put(key, us / 1000.0);
            }
        }
    }
}
