//! The cache, in folders by what happens to a request.
//!
//! `Cache::handle` looks the request up (`lookup`). Then it answers from the store (`hit`), rides
//! an object whose missing bytes are fetched (`miss`, `fetch`), or forwards the request to the
//! origin (`pass`). Decisions are pure functions (`decide`).

mod client_budget;
mod context;
mod decide;
mod fetch;
mod hit;
mod lookup;
mod miss;
mod options;
mod pass;
mod preview;
pub mod purge;
mod references;
mod refusal;
mod resource_history;
pub mod rules;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;

use crate::fill;
use crate::handler::{Answer, Encodings, Handler, Request};
use crate::store::Store;
use crate::what_if;
pub use client_budget::ClientBudgets;
use client_budget::Clients;
pub use context::Worker;
use context::{Context, Origin};
use lookup::{Freshness, Lookup};
pub use options::Options;
pub use preview::{Course, Forecast, Preview};
pub use purge::Stores;
use refusal::{may_be_stored, refuse_fetch};
pub use rules::Rules;

/// One worker's instance of a cache in front of an origin.
#[derive(Clone)]
pub struct Cache(Rc<Context>);

impl Handler for Cache {
    fn handle(&self, mut request: Request) -> Answer {
        let context = &self.0;
        let no_body = request.body.is_empty();
        let admitted = match decide::admission::admit(&request.head, no_body, &context.rules) {
            Ok(admitted) => admitted,
            Err(_) if request.head.method.is_purge() => {
                return purge::method::answer(context, &request);
            }
            Err(status) => return pass::pass(context, request, status),
        };
        let key = context.keys.key(&context.rules.key, &request);
        let now_ms = context.worker.clock.unix_ms();
        let looked = lookup::look_up(context, &request, &admitted, key, now_ms, None);
        if let Lookup::Stored(found) = &looked {
            if let Freshness::Stale {
                revalidate: true, ..
            } = found.freshness
            {
                miss::background::revalidate_in_background(context, &request, found);
            }
            if let Some(response) = hit::hit(context, &mut request, &admitted, found, now_ms) {
                return Answer::Ready(Ok(response));
            }
        }
        if let Some(refused) = refuse_fetch(&request, &admitted, may_be_stored(&looked)) {
            return Answer::Ready(refused);
        }
        miss::fetch(context, request, admitted, key, looked)
    }
}

impl Cache {
    /// Creates a worker's instance for a route with these rules. Store, stores and budgets are
    /// shared by all workers. With `encodings`, stored content is also served encoded. `sampler` gets
    /// the uses of stored responses.
    pub fn new(
        (options, rules): (Arc<Options>, Arc<Rules>),
        (store, stores): (Arc<Store>, Arc<Stores>),
        budgets: Arc<ClientBudgets>,
        (origin, encodings): (Rc<dyn Handler>, Option<Rc<dyn Encodings>>),
        (worker, sampler): (Rc<Worker>, Option<what_if::Sampler>),
    ) -> Cache {
        Cache(Rc::new(Context {
            keys: lookup::keys::Keys::new(&rules.key, worker.memo.clone()),
            fill: fill::build(&options.fill),
            clients: Clients::new(budgets),
            object_max: options.object_max(),
            options,
            rules,
            store,
            stores,
            origin: Origin {
                handler: origin,
                encodings,
            },
            sampler,
            worker,
        }))
    }

    /// Returns a handler that reports what this cache would do with a request, and has no effect on
    /// other requests.
    pub fn preview(&self, report: Rc<dyn Fn(Forecast)>) -> Preview {
        Preview::new(&self.0, report)
    }
}
