//! Tests of a cache with an origin in the same thread: the number of shard locks that a miss takes
//! until the end of its response, and the history that a flight uses.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;

use super::lookup::Known;
use super::miss::demand::Demand;
use super::miss::ride::Ride;
use super::{Cache, ClientBudgets, Options, Stores, Worker, purge};
use crate::fill;
use crate::handler::{Answer, Body, Frame, Handler, Head, Peer, Request, Response};
use crate::http::Scheme;
use crate::store::{self, Locked, ResourceHistory, SHARD_LOCKS, Store, TableKey};
use crate::sys::{Clock, Random};
use crate::telemetry::Counters;

/// Number of shard locks that a miss of a small object takes: two lookups, one to open the object,
/// and one for its page.
const LOCKS: u64 = 4;

/// An origin that notes the number of shard locks when it receives a request, and whether each
/// request had a Range. Its response has the first ten bytes of a content of `length` bytes.
struct Origin {
    locks: Cell<u64>,
    had_range: RefCell<Vec<bool>>,
    length: u64,
}

impl Origin {
    fn new(length: u64) -> Rc<Origin> {
        Rc::new(Origin {
            locks: Cell::default(),
            had_range: RefCell::default(),
            length,
        })
    }
}

impl Handler for Rc<Origin> {
    fn handle(&self, request: Request) -> Answer {
        self.locks.set(SHARD_LOCKS.with(Cell::get));
        let has_range = request.head.fields.contains("range");
        self.had_range.borrow_mut().push(has_range);
        let mut response = Response::new(200);
        response.fields.append("cache-control", "max-age=60");
        response.fields.append("etag", "\"a\"");
        if has_range {
            response.status = 206;
            let value = format!("bytes 0-9/{}", self.length);
            response.fields.append("content-range", &value);
        }
        response.body = Body::Bytes(Bytes::from_static(b"0123456789"));
        Answer::Ready(Ok(response))
    }
}

fn cache(kind: fill::Kind, origin: &Rc<Origin>) -> Cache {
    let mut options = Options::default();
    options.fill.kind = kind;
    let store = Store::named(
        &store::Options {
            memory: 64 << 20,
            max_object_size: 16 << 20,
            evict: options.evict,
            shards: 1,
            block: options.fill.block,
        },
        &purge::Keys,
        Arc::new(AtomicU64::new(1)),
    );
    Cache::new(
        (Arc::new(options), Arc::default()),
        (store, Arc::new(Stores::default())),
        Arc::new(ClientBudgets::default()),
        (Rc::new(origin.clone()), None),
        (
            Worker::new(
                Clock::manual(1_000_000),
                Random::seeded(1),
                Arc::new(Counters::default()),
            ),
            None,
        ),
    )
}

fn get(range: Option<&str>) -> Request {
    let mut head = Head::new();
    head.target.push_str("/a");
    head.authority.push('a');
    if let Some(range) = range {
        head.fields.append("range", range);
    }
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    Request {
        head,
        body: Body::Empty,
        peer: Peer {
            address: address.into(),
            client: address.ip(),
            local: address.into(),
            scheme: Scheme::Http,
            tls: None,
            shared: false,
        },
        interim: None,
    }
}

/// The numbers of shard locks of a cold request until its flight is launched and until the end of
/// its response, and the response's status and body.
fn locks(kind: fill::Kind, range: Option<&str>) -> ([u64; 2], u16, Vec<u8>) {
    let origin = Origin::new(10);
    let cache = cache(kind, &origin);
    let before = SHARD_LOCKS.with(Cell::get);
    let (status, bytes) = on_runtime(async {
        let mut response = cache.handle(get(range)).wait().await.expect("a response");
        let mut bytes = Vec::new();
        while let Some(frame) = response.body.frame().await {
            match frame.expect("a whole body") {
                Frame::Data(data) => bytes.extend_from_slice(&data),
                Frame::Trailers(_) | Frame::File(_) => panic!("a cache serves data"),
            }
        }
        (response.status, bytes)
    });
    let after = SHARD_LOCKS.with(Cell::get);
    let launched = origin.locks.get() - before;
    ([launched, after - before], status, bytes)
}

/// Runs a test, and then its other tasks, such as flights, to their end.
fn on_runtime<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let tasks = tokio::task::LocalSet::new();
    let result = tasks.block_on(&runtime, test);
    runtime.block_on(tasks);
    result
}

#[test]
fn a_miss_of_a_whole_object_takes_four_locks() {
    let (locks, status, bytes) = locks(fill::Kind::Auto, None);
    assert_eq!((status, &bytes[..]), (200, &b"0123456789"[..]));
    assert_eq!(locks, [2, LOCKS]);
}

#[test]
fn a_miss_of_a_range_takes_four_locks() {
    let (locks, status, bytes) = locks(fill::Kind::Slice, Some("bytes=2-5"));
    assert_eq!((status, &bytes[..]), (206, &b"2345"[..]));
    assert_eq!(locks, [2, LOCKS]);
}

#[test]
fn a_flight_uses_the_newest_history_of_the_resource() {
    let origin = Origin::new(20);
    let cache = cache(fill::Kind::Slice, &origin);
    let context = &cache.0;
    let table_key = TableKey {
        primary: context.keys.key(&context.rules.key, &get(None)).0,
        variant: 0,
    };
    let want = 15..20;
    on_runtime(async {
        let stored = cache.handle(get(Some("bytes=2-5"))).wait().await;
        assert_eq!(stored.expect("a response").status, 206);
        let primary = table_key.primary;
        let object = context.store.enter(primary, |locked| locked.find(0));
        let object = object.expect("the object is stored");
        while object.in_flight() {
            tokio::task::yield_now().await;
        }
        // The request is looked up, and then another request learns that ranges are unusable.
        let forget = |locked: &mut Locked<'_>| locked.set_history(ResourceHistory::default());
        context.store.enter(primary, forget);
        let known = Known::now(context, table_key);
        let request = get(Some("bytes=15-19"));
        let demand = Demand::new(
            context,
            request,
            want.clone(),
            table_key,
            Some(Box::new(known)),
        );
        context.store.enter(primary, |locked| {
            let mut history = locked.history();
            history.no_ranges_until_ms = u64::MAX;
            locked.set_history(history);
        });
        origin.had_range.borrow_mut().clear();
        let mut ride = Ride::filling(&object, want.clone(), demand);
        let first = tokio::time::timeout(Duration::from_secs(10), ride.start(want)).await;
        assert!(first.is_ok());
    });
    assert_eq!(*origin.had_range.borrow(), [false]);
}
