//! Tests that each content is compressed once, outside the caller's thread, within the memory
//! limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use proptest::prelude::*;

use super::*;
use crate::handler::Get;
use crate::http::FieldBlock;

fn accepted(value: &str) -> Accepted {
    Accepted::of(&[("accept-encoding", value)].into_iter().collect())
}

fn lines(lines: &[(&str, &str)]) -> FieldBlock {
    lines.iter().copied().collect()
}

fn css() -> FieldBlock {
    lines(&[("content-type", "text/css"), ("etag", "\"x\"")])
}

fn content(length: usize) -> Bytes {
    b"a { color: red } "
        .iter()
        .copied()
        .cycle()
        .take(length)
        .collect()
}

/// A worker's access to an encoder of its own, and methods to obtain contents from it.
struct Rig {
    handle: Handle,
    _worker_pool: Arc<WorkerPool>,
    fetched: Arc<AtomicUsize>,
}

impl Rig {
    fn new(threads: usize, options: Options) -> Rig {
        let worker_pool = WorkerPool::of(threads).expect("threads");
        let encoder = Encoder::new(options, &worker_pool);
        Rig {
            handle: Handle::new(encoder, Arc::default()),
            _worker_pool: worker_pool,
            fetched: Arc::default(),
        }
    }

    fn ask(&self, codings: &str, id: u128, fields: &FieldBlock, content: &Bytes) -> Choice {
        let (length, whole) = (content.len() as u64, content.clone());
        self.ask_with(codings, &[], id, fields, length, move || {
            Some(whole.clone())
        })
    }

    fn ask_with(
        &self,
        codings: &str,
        request: &[(&str, &str)],
        id: u128,
        fields: &FieldBlock,
        length: u64,
        get: impl Fn() -> Option<Bytes> + Clone + Send + 'static,
    ) -> Choice {
        let fetched = self.fetched.clone();
        let getting = move || -> Option<Get> {
            let (fetched, get) = (fetched.clone(), get.clone());
            Some(Box::new(move || {
                fetched.fetch_add(1, Ordering::SeqCst);
                get()
            }))
        };
        let plain = Identity {
            id,
            length: Some(length),
            fields,
            get: &getting,
        };
        let request: Fields = request.iter().copied().collect();
        self.handle.choose(&accepted(codings), &request, &plain)
    }

    /// Requests a content repeatedly until a compressed form is returned.
    fn coded(&self, codings: &str, id: u128, fields: &FieldBlock, content: &Bytes) -> Arc<Encoded> {
        let mut given = None;
        until("it is made", || {
            if let Choice::Coded(encoded) = self.ask(codings, id, fields, content) {
                given = Some(encoded);
                return true;
            }
            // Further requests would count as uses of the content. The result is stored after the
            // job has left the queue.
            let (jobs, table) = (self._worker_pool.queue(), &self.handle.encoder.table);
            until("its result is stored", || {
                !jobs.has(id) && !table.is_queued(id)
            });
            false
        });
        given.expect("it was given")
    }

    fn numbers(&self) -> CompressNumbers {
        self.handle.encoder.numbers()
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::yield_now();
    }
}

fn is_varying(choice: &Choice) -> bool {
    matches!(choice, Choice::Varying(_))
}

/// A barrier that blocks threads until it is opened.
#[derive(Clone, Default)]
struct Latch(Arc<(Mutex<bool>, Condvar)>);

impl Latch {
    fn pass(&self) {
        let mut open = self.0.0.lock();
        while !*open {
            self.0.1.wait(&mut open);
        }
    }

    fn open(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }
}

