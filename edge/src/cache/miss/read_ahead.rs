//! Reading ahead: fetches the rest of an object in the background, charged to the client whose
//! response began it.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use super::demand::Demand;
use super::ride::Ride;
use crate::cache::client_budget::ReadAheads;
use crate::cache::context::Context;
use crate::fill::OPEN;
use crate::handler::{Body, Request};

/// Number of objects that one worker and cache reads ahead at the same time.
const READERS_MAX: usize = 64;
/// Number of reads before other tasks of the worker get their turn.
const TURN_READS: usize = 64;

/// Fetches all of the object that `ride` reads in the background, unless that is in progress.
pub(in crate::cache) fn read(context: &Rc<Context>, ride: &mut Ride) {
    let readers = context.clients.read_ahead.clone();
    let object = ride.object().clone();
    let id = Arc::as_ptr(&object) as usize;
    let Some(demand) = ride.demand() else {
        return;
    };
    let request = Request {
        head: demand.leader.request.head.clone(),
        body: Body::Empty,
        peer: demand.leader.request.peer,
        interim: None,
    };
    let table_key = demand.leader.table_key;
    let mut taken = readers.0.borrow_mut();
    if object.has(0..crate::fill::OPEN) || taken.len() >= READERS_MAX || !taken.insert(id) {
        return;
    }
    drop(taken);
    let reading = Reading { readers, id };
    let demand = Demand::new(context, request, 0..OPEN, table_key, None);
    let mut ride = Ride::filling(&object, 0..OPEN, demand);
    ride.set_ahead();
    if ride.demand().is_some_and(|demand| !demand.has_budget()) {
        return;
    }
    tokio::task::spawn_local(async move {
        let _reading = reading;
        ride.begin();
        ride.fetch_ahead();
        let mut pieces = 0;
        while let Some(Ok(_)) = poll_fn(|cx| ride.poll_next(cx)).await {
            pieces += 1;
            if ride.demand().is_some_and(|demand| !demand.has_budget()) {
                break;
            }
            if pieces % TURN_READS == 0 {
                tokio::task::yield_now().await;
            }
        }
    });
}

/// Marks an object as being read ahead until the value is dropped.
struct Reading {
    readers: ReadAheads,
    id: usize,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.readers.0.borrow_mut().remove(&self.id);
    }
}
