//! Parts `crowd` and `uncacheable` of the caching experiment: many concurrent clients request an object that is not
//! stored yet, an object with variants, and an object that must not be stored.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;

use super::{Options, TestBed};
use crate::bench::{Route, Sluice, median};
use crate::figures::{Measured, Spec};
use crate::load::{self, LoadPlan, LoadResult};
use crate::origin::{Origin, OriginOptions, Resource};
use crate::rivals::{Floor, FloorOptions};

/// Time that the origin takes for a response. All clients have sent their requests before that time is over.
const DELAY: Duration = Duration::from_millis(200);

const LENGTH: u64 = 10_000;

/// Values of Accept-Language that select the object's variants.
const VARIANTS: [&str; 4] = ["de", "en", "fr", "it"];

/// Number of runs of each route, of which the median counts.
const ROUNDS: usize = 3;

/// Number of concurrent connections, enough that the server limits the throughput.
const BUSY: usize = 64;

const TIMEOUT_SECONDS: f64 = 60.0;

pub(super) fn specs(options: &Options) -> Vec<Spec> {
    let crowd = |what: &str| format!("{} clients, one object {what}", options.clients);
    vec![
        Spec::new("crowd", crowd("not cached"), "origin requests").most(1.0),
        Spec::new("crowd_errors", crowd("not cached"), "errors").most(0.0),
        Spec::new("vary", crowd("with 4 variants"), "origin requests").most(4.0),
        Spec::new("vary_errors", crowd("with 4 variants"), "errors").most(0.0),
    ]
}

pub(super) fn measure(bed: &TestBed<'_>, measured: &mut Measured) -> anyhow::Result<()> {
    let origin = Origin::start(OriginOptions::default())?;
    let lasting = |resource: Resource| resource.delay_head(DELAY).cache_control("max-age=3600");
    origin.serve("/object", lasting(Resource::offset(LENGTH)));
    let varying = Resource::dynamic(move |seen| {
        let language = seen.header("accept-language");
        let number = VARIANTS.iter().position(|name| Some(*name) == language);
        let length = number.map_or(0, |number| LENGTH + number as u64);
        lasting(Resource::offset(length)).vary("Accept-Language")
    });
    origin.serve("/varying", varying);
    let server = bed.start(origin.addr(), &[], measured)?;
    bed.progress("a crowd for one object");
    let result = load::run(crowd(server.addr(), "/object", bed.options.clients))?;
    measured.put(
        "crowd",
        origin.read_record(|seen| seen.count("/object")) as f64,
    );
    measured.put("crowd_errors", result.errors.total() as f64);

    bed.progress("a crowd for one object with variants");
    let errors = request_variants(server.addr(), bed.options.clients)?;
    measured.put(
        "vary",
        origin.read_record(|seen| seen.count("/varying")) as f64,
    );
    measured.put("vary_errors", errors as f64);
    Ok(())
}

/// Returns a load in which each client sends one request on its own connection and verifies every byte of the response.
fn crowd(server: SocketAddr, path: &str, clients: usize) -> LoadPlan {
    LoadPlan {
        connections: clients,
        requests: Some(clients as u64),
        expect_length: Some(LENGTH),
        verify: true,
        timeout_seconds: TIMEOUT_SECONDS,
        ..LoadPlan::new(server, path)
    }
}

/// Requests all variants at the same time. Each is requested by an equal number of clients. Returns the number of
/// failed requests.
fn request_variants(server: SocketAddr, clients: usize) -> anyhow::Result<u64> {
    let results: Vec<LoadResult> = thread::scope(|scope| {
        let loads: Vec<_> = VARIANTS
            .iter()
            .zip(LENGTH..)
            .map(|(language, length)| {
                let plan = LoadPlan {
                    headers: vec![("Accept-Language".to_owned(), (*language).to_owned())],
                    expect_length: Some(length),
                    ..crowd(server, "/varying", clients / VARIANTS.len())
                };
                scope.spawn(move || load::run(plan))
            })
            .collect();
        let results = loads.into_iter().map(|load| {
            let result = load.join();
            result.map_err(|_| anyhow::anyhow!("a client panicked"))?
        });
        results.collect::<anyhow::Result<_>>()
    })?;
    Ok(results.iter().map(|result| result.errors.total()).sum())
}

pub(super) fn uncacheable_specs(options: &Options) -> Vec<Spec> {
    let slow = format!("{} clients, one object that is no-store", options.clients);
    let fast = format!("{BUSY} clients, the same with a fast origin");
    vec![
        Spec::new(
            "uncacheable",
            format!("{slow}: ratio to a route without a cache"),
            "",
        )
        .least(0.9),
        Spec::new("uncacheable_rate", slow, "requests/s"),
        Spec::new(
            "uncacheable_fast",
            format!("{fast}: ratio to a route without a cache"),
            "",
        )
        .least(0.9),
        Spec::new("uncacheable_fast_rate", fast, "requests/s"),
    ]
}

/// Compares the throughput of two routes in one server process, one with a cache and one without. Runs of the two
/// alternate.
pub(super) fn measure_uncacheable(
    bed: &TestBed<'_>,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    let origin = Origin::start(OriginOptions {
        forget: true,
        ..OriginOptions::default()
    })?;
    let object = Resource::offset(LENGTH)
        .delay_head(DELAY)
        .cache_control("no-store");
    origin.serve_rest(object);
    bed.progress("a crowd for an object that must not be stored");
    let (ratio, rate) = compare(bed, origin.addr(), bed.options.clients, measured)?;
    measured.put("uncacheable", ratio);
    measured.put("uncacheable_rate", rate);

    let floor = Floor::start(FloorOptions {
        headers: vec![("Cache-Control".to_owned(), "no-store".to_owned())],
        ..FloorOptions::new(LENGTH)
    })?;
    bed.progress("the same from an origin that answers at once");
    let (ratio, rate) = compare(bed, floor.addr(), BUSY.min(bed.options.clients), measured)?;
    measured.put("uncacheable_fast", ratio);
    measured.put("uncacheable_fast_rate", rate);
    Ok(())
}

/// Returns the throughput with the cache divided by that without, and the throughput with the cache. Both are medians
/// over [`ROUNDS`].
fn compare(
    bed: &TestBed<'_>,
    origin: SocketAddr,
    connections: usize,
    measured: &mut Measured,
) -> anyhow::Result<(f64, f64)> {
    let mut options = bed.sluice(origin, &[], &[]);
    options.routes = vec![Route {
        path: "/plain/*".to_owned(),
        origin,
        cached: false,
    }];
    let sluice = Sluice::start(&options)?;
    measured
        .configurations
        .keep(bed.kind.name(), sluice.configuration());
    let seconds = (bed.options.seconds / 12.0).clamp(0.3, 5.0);
    let rate = |path: &str| {
        let result = load::run(LoadPlan {
            connections,
            seconds: Some(seconds),
            expect_length: Some(LENGTH),
            timeout_seconds: TIMEOUT_SECONDS,
            ..LoadPlan::new(sluice.addr(), path)
        })?;
        let errors = result.errors.total();
        anyhow::ensure!(errors == 0, "{path}: errors: {}", result.errors);
        bed.progress(&format!("{path}: {:.0} requests/s", result.rate()));
        Ok(result.rate())
    };
    let (mut plain, mut cached) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(rate("/plain/object")?);
        cached.push(rate("/object")?);
    }
    let plain = median(plain).context("rounds")?;
    let cached = median(cached).context("rounds")?;
    Ok((cached / plain.max(1e-9), cached))
}