#[test]
fn many_requests_cause_one_job() {
    let rig = Rig::new(2, Options::default());
    let (latch, fields, content) = (Latch::default(), css(), content(50_000));
    for _ in 0..100 {
        let (latch, whole) = (latch.clone(), content.clone());
        let get = move || {
            latch.pass();
            Some(whole.clone())
        };
        let choice = rig.ask_with("gzip, br;q=0.5", &[], 7, &fields, 50_000, get);
        let Choice::Varying(told) = choice else {
            panic!("{choice:?}");
        };
        assert!(told.text().ends_with(b"vary: accept-encoding\r\n"));
    }
    latch.open();
    let encoded = rig.coded("gzip, br;q=0.5", 7, &fields, &content);
    assert_eq!(encoded.coding, Coding::Gzip);
    assert!(encoded.content.len() < 5_000);
    let again = rig.coded("gzip", 7, &fields, &content);
    assert!(Arc::ptr_eq(&encoded, &again));
    assert_eq!(rig.fetched.load(Ordering::SeqCst), 1);
    let status = rig.numbers();
    assert_eq!((status.made, status.made_bytes_in), (1, 50_000));
    assert_eq!(status.made_bytes_out, encoded.content.len() as u64);
    assert_eq!(rig.handle.counters.coded_served.get(), 2);
}

// Content whose bytes are still arriving is compressed once it is complete, in each encoding that a
// client wanted until then.
#[test]
fn incomplete_content_is_compressed_once_it_is_complete() {
    let rig = Rig::new(1, Options::default());
    let (fields, whole) = (css(), content(50_000));
    let identity = |id, length, get| Identity {
        id,
        length,
        fields: &fields,
        get,
    };
    let wants = |id, length, codings: &str| {
        let content = identity(id, length, &|| None);
        let choice = rig
            .handle
            .choose(&accepted(codings), &Fields::new(), &content);
        assert!(is_varying(&choice));
    };
    let get = || -> Option<Get> {
        let whole = whole.clone();
        Some(Box::new(move || Some(whole)))
    };
    // The length of chunked content is not known until its end.
    for length in [Some(50_000), None] {
        let id = u128::from(length.is_some());
        wants(id, length, "gzip");
        wants(id, length, "br");
        wants(id, length, "gzip, br;q=0.5");
        wants(id, length, "identity");
        // Some bytes are still missing.
        rig.handle.complete(&identity(id, length, &|| None));
        rig.handle.complete(&identity(id, Some(50_000), &get));
        rig.handle.complete(&identity(id, Some(50_000), &get));
    }
    until("all are made", || rig.numbers().made == 4);
    for (id, codings) in [(0, "gzip"), (0, "br"), (1, "gzip"), (1, "br")] {
        // A job is counted before its result is stored.
        until("the result is stored", || {
            let choice = rig.ask(codings, id, &fields, &whole);
            matches!(choice, Choice::Coded(_))
        });
    }
    // Content that turns out to be too short is not compressed, and neither is content that no
    // client wanted compressed.
    wants(2, None, "gzip");
    rig.handle.complete(&identity(2, Some(10), &get));
    rig.handle.complete(&identity(3, Some(50_000), &get));
    let first = rig.ask("gzip", 4, &fields, &whole);
    assert!(is_varying(&first));
    until("the next one is made", || rig.numbers().made == 5);
}

// Until the encoding that a client prefers is made, the client gets another one that exists.
#[test]
fn the_next_best_encoding_is_sent_meanwhile() {
    let rig = Rig::new(1, Options::default());
    let (fields, content) = (css(), content(50_000));
    rig.coded("gzip", 1, &fields, &content);
    let latch = Latch::default();
    let (door, whole) = (latch.clone(), content.clone());
    let get = move || {
        door.pass();
        Some(whole.clone())
    };
    let choice = rig.ask_with("gzip, br", &[], 1, &fields, 50_000, get);
    assert!(matches!(choice, Choice::Coded(e) if e.coding == Coding::Gzip));
    assert!(is_varying(&rig.ask(
        "zstd;q=0, identity;q=0",
        1,
        &fields,
        &content
    )));
    latch.open();
    until(
        "br is made",
        || matches!(rig.ask("gzip, br", 1, &fields, &content), Choice::Coded(e) if e.coding == Coding::Brotli),
    );
    assert_eq!(rig.numbers().made, 2);
    let choice = rig.ask("identity, br;q=0.5", 1, &fields, &content);
    assert!(is_varying(&choice), "{choice:?}");
}

