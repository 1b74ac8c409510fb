//! One round on the bed: the origin, the requests in their order, and what each of them took.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::account::Account;
use super::report::Times;
use super::{LENGTH, Options};
use crate::client::{Client, ClientOptions, ContentRange, Head};
use crate::offset;
use crate::origin::{Origin, OriginOptions, Record, Resource};

/// First bytes of the ranges of ten bytes: the article's, one further on, and one that a fill from the start has soon.
const MIDDLE: u64 = 5_000_000;
const FURTHER: u64 = 9_000_000;
const LANDED: u64 = 1_000_000;
const TEN: u64 = 10;

/// How far the whole file has come when ranges are asked beside it.
const MARK: u64 = 2 << 20;

/// Warm requests of which the median counts.
const WARM: usize = 5;

/// What a cache may need after the origin's last byte until what it has stored is of use.
const SETTLE: Duration = Duration::from_millis(250);

/// What one request took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// From sending it to the first byte of the body, or to the head where there is no body.
    pub(super) first: Duration,
    /// To the last byte of the body.
    pub(super) total: Duration,
}

/// What one round measured.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) times: Times<Timing>,
    pub(super) seek: Account,
    pub(super) fill: Account,
}

/// The origin and how it is asked.
pub(super) struct Bed {
    origin: Origin,
    slice: u64,
    patience: Duration,
}

impl Bed {
    pub(super) fn new(options: &Options) -> anyhow::Result<Bed> {
        let origin = Origin::start(OriginOptions::default())?;
        let file = Resource::offset(LENGTH)
            .rate(options.rate)
            .vary("Accept-Encoding")
            .cache_control("max-age=3600");
        origin.serve_rest(file);
        Ok(Bed {
            origin,
            slice: options.slice,
            // Twice the whole file, since a server may begin it anew in the middle.
            patience: Duration::from_secs(20 + 2 * LENGTH / options.rate),
        })
    }

    pub(super) fn origin(&self) -> SocketAddr {
        self.origin.addr()
    }

    /// One round with the cache at `server`: ranges of two cold files while another one is fetched whole, then a warm
    /// range. Each has a file, and a client address, of its own.
    pub(super) fn round(&self, server: SocketAddr, number: usize) -> anyhow::Result<Round> {
        let seek = Asker::new(self, server, format!("/seek-{number}.bin"), 2);
        let fill = Asker::new(self, server, format!("/fill-{number}.bin"), 3);
        let inside = Asker::new(self, server, format!("/inside-{number}.bin"), 4);
        let ((cold, same, again, further), (whole, landed, gap), inside) =
            thread::scope(|scope| {
                let seeking = scope.spawn(|| seek.seek());
                let filling = scope.spawn(|| fill.fill());
                let inside = scope.spawn(|| inside.inside());
                anyhow::Ok((joined(seeking)?, joined(filling)?, joined(inside)?))
            })?;
        let quiet = self.origin.wait_for(Record::quiet, self.patience);
        ensure!(quiet, "the origin is asked without end");
        let middle = MIDDLE..MIDDLE + TEN;
        let sought = seek.account(&[middle, FURTHER..FURTHER + TEN]);
        let filled = fill.account(std::slice::from_ref(&(0..LENGTH)));
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
        Ok(Round {
            times,
            seek: sought,
            fill: filled,
        })
    }
}

fn joined<T>(client: thread::ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    let result = client.join();
    result.map_err(|_| anyhow::anyhow!("a client panicked"))?
}

/// Asks for one file of one server.
struct Asker<'a> {
    bed: &'a Bed,
    server: SocketAddr,
    path: String,
    options: ClientOptions,
}

