//! The counting of one request in the counters of its worker and of its route.

use crate::handler::Response;
use crate::http::{CacheStatus, Fwd, Outcome};
use crate::reason::{Party, Reason};
use crate::telemetry::{ChosenRoute, Counters, RouteCounters, WorkerRoutes};

/// The way in which a cache handled a request, as far as counters distinguish it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Handled {
    /// No cache took part, or the cache made the response itself.
    #[default]
    Uncounted,
    Hit,
    Validated,
    Collapsed,
    Passed,
    Missed,
}

/// Counts the status of a response, the way in which a cache handled the request, and whether the response was stale. The
/// list has the names of the counters of a worker or a route.
macro_rules! count_response {
    (
        $counters:expr, $counted:expr,
        [$hits:ident, $validated:ident, $collapsed:ident, $passes:ident, $misses:ident, $stale:ident]
    ) => {{
        let (counters, (status, handled, is_stale)) = ($counters, $counted);
        match status {
            200..=299 => counters.responses_2xx.add(1),
            300..=399 => counters.responses_3xx.add(1),
            400..=499 => counters.responses_4xx.add(1),
            500..=599 => counters.responses_5xx.add(1),
            _ => {}
        }
        match handled {
            Handled::Uncounted => {}
            Handled::Hit => counters.$hits.add(1),
            Handled::Validated => counters.$validated.add(1),
            Handled::Collapsed => counters.$collapsed.add(1),
            Handled::Passed => counters.$passes.add(1),
            Handled::Missed => counters.$misses.add(1),
        }
        if is_stale {
            counters.$stale.add(1);
        }
    }};
}

/// The counting of one request: what has been counted, and where.
pub(super) struct Tally {
    route: ChosenRoute,
    handled: Handled,
    has_cache: bool,
    body_bytes: u64,
}

impl Tally {
    /// Begins the counting of a request.
    #[inline]
    pub(super) fn new() -> Tally {
        Tally {
            route: ChosenRoute::NONE,
            handled: Handled::Uncounted,
            has_cache: false,
            body_bytes: 0,
        }
    }

    /// Notes the route of the request, and counts the request there.
    #[inline]
    pub(super) fn choose(&mut self, routes: &WorkerRoutes) {
        self.route = routes.take_chosen();
        if let Some(route) = self.route(routes) {
            route.requests.add(1);
        }
    }

    #[inline]
    fn route<'a>(&self, routes: &'a WorkerRoutes) -> Option<&'a RouteCounters> {
        routes.get(self.route)
    }

    /// Whether a cache fetched the response from an origin for this request.
    pub(super) fn is_miss(&self) -> bool {
        self.handled == Handled::Missed
    }

    /// Returns the bytes of content sent.
    #[inline]
    pub(super) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Counts a final response.
    #[inline]
    pub(super) fn respond(
        &mut self,
        counters: &Counters,
        routes: &WorkerRoutes,
        response: &Response,
    ) {
        self.has_cache = response.cache.is_some();
        self.handled = response.cache.as_ref().map_or(Handled::Uncounted, handled);
        let is_stale = self.handled == Handled::Hit
            && response
                .cache
                .is_some_and(|cache| cache.ttl_s.is_some_and(|ttl_s| ttl_s < 0));
        let counted = (response.status, self.handled, is_stale);
        count_response!(
            counters,
            counted,
            [
                cache_hits,
                cache_validated,
                cache_collapsed,
                cache_passes,
                cache_misses,
                cache_stale
            ]
        );
        if let Some(route) = self.route(routes) {
            count_response!(
                route,
                counted,
                [hits, validated, collapsed, passes, misses, stale]
            );
            if let Some(reason) = response.fault {
                count_fault(route, reason);
            }
        }
    }

    /// Counts the bytes of content that have been sent so far. A lower number than before changes nothing, since numbers are
    /// lower bounds until the response ends.
    #[inline]
    pub(super) fn sent(&mut self, counters: &Counters, routes: &WorkerRoutes, bytes: u64) {
        let Some(more @ 1..) = bytes.checked_sub(self.body_bytes) else {
            return;
        };
        self.body_bytes = bytes;
        let is_stored = matches!(self.handled, Handled::Hit | Handled::Validated);
        if self.has_cache {
            counters.cache_response_bytes.add(more);
            if is_stored {
                counters.cache_hit_bytes.add(more);
            }
        }
        if let Some(route) = self.route(routes) {
            route.body_bytes.add(more);
            if is_stored {
                route.hit_bytes.add(more);
            }
        }
    }

    /// Counts the end of a request: the size of its body, its duration unless it was a tunnel, and whether its response is
    /// complete.
    #[inline]
    pub(super) fn close(
        &self,
        counters: &Counters,
        routes: &WorkerRoutes,
        duration_us: Option<u64>,
        is_complete: bool,
    ) {
        counters.requests_now.sub(1);
        counters.body_size.record(self.body_bytes);
        if let Some(us) = duration_us {
            counters.request_duration.record(us);
        }
        if !is_complete {
            counters.responses_cut.add(1);
        }
        if let Some(route) = self.route(routes) {
            route.body_size.record(self.body_bytes);
            if let Some(us) = duration_us {
                route.request_duration.record(us);
            }
            if !is_complete {
                route.responses_cut.add(1);
            }
        }
    }
}