#[test]
fn content_that_does_not_shrink_is_tried_once() {
    let rig = Rig::new(1, Options::default());
    let mut seed = 1_u64;
    let noise: Bytes = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 56) as u8
    })
    .take(20_000)
    .collect();
    let fields = css();
    until("it was tried", || {
        assert!(is_varying(&rig.ask("gzip", 1, &fields, &noise)));
        rig.numbers().not_worth == 1
    });
    // Jobs run in order. After a job of another content, the result of the first one is noted.
    rig.coded("gzip", 2, &fields, &content(5_000));
    for codings in ["gzip", "br", "zstd"] {
        assert!(is_varying(&rig.ask(codings, 1, &fields, &noise)));
    }
    // After a third job, the count shows that there was no second job for the first content.
    rig.coded("gzip", 3, &fields, &content(6_000));
    assert_eq!(rig.fetched.load(Ordering::SeqCst), 3);
}

#[test]
fn content_that_was_unavailable_is_tried_again() {
    let rig = Rig::new(1, Options::default());
    let (fields, content) = (css(), content(5_000));
    let choice = rig.ask_with("gzip", &[], 1, &fields, 5_000, || None);
    assert!(is_varying(&choice));
    until("it was tried", || rig.numbers().failed == 1);
    rig.coded("gzip", 1, &fields, &content);
}

#[test]
fn a_panic_costs_one_job() {
    let rig = Rig::new(1, Options::default());
    let (fields, content) = (css(), content(5_000));
    let choice = rig.ask_with("gzip", &[], 1, &fields, 5_000, || {
        panic!("a codec is broken")
    });
    assert!(is_varying(&choice));
    rig.coded("gzip", 2, &fields, &content);
    assert_eq!(rig.numbers().failed, 1);
    for _ in 0..10 {
        assert!(is_varying(&rig.ask("gzip", 1, &fields, &content)));
    }
    assert_eq!(rig.fetched.load(Ordering::SeqCst), 2, "not tried again");
}

#[test]
fn ineligible_content_is_not_compressed() {
    let rig = Rig::new(1, Options::default());
    let content = content(5_000);
    let html = ("content-type", "text/html");
    for lines_of_it in [
        &[("content-type", "image/png")][..],
        &[html, ("cache-control", "no-transform")],
        &[html, ("content-encoding", "x")],
        &[],
    ] {
        let choice = rig.ask("gzip", 1, &lines(lines_of_it), &content);
        assert!(matches!(choice, Choice::Identity), "{lines_of_it:?}");
    }
    let choice = rig.ask("gzip", 1, &lines(&[html]), &content.slice(..1000));
    assert!(matches!(choice, Choice::Identity), "too short");
    assert_eq!(
        rig.numbers(),
        CompressNumbers {
            limit: 64 << 20,
            ..CompressNumbers::default()
        }
    );
}

// A revalidation may change headers of a response whose content stays unchanged.
#[test]
fn headers_may_change_without_compressing_again() {
    let rig = Rig::new(1, Options::default());
    let content = content(5_000);
    let first = rig.coded("gzip", 1, &css(), &content);
    // These header lines are equal to those of the first request, but at another address in memory.
    let same = rig.coded("gzip", 1, &css(), &content);
    assert!(Arc::ptr_eq(&first, &same));
    let fields = lines(&[
        ("content-type", "text/css"),
        ("etag", "\"x\""),
        ("date", "now"),
    ]);
    let Choice::Coded(renewed) = rig.ask("gzip", 1, &fields, &content) else {
        panic!("it is there");
    };
    assert_eq!(renewed.fields.get("date"), Some(&b"now"[..]));
    assert_eq!(
        (&renewed.etag, &renewed.content),
        (&first.etag, &first.content)
    );
    assert_eq!(rig.numbers().made, 1);
    let forbidden = lines(&[
        ("content-type", "text/css"),
        ("cache-control", "no-transform"),
    ]);
    assert!(matches!(
        rig.ask("gzip", 1, &forbidden, &content),
        Choice::Identity
    ));
}

