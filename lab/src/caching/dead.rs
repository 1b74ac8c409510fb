//! The origin dies in one way after the other while clients keep asking for what has become stale, and may be used in
//! that case (stale-if-error, RFC 5861).

use std::time::Duration;

use super::{Bed, Measured, Server, fill, let_go_stale};
use crate::figures::Spec;
use crate::load::{self, LoadPlan, LoadResult};
use crate::origin::{Accept, Origin, OriginOptions, Resource};

/// Objects that are asked for in turn.
const OBJECTS: u64 = 20;

const LENGTH: u64 = 5000;

/// Connections; enough for all requests that wait while the origin's silence is not yet taken for its death.
const CONNECTIONS: usize = 512;

/// Shorter loads than the first, whose time the options give, are this part of it.
const SHORTER: f64 = 4.0;

/// How an origin can be dead.
#[derive(Debug, Clone, Copy)]
enum Death {
    /// Connections are refused.
    Refused,
    /// Connections are made, and nothing comes.
    Silent,
    /// All answers are 503.
    Failing,
}

struct Keys {
    death: Death,
    what: &'static str,
    errors: &'static str,
    asked: &'static str,
    p50: &'static str,
    p99: &'static str,
    max: &'static str,
}

const DEATHS: [Keys; 3] = [
    Keys {
        death: Death::Refused,
        what: "origin refuses",
        errors: "dead_errors",
        asked: "dead_asked",
        p50: "dead_p50",
        p99: "dead_p99",
        max: "dead_max",
    },
    Keys {
        death: Death::Silent,
        what: "origin is silent",
        errors: "silent_errors",
        asked: "silent_asked",
        p50: "silent_p50",
        p99: "silent_p99",
        max: "silent_max",
    },
    Keys {
        death: Death::Failing,
        what: "origin says 503",
        errors: "failing_errors",
        asked: "failing_asked",
        p50: "failing_p50",
        p99: "failing_p99",
        max: "failing_max",
    },
];

pub(super) fn specs() -> Vec<Spec> {
    let specs = DEATHS.iter().flat_map(|keys| {
        let line = |key, what: &str, unit| Spec::new(key, format!("{}: {what}", keys.what), unit);
        [
            line(keys.errors, "not answered with 200", "requests").most(0.0),
            line(keys.asked, "tried at the origin", "requests"),
            line(keys.p50, "median latency", "ms"),
            line(keys.p99, "99th percentile", "ms"),
            line(keys.max, "longest", "ms"),
        ]
    });
    // What a refusing origin is asked nobody counts.
    specs.filter(|spec| spec.key != DEATHS[0].asked).collect()
}

pub(super) fn measure(bed: &Bed<'_>, measured: &mut Measured) -> anyhow::Result<()> {
    let dying: Vec<Dying> = DEATHS
        .iter()
        .map(|keys| Dying::start(bed, keys))
        .collect::<anyhow::Result<_>>()?;
    let_go_stale(Duration::from_secs(1));
    for one in &dying {
        one.die(bed, measured)?;
    }
    Ok(())
}

/// An origin that will die, and a server of its own with all objects.
struct Dying {
    keys: &'static Keys,
    origin: Origin,
    server: Server,
}

impl Dying {
    fn start(bed: &Bed<'_>, keys: &'static Keys) -> anyhow::Result<Dying> {
        let origin = Origin::start(OriginOptions::default())?;
        let object = Resource::offset(LENGTH).cache_control("max-age=1, stale-if-error=86400");
        origin.serve_rest(object);
        let server = bed.start(origin.addr(), &[])?;
        for number in 0..OBJECTS {
            fill(server.addr(), &format!("/{number}"))?;
        }
        Ok(Dying {
            keys,
            origin,
            server,
        })
    }

    fn die(&self, bed: &Bed<'_>, measured: &mut Measured) -> anyhow::Result<()> {
        let (keys, origin) = (self.keys, &self.origin);
        match keys.death {
            Death::Refused => origin.refuse()?,
            Death::Silent => origin.set_rules(|rules| rules.accept = Accept::Ignore),
            Death::Failing => origin.serve_rest(Resource::status(503)),
        }
        if !matches!(keys.death, Death::Failing) {
            origin.drop_connections();
        }
        origin.reset_record();
        let seconds = match keys.death {
            Death::Refused => bed.options.seconds,
            Death::Silent | Death::Failing => bed.options.seconds / SHORTER,
        };
        bed.tell(&format!("{}: {seconds} s", keys.what));
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
        let asked = match keys.death {
            Death::Failing => origin.read_record(|seen| seen.requests_total),
            Death::Refused | Death::Silent => {
                origin.read_record(|seen| seen.connections.len()) as u64
            }
        };
        measured.put(keys.asked, asked as f64);
        keys.count(&result, measured);
        measured.notes.push(format!(
            "{}: {}: {} answers in {:.1} s, by status {:?}",
            bed.who.name(),
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
