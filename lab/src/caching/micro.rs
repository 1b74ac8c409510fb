//! A page that takes the origin long to make and lives for a second, under a constant load: how often the origin makes
//! it, and who waits for that.

use std::time::Duration;

use super::{Bed, MICRO, Measured, Options, fill};
use crate::figures::Spec;
use crate::load::{self, LoadPlan};
use crate::origin::{Modified, Origin, OriginOptions, Resource, Tag};

/// What the origin takes to make the page.
const DELAY: Duration = Duration::from_millis(50);

/// Who gets the page later than this has waited for the origin.
const WAITED: Duration = Duration::from_millis(25);

const LENGTH: u64 = 10_000;

/// Connections of the load; those that wait for the origin must not keep the others from being asked on time.
const CONNECTIONS: usize = 256;

const PATH: &str = "/page";

pub(super) fn specs(options: &Options) -> Vec<Spec> {
    let line =
        |key, what: &str, unit| Spec::new(key, format!("a page lives for 1 s: {what}"), unit);
    vec![
        line("micro", "made by the origin", "times").most(options.seconds.ceil() + 1.0),
        line("micro_waited", "waited longer than 25 ms", "requests").most(0.0),
        line("micro_errors", "not answered with 200", "requests").most(0.0),
        line("micro_p50", "median latency", "ms"),
        line("micro_p99", "99th percentile", "ms"),
        line("micro_max", "longest", "ms"),
    ]
}

/// The first client, who must wait, asks before the load.
pub(super) fn measure(bed: &Bed<'_>, measured: &mut Measured) -> anyhow::Result<()> {
    let origin = Origin::start(OriginOptions::default())?;
    // Made anew each time, so there is nothing to validate it by.
    let page = Resource::offset(LENGTH)
        .tag(Tag::None)
        .modified(Modified::None)
        .delay_head(DELAY);
    origin.serve(PATH, page);
    let server = bed.start(origin.addr(), &MICRO)?;
    fill(server.addr(), PATH)?;
    let (rate, seconds) = (bed.options.rate, bed.options.seconds);
    bed.tell(&format!(
        "a page that lives for a second: {rate} requests/s, {seconds} s"
    ));
    let result = load::run(LoadPlan {
        connections: CONNECTIONS,
        rate: Some(rate),
        seconds: Some(seconds),
        expect_length: Some(LENGTH),
        verify: true,
        slow_us: Some(u64::try_from(WAITED.as_micros())?),
        ..LoadPlan::new(server.addr(), PATH)
    })?;
    measured.put("micro", origin.read_record(|seen| seen.count(PATH)) as f64);
    measured.put("micro_waited", result.slow as f64);
    measured.put("micro_errors", result.errors.total() as f64);
    measured.put("micro_p50", result.latency.p50_us / 1000.0);
    measured.put("micro_p99", result.latency.p99_us / 1000.0);
    measured.put("micro_max", result.latency.max_us / 1000.0);
    Ok(())
}