#[test]
fn clients_continue_with_the_form_they_have() {
    let rig = Rig::new(1, Options::default());
    let (fields, content) = (css(), content(5_000));
    let etag = rig
        .coded("gzip", 1, &fields, &content)
        .etag
        .clone()
        .expect("one");
    let etag = std::str::from_utf8(&etag).expect("text");
    for (request, is_coded) in [
        (&[("if-none-match", "\"x\"")][..], false),
        (&[("if-none-match", "W/\"x\"")], false),
        (&[("if-none-match", etag)], true),
        (
            &[("if-none-match", "\"y\", \"x\""), ("if-none-match", etag)],
            true,
        ),
        (&[("if-none-match", "*")], true),
        (&[("if-match", "\"x\"")], false),
        (&[("range", "bytes=0-9"), ("if-range", "\"x\"")], false),
        (&[("range", "bytes=0-9"), ("if-range", etag)], true),
        (&[("range", "bytes=0-9")], true),
        (&[("if-none-match", "\"y\"")], true),
    ] {
        let whole = content.clone();
        let get = move || Some(whole.clone());
        let choice = rig.ask_with("gzip", request, 1, &fields, 5_000, get);
        assert_eq!(matches!(choice, Choice::Coded(_)), is_coded, "{request:?}");
    }
    // Without a strong ETag, a client could not distinguish ranges of the compressed form from
    // ranges of the uncompressed one.
    for (id, tag) in [(2, &[][..]), (3, &[("etag", "W/\"x\"")][..])] {
        let fields = lines(&[&[("content-type", "text/css")], tag].concat());
        rig.coded("gzip", id, &fields, &content);
        let whole = content.clone();
        let get = move || Some(whole.clone());
        let request = [("range", "bytes=0-9")];
        let choice = rig.ask_with("gzip", &request, id, &fields, 5_000, get);
        assert!(is_varying(&choice), "{choice:?}");
    }
}

#[test]
fn memory_is_bounded_and_requested_content_stays() {
    let memory = 1 << 20;
    let options = Options {
        memory,
        ..Options::default()
    };
    let rig = Rig::new(2, options);
    let fields = css();
    // One half of each content is random and can't be compressed, so each compressed form has about
    // 10 KB.
    let body = |seed: u64| -> Bytes {
        let mut state = seed;
        let byte = |at: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(seed | 1);
            if at < 10_000 {
                (state >> 56) as u8
            } else {
                b'a'
            }
        };
        (0..20_000).map(byte).collect()
    };
    let hot = body(999);
    rig.coded("gzip", 999, &fields, &hot);
    for id in 0..300_u64 {
        rig.coded("gzip", u128::from(id), &fields, &body(id));
        rig.ask("gzip", 999, &fields, &hot);
        // Two jobs at once may each evict only as much as their own result needs, so the limit may
        // be exceeded by one result.
        assert!(rig.numbers().bytes <= memory + (16 << 10));
    }
    let status = rig.numbers();
    assert!(status.evicted > 150 && status.contents > 50, "{status:?}");
    assert!(status.bytes > memory / 2, "{status:?}");
    assert!(matches!(
        rig.ask("gzip", 999, &fields, &hot),
        Choice::Coded(_)
    ));
    // Few contents were compressed twice: the one that is requested frequently was not evicted,
    // although content of three times the memory limit was inserted.
    assert!(status.made < 310, "{status:?}");
}

#[test]
fn the_queue_is_bounded() {
    let rig = Rig::new(1, Options::default());
    let (latch, fields) = (Latch::default(), css());
    let most = 1024;
    for id in 0..most + 100 {
        let door = latch.clone();
        let get = move || {
            door.pass();
            None
        };
        let choice = rig.ask_with("gzip", &[], id as u128, &fields, 5_000, get);
        assert!(is_varying(&choice));
    }
    let refused = rig.numbers().queue_full;
    // A thread may have taken one of the 100 jobs out of the queue, which leaves space for one
    // more.
    assert!((99..=100).contains(&refused), "{refused}");
    latch.open();
    until("all are done", || {
        rig.numbers().failed == (most as u64) + 100 - refused
    });
}

