//! A purge by tag among many objects: the time to its response, and which objects are hits afterwards.

use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use serde_json::json;

use super::{Options, purge};
use crate::bench::{Route, Sluice, SluiceOptions};
use crate::client::Client;
use crate::figures::Measured;
use crate::load::{self, LoadPlan};
use crate::rivals::{Floor, FloorOptions};

const TAG: &str = "t";

/// Size of each object in bytes.
const LENGTH: u64 = 100;

/// Number of connections that fill the cache.
const CONNECTIONS: usize = 64;

/// Number of objects between two progress messages.
const PROGRESS_EVERY: u64 = 100_000;

/// Path prefixes of objects with and without the tag.
const TAGGED: &str = "/tagged/";
const OTHER: &str = "/other/";

pub(super) fn measure(
    options: &Options,
    progress: &dyn Fn(&str),
    measured: &mut Measured,
) -> anyhow::Result<()> {
    let tagged = origin(&[("Surrogate-Key", TAG)])?;
    let other = origin(&[])?;
    let sluice = Sluice::start(&SluiceOptions {
        memory: Some(options.memory.to_string()),
        routes: vec![Route {
            path: format!("{TAGGED}*"),
            origin: tagged.addr(),
            cached: true,
        }],
        workers: thread::available_parallelism()?.get(),
        ..SluiceOptions::new(&options.program, other.addr())
    })?;
    measured
        .configurations
        .keep("Sluice", sluice.configuration());
    let others = options.objects - options.tagged;
    let began = Instant::now();
    fill(&sluice, TAGGED, options.tagged, progress)?;
    fill(&sluice, OTHER, others, progress)?;
    let filled = began.elapsed();
    let memory = sluice.process().memory()?.rss >> 20;

    let sample = |path: &str, count| hits(sluice.addr(), path, count, options.samples);
    let (of_tagged, of_others) = (sample(TAGGED, options.tagged)?, sample(OTHER, others)?);
    let all = |count: u64| count.min(options.samples);
    anyhow::ensure!(
        of_tagged == all(options.tagged) && of_others == all(others),
        "not all objects are stored: {of_tagged} and {of_others} of {} samples are hits; try a larger --memory",
        options.samples
    );

    progress("purge");
    let (reply, sequence) = purge(sluice.admin(), &json!({ "tag": TAG }))?;
    let answered = Instant::now();
    let kept = sample(TAGGED, options.tagged)?;
    let checked = answered.elapsed();
    let left = sample(OTHER, others)?;
    measured.put("purge_ms", reply.total.as_secs_f64() * 1000.0);
    measured.put("purge_kept", kept as f64);
    measured.put("purge_lost", (all(others) - left) as f64);
    measured.notes.push(format!(
        "filled in {:.1} s, {memory} MiB resident; rule {sequence}; the samples with the tag were requested within \
         {:.0} ms of the response",
        filled.as_secs_f64(),
        checked.as_secs_f64() * 1000.0
    ));
    Ok(())
}

fn origin(headers: &[(&str, &str)]) -> anyhow::Result<Floor> {
    let headers = [&[("Cache-Control", "max-age=86400")], headers].concat();
    let owned = headers
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    Floor::start(FloorOptions {
        headers: owned.collect(),
        ..FloorOptions::new(LENGTH)
    })
}

/// Requests `count` objects once each, so that they are stored.
fn fill(sluice: &Sluice, path: &str, count: u64, progress: &dyn Fn(&str)) -> anyhow::Result<()> {
    let mut first = 0;
    while first < count {
        let batch = PROGRESS_EVERY.min(count - first);
        let result = load::run(LoadPlan {
            numbers: Some((first, batch)),
            requests: Some(batch),
            connections: CONNECTIONS.min(usize::try_from(batch)?),
            expect_length: Some(LENGTH),
            ..LoadPlan::new(sluice.addr(), &format!("{path}{{n}}"))
        })?;
        let errors = result.errors;
        anyhow::ensure!(errors.total() == 0, "filling {path}: {errors:?}");
        first += batch;
        progress(&format!(
            "{path}: {first} of {count}, {:.0} per second",
            result.rate()
        ));
    }
    Ok(())
}

/// Returns how many of at most `samples` objects, evenly spread, are hits.
fn hits(server: SocketAddr, path: &str, count: u64, samples: u64) -> anyhow::Result<u64> {
    let mut client = Client::connect(server)?;
    let samples = samples.min(count);
    let mut hits = 0;
    for sample in 0..samples {
        let number = u128::from(sample) * u128::from(count) / u128::from(samples);
        let reply = client.get(&format!("{path}{number}"), &[])?;
        anyhow::ensure!(reply.status == 200, "{path}{number}: {}", reply.status);
        let status = reply.header("cache-status").unwrap_or_default();
        hits += u64::from(status.contains("; hit"));
    }
    Ok(hits)
}
