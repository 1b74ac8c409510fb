//! The test bed of one round: the origin, the sequence of requests, and their timings.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::origin_cost::OriginCost;
use super::round::{Round, Times, Timing};
use super::{LENGTH, Options};
use crate::caches::Running;
use crate::client::{Client, ClientOptions, ContentRange, Head};
use crate::offset;
use crate::origin::{Origin, OriginOptions, Record, Resource};

/// Offsets of the requested ranges of ten bytes: in the middle of the file, later, and so early that a fetch of the
/// whole file reaches the range soon.
const MIDDLE: u64 = 5_000_000;
const FURTHER: u64 = 9_000_000;
const LANDED: u64 = 1_000_000;
const TEN: u64 = 10;

/// Number of bytes of the whole file after whose arrival the second client requests its ranges.
const MARK: u64 = 2 << 20;

/// Number of requests for the cached range, whose median counts.
const WARM: usize = 5;

/// Number of requests of a round: nine kinds, one of them [`WARM`] times, and the one that begins the block for `inside`.
pub(super) const REQUESTS: u32 = 9 + WARM as u32;

/// Time for a cache to finish storing after the origin has sent its last byte.
const SETTLE: Duration = Duration::from_millis(250);

/// The origin and the limits for requests.
pub(super) struct TestBed {
    origin: Origin,
    slice: u64,
    timeout: Duration,
}

impl TestBed {
    pub(super) fn new(options: &Options) -> anyhow::Result<TestBed> {
        let origin = Origin::start(OriginOptions::default())?;
        let file = Resource::offset(LENGTH)
            .rate(options.rate)
            .vary("Accept-Encoding")
            .cache_control("max-age=3600");
        origin.serve_rest(file);
        Ok(TestBed {
            origin,
            slice: options.slice,
            // Twice the time for the whole file, since a server may fetch it a second time.
            timeout: Duration::from_secs(20 + 2 * LENGTH / options.rate),
        })
    }

    pub(super) fn origin(&self) -> SocketAddr {
        self.origin.addr()
    }

    /// Runs one round with a cache: ranges of two cold files and the fetch of a third file in parallel, then a warm
    /// range. Each client has its own file and address.
    pub(super) fn round(&self, cache: &Running) -> anyhow::Result<Round> {
        let server = cache.addr();
        let cpu_before = cache.cpu()?;
        let seek = FileClient::new(self, server, "/seek.bin", 2);
        let fill = FileClient::new(self, server, "/fill.bin", 3);
        let inside = FileClient::new(self, server, "/inside.bin", 4);
        let ((cold, same, again, further), (whole, landed, gap), inside) =
            thread::scope(|scope| {
                let seeking = scope.spawn(|| seek.seek());
                let filling = scope.spawn(|| fill.fill());
                let inside = scope.spawn(|| inside.inside());
                anyhow::Ok((join(seeking)?, join(filling)?, join(inside)?))
            })?;
        let quiet = self.origin.wait_for(Record::quiet, self.timeout);
        ensure!(quiet, "the origin keeps receiving requests");
        let middle = MIDDLE..MIDDLE + TEN;
        let sought = seek.origin_cost(&[middle, FURTHER..FURTHER + TEN]);
        let filled = fill.origin_cost(std::slice::from_ref(&(0..LENGTH)));
        thread::sleep(SETTLE);
        let times = Times {
            cold,
            same,
            again,
            further,
            inside,
            landed,
            gap,
            whole,
            warm: seek.warm()?,
        };
        let cpu = cache.cpu()?.zip(cpu_before);
        Ok(Round {
            times,
            seek: sought,
            fill: filled,
            cpu: cpu.map(|(after, before)| after.saturating_sub(before) / REQUESTS),
        })
    }
}

fn join<T>(client: thread::ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    let result = client.join();
    result.map_err(|_| anyhow::anyhow!("a client panicked"))?
}

/// A client for one file of one server.
struct FileClient<'a> {
    bed: &'a TestBed,
    server: SocketAddr,
    path: &'static str,
    options: ClientOptions,
}