// Jobs for content that is requested again are run first, and there is always room for them. A
// client that requests many URLs once thus does not delay the compression of other content.
#[test]
fn content_that_is_requested_again_is_compressed_first() {
    let rig = Rig::new(1, Options::default());
    let (latch, fields) = (Latch::default(), css());
    let done: Arc<Mutex<Vec<u128>>> = Arc::default();
    let reading = |id: u128| {
        let (latch, done) = (latch.clone(), done.clone());
        move || -> Option<Get> {
            let (latch, done) = (latch.clone(), done.clone());
            Some(Box::new(move || {
                latch.pass();
                done.lock().push(id);
                None
            }))
        }
    };
    let identity = |id, get| Identity {
        id,
        length: Some(5_000),
        fields: &fields,
        get,
    };
    let choose = |id, get: &dyn Fn() -> Option<Get>| {
        let content = Identity {
            get,
            ..identity(id, &|| None)
        };
        let choice = rig
            .handle
            .choose(&accepted("gzip"), &Fields::new(), &content);
        assert!(is_varying(&choice));
    };
    let queued = || rig.handle.encoder.queue.lengths();
    // The only thread is blocked by this job.
    choose(0, &reading(0));
    until("it is taken", || queued() == (0, 0));
    for id in 1..=600 {
        choose(id, &|| None);
        let get = reading(id);
        let content = Identity {
            get: &get,
            ..identity(id, &|| None)
        };
        rig.handle.complete(&content);
    }
    assert_eq!((queued(), rig.numbers().queue_full), ((0, 512), 88));
    // One of them is requested again, one was refused, and one is new.
    for id in [400, 600, 1000, 400] {
        choose(id, &reading(id));
    }
    assert_eq!(queued(), (3, 511));
    latch.open();
    until("all are done", || done.lock().len() == 515);
    assert_eq!(done.lock()[..6], [0, 400, 600, 1000, 1, 2]);
}

// Once a job runs, a request neither makes it more urgent nor has the content compressed again,
// also between the job's end and the storage of its result. After a failure, a request may.
#[test]
fn a_running_job_is_not_queued_again() {
    let (table, fields, coding) = (Table::new(1 << 20), css(), Coding::Gzip);
    let queued = |urgency| table.mark_queued(1, &fields, coding, urgency);
    table.mark_running(1, coding);
    assert!(queued(Urgency::First) && queued(Urgency::Again));
    table.finish(1, &fields, coding, table::Outcome::Failed);
    assert!(queued(Urgency::First));
    table.mark_running(1, coding);
    assert!(!queued(Urgency::Again) && !queued(Urgency::First));
    table.finish(1, &fields, coding, table::Outcome::Failed);
    table.mark_running(1, coding);
    assert!(queued(Urgency::Again));
}

proptest! {
    // No client gets an encoding that its Accept-Encoding refuses or weights below identity.
    #[test]
    fn no_client_gets_an_encoding_it_does_not_accept(
        made in prop::collection::vec(0..3_usize, 0..4),
        weights in prop::collection::vec((0..5_usize, 0..=3_u16), 0..5),
    ) {
        let table = Table::new(1 << 20);
        let fields = css();
        for coding in made {
            let coding = Coding::ALL[coding];
            table.mark_queued(1, &fields, coding, Urgency::Again);
            let mark = lines::Mark::of(b"x");
            let outcome = table::Outcome::Made(Bytes::from_static(b"x"), mark);
            table.finish(1, &fields, coding, outcome);
        }
        const NAMES: [&str; 5] = ["zstd", "br", "gzip", "identity", "*"];
        let member = |(name, weight): &(usize, u16)| format!("{};q=0.{weight}", NAMES[*name]);
        let value = weights.iter().map(member).collect::<Vec<_>>().join(", ");
        let accepted = accepted(&value);
        let lookup = table.look_up(1, &fields, &accepted, &Coding::ALL);
        if let table::Lookup::Known(Choice::Coded(encoded), missing) = lookup {
            prop_assert!(accepted.takes(encoded.coding), "{value}");
            prop_assert_eq!(accepted.best([encoded.coding]), Some(encoded.coding));
            prop_assert!(missing.is_none_or(|missing| missing != encoded.coding && accepted.takes(missing)));
        }
    }
}
