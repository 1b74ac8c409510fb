//! Counts the shard locks that a miss takes, from the lookup to the launched flight.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;

use super::{Cache, ClientBudgets, Options, Rules, Stores, purge};
use crate::fill;
use crate::handler::{Answer, Body, Handler, Head, Peer, Request, Response};
use crate::http::Scheme;
use crate::store::{self, SHARD_LOCKS, Store};
use crate::sys::{Clock, Random};
use crate::telemetry::Counters;

/// Largest number of shard locks that a miss may take until its flight is launched.
const LOCKS_MAX: u64 = 2;

/// An origin that notes the number of shard locks when it receives a request.
#[derive(Default)]
struct Origin(Cell<u64>);

impl Handler for Rc<Origin> {
    fn handle(&self, request: Request) -> Answer {
        self.0.set(SHARD_LOCKS.with(Cell::get));
        let mut response = Response::new(200);
        response.fields.append("cache-control", "max-age=60");
        response.fields.append("etag", "\"a\"");
        if request.head.fields.contains("range") {
            response.status = 206;
            response.fields.append("content-range", "bytes 0-9/10");
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
            object: 16 << 20,
            evict: options.evict,
            shards: 1,
            block: options.fill.block,
        },
        &purge::Keys,
        Arc::new(AtomicU64::new(1)),
    );
    Cache::new(
        (options, Rules::default()),
        (store, Arc::new(Stores::default())),
        Arc::new(ClientBudgets::default()),
        (Rc::new(origin.clone()), None),
        Clock::manual(1_000_000),
        Random::seeded(1),
        Arc::new(Counters::default()),
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
        },
        interim: None,
    }
}

/// The number of shard locks of a cold request until its flight is launched, and the response's
/// status.
fn locks(kind: fill::Kind, range: Option<&str>) -> (u64, u16) {
    let origin = Rc::new(Origin::default());
    let cache = cache(kind, &origin);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let before = SHARD_LOCKS.with(Cell::get);
    let response = tokio::task::LocalSet::new().block_on(&runtime, async {
        cache.handle(get(range)).wait().await.expect("a response")
    });
    (origin.0.get() - before, response.status)
}

#[test]
fn a_miss_of_a_whole_object_takes_few_locks_until_its_flight_is_launched() {
    let (locks, status) = locks(fill::Kind::Auto, None);
    assert_eq!(status, 200);
    assert!((1..=LOCKS_MAX).contains(&locks), "{locks} locks");
}

#[test]
fn a_miss_of_a_range_takes_few_locks_until_its_flight_is_launched() {
    let (locks, status) = locks(fill::Kind::Slice, Some("bytes=2-5"));
    assert_eq!(status, 206);
    assert!((1..=LOCKS_MAX).contains(&locks), "{locks} locks");
}