/// Counts the reasons of a request, which its log line has, too.
#[inline]
pub(super) fn count_reasons(counters: &Counters, reason: Option<Reason>, fwd: Option<Fwd>) {
    let counters = &counters.requests_by_reason;
    if let Some(reason) = reason {
        counters.add(reason);
    }
    if let Some(fwd) = fwd {
        counters.add_forwarded(fwd);
    }
}

#[inline]
fn handled(cache: &CacheStatus) -> Handled {
    match cache.outcome {
        Outcome::Hit => Handled::Hit,
        _ if is_validated(cache) => Handled::Validated,
        _ if cache.collapsed => Handled::Collapsed,
        Outcome::Fwd(Fwd::Bypass | Fwd::Method) => Handled::Passed,
        Outcome::Own => Handled::Uncounted,
        Outcome::Fwd(_) => Handled::Missed,
    }
}

/// Whether the response was served from stored bytes after the origin confirmed these.
fn is_validated(cache: &CacheStatus) -> bool {
    cache.fwd_status == Some(304)
        && matches!(cache.outcome, Outcome::Fwd(Fwd::Stale | Fwd::Request))
}

fn count_fault(route: &RouteCounters, reason: Reason) {
    match reason.whose() {
        Some(Party::Client) => route.refused.add(1),
        Some(Party::Edge | Party::Origin) => route.failed.add(1),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sys::allocations;

    /// Counts a request with this handling by the cache, of 1000 bytes in 12 microseconds.
    fn count(counters: &Counters, routes: &WorkerRoutes, cache: CacheStatus) {
        routes.choose(0);
        let mut tally = Tally::new();
        tally.choose(routes);
        let mut response = Response::new(200);
        response.cache = Some(cache);
        tally.respond(counters, routes, &response);
        tally.sent(counters, routes, 400);
        tally.sent(counters, routes, 300);
        tally.sent(counters, routes, 1000);
        tally.close(counters, routes, Some(12), true);
    }

    fn counted() -> (Counters, WorkerRoutes) {
        let routes = WorkerRoutes::new(1);
        routes.set(0, Arc::default());
        (Counters::default(), routes)
    }

    #[test]
    fn counting_a_hit_allocates_nothing_once_its_buckets_were_used() {
        let (counters, routes) = counted();
        count(&counters, &routes, CacheStatus::hit(60));
        let allocated = allocations::during(|| {
            for _ in 0..1000 {
                count(&counters, &routes, CacheStatus::hit(60));
            }
        });
        assert_eq!(allocated, 0);
    }

    #[test]
    fn a_worker_and_a_route_count_the_same() {
        let (counters, routes) = counted();
        count(&counters, &routes, CacheStatus::hit(60));
        count(&counters, &routes, CacheStatus::hit(-1));
        count(&counters, &routes, CacheStatus::fwd(Fwd::UriMiss));
        count(&counters, &routes, CacheStatus::fwd(Fwd::Bypass));
        routes.choose(0);
        let chosen = routes.take_chosen();
        let route = routes.get(chosen).expect("counters").numbers();
        let worker = counters.numbers();
        assert_eq!((route.requests, route.responses_2xx), (4, 4));
        assert_eq!((route.hits, route.stale), (2, 1));
        assert_eq!((worker.cache_hits, worker.cache_stale), (2, 1));
        assert_eq!((route.misses, route.passes), (1, 1));
        assert_eq!((worker.cache_misses, worker.cache_passes), (1, 1));
        assert_eq!((route.body_bytes, route.hit_bytes), (4000, 2000));
        assert_eq!(worker.cache_response_bytes, 4000);
        assert_eq!(worker.cache_hit_bytes, 2000);
    }
}
