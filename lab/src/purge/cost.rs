//! Measures the cost of purge rules for a hit. Two instances of Sluice on one core receive requests in turns, before
//! and after one of them gets the rules. A change in the results of the other instance is caused by the machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{Options, purge};
use crate::bench::{Route, Sluice, SluiceOptions, median};
use crate::client::Client;
use crate::figures::Measured;
use crate::load::{self, LoadPlan};
use crate::origin::{Fault, Origin, OriginOptions, Resource};
use crate::rivals::{Floor, FloorOptions};
use crate::{LOAD_CORE, SERVER_CORE};

/// Number of objects, requested in turn, and size of each in bytes.
const OBJECTS: u64 = 1000;
const LENGTH: u64 = 5 << 10;

const CONNECTIONS: usize = 64;

/// Duration in seconds of the warm-up load before the first measured run.
const WARM_UP_SECONDS: f64 = 0.5;

/// Interval between two new rules in the run that measures hits while rules are added.
const RULE_EVERY: Duration = Duration::from_millis(10);

const PATIENCE: Duration = Duration::from_secs(20);

const PENDING: &str = "/pending";

pub(super) fn measure(
    options: &Options,
    progress: &dyn Fn(&str),
    measured: &mut Measured,
) -> anyhow::Result<()> {
    let cores = thread::available_parallelism()?.get();
    anyhow::ensure!(cores > LOAD_CORE, "this experiment needs two cores");
    let origin = Floor::start(FloorOptions::new(LENGTH))?;
    let (ruled, control) = (
        Contender::start(options, &origin)?,
        Contender::start(options, &origin)?,
    );
    for one in [&ruled, &control] {
        measured
            .configurations
            .keep("Sluice", one.sluice.configuration());
    }
    let runs = |what: &str| -> anyhow::Result<Cost> {
        let mut pairs = Vec::new();
        for _ in 0..options.rounds {
            pairs.push((
                ruled.hit_us(options.seconds)?,
                control.hit_us(options.seconds)?,
            ));
        }
        let cost = Cost::of(&pairs)?;
        progress(&format!(
            "{what}: {:.3} µs CPU per hit; without rules {:.3} µs",
            cost.us, cost.control_us
        ));
        Ok(cost)
    };
    let before = runs("before")?;
    for number in 0..options.rules {
        purge(ruled.sluice.admin(), &rule(number))?;
    }
    let after = runs("with rules")?;
    let while_arriving =
        with_new_rules(&ruled.sluice, options.rules, || runs("while rules arrive"))?;
    measured.put("cost", after.ratio / before.ratio);
    measured.put("cost_us", after.us);
    measured.put("cost_coming", while_arriving.ratio / before.ratio);
    let noise = after.control_us / before.control_us;
    measured.notes.push(format!(
        "CPU per hit of the instance without rules: {noise:.3} times that of the first runs"
    ));
    Ok(())
}

/// CPU time per hit of the instance with rules and of the one without. Medians.
struct Cost {
    us: f64,
    control_us: f64,
    /// Median over all rounds of the CPU time with rules divided by the CPU time without rules.
    ratio: f64,
}

impl Cost {
    fn of(pairs: &[(f64, f64)]) -> anyhow::Result<Cost> {
        let of = |pick: fn(&(f64, f64)) -> f64| {
            median(pairs.iter().map(pick).collect()).context("rounds")
        };
        Ok(Cost {
            us: of(|pair| pair.0)?,
            control_us: of(|pair| pair.1)?,
            ratio: of(|pair| pair.0 / pair.1)?,
        })
    }
}

/// Returns a purge that matches no stored object; its kind depends on `number`.
fn rule(number: u32) -> Value {
    let soft = number.is_multiple_of(2);
    match number % 3 {
        0 => json!({ "tag": format!("nothing-{number}"), "soft": soft }),
        1 => json!({ "prefix": format!("http://127.0.0.1/nothing-{number}/"), "soft": soft }),
        _ => json!({ "url": format!("http://127.0.0.1/nothing-{number}"), "soft": soft }),
    }
}

/// Runs `during` while Sluice gets a new rule every [`RULE_EVERY`].
fn with_new_rules<T>(
    sluice: &Sluice,
    first: u32,
    during: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut number = first;
            while !over.load(Ordering::Relaxed) {
                purge(sluice.admin(), &rule(number))?;
                number += 1;
                thread::sleep(RULE_EVERY);
            }
            anyhow::Ok(())
        });
        let done = during();
        over.store(true, Ordering::Relaxed);
        let result = sender.join();
        result.map_err(|_| anyhow::anyhow!("a client panicked"))??;
        done
    })
}

/// An instance of Sluice with objects in memory, and a fetch in progress whose origin never answers. Sluice can't
/// drop any rule, because the rules could apply to the response of that fetch.
struct Contender {
    sluice: Sluice,
    _pending: Client,
    _silent: Origin,
}

impl Contender {
    fn start(options: &Options, origin: &Floor) -> anyhow::Result<Contender> {
        let silent = Origin::start(OriginOptions::default())?;
        silent.serve_rest(Resource::offset(1).fault(Fault::NeverAnswer));
        let sluice = Sluice::start(&SluiceOptions {
            memory: Some("256MiB".to_owned()),
            routes: vec![Route {
                path: PENDING.to_owned(),
                origin: silent.addr(),
                cached: true,
            }],
            upstream: vec![("read_timeout".to_owned(), "\"24h\"".to_owned())],
            core: Some(SERVER_CORE),
            ..SluiceOptions::new(&options.program, origin.addr())
        })?;
        let mut pending = Client::connect(sluice.addr())?;
        pending.send("GET", PENDING, &[], b"")?;
        let received = silent.wait_for(|seen| seen.requests_total > 0, PATIENCE);
        anyhow::ensure!(received, "the silent origin has received no request");
        let contender = Contender {
            sluice,
            _pending: pending,
            _silent: silent,
        };
        contender.hit_us(WARM_UP_SECONDS)?;
        Ok(contender)
    }

    /// Returns the CPU time per hit in microseconds.
    fn hit_us(&self, seconds: f64) -> anyhow::Result<f64> {
        let process = self.sluice.process();
        let plan = LoadPlan {
            numbers: Some((0, OBJECTS)),
            connections: CONNECTIONS,
            seconds: Some(seconds),
            expect_length: Some(LENGTH),
            core: Some(LOAD_CORE),
            ..LoadPlan::new(self.sluice.addr(), "/{n}")
        };
        let before = process.cpu()?;
        let result = load::run_apart(plan)?;
        let used = process.cpu()?.saturating_sub(before);
        anyhow::ensure!(result.errors.total() == 0, "errors: {}", result.errors);
        Ok(used.as_secs_f64() * 1e6 / result.requests.max(1) as f64)
    }
}