impl<'a> FileClient<'a> {
    fn new(bed: &'a TestBed, server: SocketAddr, path: &'static str, client: u8) -> FileClient<'a> {
        FileClient {
            bed,
            server,
            path,
            options: ClientOptions {
                source: Some([127, 0, 0, client].into()),
                timeout: bed.timeout,
                ..ClientOptions::default()
            },
        }
    }

    /// Requests a range in the middle of an uncached file, and the same range again as soon as the origin has
    /// received a request. When the first response is complete, requests the same range once more and, in parallel, a
    /// later range.
    fn seek(&self) -> anyhow::Result<(Timing, Timing, Timing, Timing)> {
        thread::scope(|scope| {
            let cold = scope.spawn(|| self.fetch_ten(MIDDLE).context("the cold range"));
            let has_request = |record: &Record| record.count(self.path) > 0;
            let received = self.bed.origin.wait_for(has_request, self.bed.timeout);
            ensure!(received, "the origin has received no request");
            let same = scope.spawn(|| {
                self.fetch_ten(MIDDLE)
                    .context("the same range at the same time")
            });
            let cold = join(cold)?;
            let again = scope.spawn(|| self.fetch_ten(MIDDLE).context("the same range again"));
            let further = scope.spawn(|| self.fetch_ten(FURTHER).context("a later range"));
            Ok((cold, join(same)?, join(again)?, join(further)?))
        })
    }

    /// Requests the first bytes of the block that contains the middle of the file. As soon as the origin has received
    /// this request, requests the middle of the file, while its block is being fetched from the block's beginning.
    fn inside(&self) -> anyhow::Result<Timing> {
        let start = MIDDLE / self.bed.slice * self.bed.slice;
        thread::scope(|scope| {
            let first =
                scope.spawn(move || self.fetch_ten(start).context("the beginning of a block"));
            let has_request = |record: &Record| record.count(self.path) > 0;
            let received = self.bed.origin.wait_for(has_request, self.bed.timeout);
            ensure!(received, "the origin has received no request");
            let inside = self
                .fetch_ten(MIDDLE)
                .context("a range inside a block that is being fetched")?;
            join(first)?;
            Ok(inside)
        })
    }

    /// Requests the whole file. When [`MARK`] bytes have arrived, requests a range before that position and one after
    /// it.
    fn fill(&self) -> anyhow::Result<(Timing, Timing, Timing)> {
        let (reached, wait) = mpsc::channel();
        thread::scope(|scope| {
            let whole = scope.spawn(move || {
                let reached = || {
                    // Sending fails only if the receiver has stopped waiting.
                    let _ = reached.send(());
                };
                self.fetch(None, reached).context("the whole file")
            });
            // A client that fails drops its end of the channel; joining it returns the error.
            if wait.recv_timeout(self.bed.timeout).is_err() {
                return join(whole).and_then(|_| anyhow::bail!("the whole file does not arrive"));
            }
            let landed = scope.spawn(|| self.fetch_ten(LANDED).context("a range that has arrived"));
            let gap = scope.spawn(|| {
                self.fetch_ten(MIDDLE)
                    .context("a range beyond the running fetch")
            });
            let (landed, gap) = (join(landed)?, join(gap)?);
            Ok((join(whole)?, landed, gap))
        })
    }

    fn warm(&self) -> anyhow::Result<Timing> {
        let timings = (0..WARM).map(|_| self.fetch_ten(MIDDLE).context("the warm range"));
        let mut timings: Vec<Timing> = timings.collect::<anyhow::Result<_>>()?;
        timings.sort_by_key(|timing| timing.total);
        Ok(timings[WARM / 2])
    }

    fn origin_cost(&self, wanted: &[Range<u64>]) -> OriginCost {
        let seen: Vec<_> = self
            .bed
            .origin
            .read_record(|record| record.of(self.path).cloned().collect());
        OriginCost::of(&seen, wanted, self.bed.slice, LENGTH)
    }

    fn fetch_ten(&self, first: u64) -> anyhow::Result<Timing> {
        self.fetch(Some(first..first + TEN), || ())
    }

    /// Sends one request on a new connection and verifies every byte of the response. Calls `marked` when [`MARK`]
    /// bytes of the body have arrived. Times count from sending the request on the open connection.
    fn fetch(&self, wanted: Option<Range<u64>>, marked: impl Fn()) -> anyhow::Result<Timing> {
        let mut client = Client::connect_with(self.server, &self.options)?;
        let field = wanted
            .as_ref()
            .map(|range| format!("bytes={}-{}", range.start, range.end - 1));
        let mut fields = vec![("Connection", "close")];
        fields.extend(field.as_deref().map(|value| ("Range", value)));
        let began = Instant::now();
        client.send("GET", self.path, &fields, b"")?;
        let head = loop {
            let head = client.read_head()?;
            if head.status >= 200 {
                break head;
            }
        };
        check(&head, wanted.as_ref())?;
        let wanted = wanted.unwrap_or(0..LENGTH);
        let length = usize::try_from(wanted.end - wanted.start)?;
        let mut body = client.read_some(1)?;
        let first = began.elapsed();
        let mark = usize::try_from(MARK)?.min(length);
        body.extend(client.read_some(mark.saturating_sub(body.len()))?);
        if body.len() == mark {
            marked();
        }
        body.extend(client.read_some(length - body.len())?);
        let total = began.elapsed();
        let got = body.len();
        ensure!(got == length, "cut after {got} of {length} bytes");
        offset::verify_offset(wanted.start, &body)?;
        Ok(Timing { first, total })
    }
}

/// Checks that a response head announces exactly the requested range.
fn check(head: &Head, wanted: Option<&Range<u64>>) -> anyhow::Result<()> {
    let length = wanted.map_or(LENGTH, |range| range.end - range.start);
    let expected = wanted.map(|range| ContentRange {
        first: range.start,
        last: range.end - 1,
        complete: Some(LENGTH),
    });
    let status = if wanted.is_some() { 206 } else { 200 };
    ensure!(head.status == status, "status {}", head.status);
    ensure!(
        head.content_range() == expected,
        "Content-Range is {:?}",
        head.header("content-range")
    );
    ensure!(
        head.header("content-length") == Some(&length.to_string()),
        "Content-Length is {:?}",
        head.header("content-length")
    );
    Ok(())
}
