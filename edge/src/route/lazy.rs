//! A worker's handlers of all routes. The handler of a route is built when its first request
//! arrives, so that routes without requests cost a worker a few bytes.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use super::router::Router;
use crate::handler::{Answer, Handler, Request};
use crate::reason::Reason;
use crate::telemetry::WorkerRoutes;

/// Builds the handler of the route with this index.
type Build = dyn Fn(usize) -> Rc<dyn Handler>;

/// The handlers of one worker, and the router that all workers share.
pub struct Routes {
    router: Arc<Router<usize>>,
    built: Box<[OnceCell<Rc<dyn Handler>>]>,
    build: Box<Build>,
    /// Learns which route was chosen.
    counted: Rc<WorkerRoutes>,
}

impl Routes {
    /// Creates the handlers of `count` routes. The router finds their indexes, which are smaller
    /// than `count`. `counted` learns the index of each request's route.
    pub fn new(
        router: Arc<Router<usize>>,
        count: usize,
        build: impl Fn(usize) -> Rc<dyn Handler> + 'static,
        counted: Rc<WorkerRoutes>,
    ) -> Routes {
        Routes {
            router,
            built: (0..count).map(|_| OnceCell::new()).collect(),
            build: Box::new(build),
            counted,
        }
    }
}

impl Handler for Routes {
    fn handle(&self, request: Request) -> Answer {
        let (authority, target) = (&request.head.authority, &request.head.target);
        let index = self.router.find(authority, target).copied();
        let found = index.and_then(|index| Some((index, self.built.get(index)?)));
        match found {
            Some((index, built)) => {
                self.counted.choose(index);
                built.get_or_init(|| (self.build)(index)).handle(request)
            }
            None => Answer::Ready(Err(Reason::NoRoute.into())),
        }
    }
}