impl<'a> Asker<'a> {
    fn new(bed: &'a Bed, server: SocketAddr, path: String, client: u8) -> Asker<'a> {
        Asker {
            bed,
            server,
            path,
            options: ClientOptions {
                source: Some([127, 0, 0, client].into()),
                timeout: bed.patience,
                ..ClientOptions::default()
            },
        }
    }

    /// The middle, cold; the same as soon as the origin knows of it; then, as soon as the first one has its bytes, the
    /// same again and beside it a range further on.
    fn seek(&self) -> anyhow::Result<(Timing, Timing, Timing, Timing)> {
        thread::scope(|scope| {
            let cold = scope.spawn(|| self.ten(MIDDLE).context("the cold range"));
            let known = |record: &Record| record.count(&self.path) > 0;
            let asked = self.bed.origin.wait_for(known, self.bed.patience);
            ensure!(asked, "the origin is not asked");
            let same = scope.spawn(|| self.ten(MIDDLE).context("the same at the same time"));
            let cold = joined(cold)?;
            let again = scope.spawn(|| self.ten(MIDDLE).context("the same again"));
            let further = scope.spawn(|| self.ten(FURTHER).context("a range further on"));
            Ok((cold, joined(same)?, joined(again)?, joined(further)?))
        })
    }

    /// The first bytes of the block that holds the middle, cold; the middle as soon as the origin knows of them, when
    /// that block is under way from its beginning.
    fn inside(&self) -> anyhow::Result<Timing> {
        let start = MIDDLE / self.bed.slice * self.bed.slice;
        thread::scope(|scope| {
            let first = scope.spawn(move || self.ten(start).context("the beginning of a block"));
            let known = |record: &Record| record.count(&self.path) > 0;
            let asked = self.bed.origin.wait_for(known, self.bed.patience);
            ensure!(asked, "the origin is not asked");
            let inside = self
                .ten(MIDDLE)
                .context("a range inside a block under way")?;
            joined(first)?;
            Ok(inside)
        })
    }

    /// The whole file; when a part of it has come, a range within that part and one beyond.
    fn fill(&self) -> anyhow::Result<(Timing, Timing, Timing)> {
        let (reached, wait) = mpsc::channel();
        thread::scope(|scope| {
            let whole = scope.spawn(move || {
                let reached = || {
                    // Nobody waits any more when the wait was given up.
                    let _ = reached.send(());
                };
                self.fetch(None, reached).context("the whole file")
            });
            // A client that fails lets go of its end of the channel, and says why when it is joined.
            if wait.recv_timeout(self.bed.patience).is_err() {
                return joined(whole).and_then(|_| anyhow::bail!("the whole file does not come"));
            }
            let landed = scope.spawn(|| self.ten(LANDED).context("a range that has landed"));
            let gap = scope.spawn(|| self.ten(MIDDLE).context("a range beside the whole"));
            let (landed, gap) = (joined(landed)?, joined(gap)?);
            Ok((joined(whole)?, landed, gap))
        })
    }

    fn warm(&self) -> anyhow::Result<Timing> {
        let timings = (0..WARM).map(|_| self.ten(MIDDLE).context("the warm range"));
        let mut timings: Vec<Timing> = timings.collect::<anyhow::Result<_>>()?;
        timings.sort_by_key(|timing| timing.total);
        Ok(timings[WARM / 2])
    }

    fn account(&self, wanted: &[Range<u64>]) -> Account {
        let seen: Vec<_> = self
            .bed
            .origin
            .read_record(|record| record.of(&self.path).cloned().collect());
        Account::of(&seen, wanted, self.bed.slice, LENGTH)
    }

    fn ten(&self, first: u64) -> anyhow::Result<Timing> {
        self.fetch(Some(first..first + TEN), || ())
    }

    /// One request on a connection of its own, every byte of its answer looked at. `marked` is called when [`MARK`]
    /// bytes of the body have come. Times count from the sending on the open connection.
    fn fetch(&self, wanted: Option<Range<u64>>, marked: impl Fn()) -> anyhow::Result<Timing> {
        let mut client = Client::connect_with(self.server, &self.options)?;
        let field = wanted
            .as_ref()
            .map(|range| format!("bytes={}-{}", range.start, range.end - 1));
        let mut fields = vec![("Connection", "close")];
        fields.extend(field.as_deref().map(|value| ("Range", value)));
        let began = Instant::now();
        client.send("GET", &self.path, &fields, b"")?;
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

/// Whether this head announces just the bytes wanted.
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
