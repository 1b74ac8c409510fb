//! Every counter there is, with its meaning, and the registry that merges the workers'.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// A number that one worker writes and anyone reads.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds. Only the owning worker may call this: a plain load and store, no locked instruction.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    /// Takes away, for gauges; the owning worker only.
    #[inline]
    pub fn sub(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_sub(n),
            Ordering::Relaxed,
        );
    }

    /// The value now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// One worker's counters. Names ending in `_now` are gauges, the rest only rise.
        #[derive(Default)]
        // Workers write their own set often: keep each on cache lines of its own.
        #[repr(align(128))]
        pub struct Counters { $($(#[doc = $doc])* pub $name: Counter),* }

        impl Counters {
            /// Name, meaning and value of each, in order.
            pub fn list(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), concat!($($doc),*), self.$name.get())),*]
            }
        }
    };
}

counters! {
    /// Client connections taken on by this worker, those handed over to it included.
    connections_accepted,
    /// Client connections open.
    connections_now,
    /// Connections accepted by this worker and handed over to one with fewer.
    connections_handed_over,
    /// Idle connections closed to make room because the limit of connections was reached.
    connections_refused,
    /// Connections closed because their client had as many as it may (`connections_per_ip`).
    connections_over_ip,
    /// Connections closed because no trusted load balancer said, in the PROXY protocol, whose they are.
    connections_not_introduced,
    /// Connections closed unserved because there was no file descriptor, or no memory, for them.
    connections_shed,
    /// Requests whose head was complete and correct.
    requests,
    /// Requests being answered.
    requests_now,
    /// Requests refused for what they said (400, 413, 414, 431, 501, 505).
    requests_refused,
    /// Requests refused because of their client's address (403).
    requests_denied,
    /// Requests refused because of the signature of their URL (403, 410).
    requests_unsigned,
    /// Requests refused because their client's address asked too often (429).
    requests_limited,
    /// Responses that had to wait because of their client's bandwidth.
    responses_paced,
    /// Clients forgotten by a limit although they were near it, because more came than it has room for.
    limits_forgotten,
    /// Connections closed because a client was too slow (408 or silently).
    client_timeouts,
    /// Responses whose body was cut short.
    responses_cut,
    /// Panics caught while answering.
    panics,
    /// Bytes received from clients.
    client_bytes_in,
    /// Bytes sent to clients.
    client_bytes_out,
    /// Responses with a status of 2xx.
    responses_2xx,
    /// Responses with a status of 3xx.
    responses_3xx,
    /// Responses with a status of 4xx.
    responses_4xx,
    /// Responses with a status of 5xx.
    responses_5xx,
    /// Answered with content in a coding that was made here.
    coded_served,
    /// Answered from stored bytes.
    cache_hits,
    /// Of those, answered with what was stale.
    cache_stale,
    /// Answered from stored bytes that the origin had just confirmed (304).
    cache_validated,
    /// Answered by a fetch of this request's own making.
    cache_misses,
    /// Rode a fetch that another request had begun.
    cache_collapsed,
    /// Went to the origin without the cache.
    cache_passes,
    /// Fetches begun for the cache.
    flights,
    /// Fetches in progress.
    flights_now,
    /// Fetches that failed or were given up.
    flights_failed,
    /// Bytes that fetches received.
    flight_bytes,
    /// Requests sent to origin servers, retries included.
    upstream_requests,
    /// Connections opened to origin servers.
    upstream_connects,
    /// Exchanges on a connection that had been used before.
    upstream_reuses,
    /// Exchanges tried again on another connection or server.
    upstream_retries,
    /// Exchanges that failed.
    upstream_failures,
    /// Idle connections to origin servers in the pool.
    upstream_idle_now,
    /// Connections to origin servers in use.
    upstream_busy_now,
    /// Body bytes received from origin servers.
    upstream_bytes_in,
    /// Access log lines lost because the writer fell behind or could not write them.
    log_lines_dropped,
}

/// The registry: hands each worker its counters, and reads all of them.
#[derive(Clone, Default)]
pub struct Telemetry(Arc<Mutex<Vec<Arc<Counters>>>>);

impl Telemetry {
    /// Counters for one more worker.
    pub fn worker(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        self.0.lock().push(counters.clone());
        counters
    }

    /// Each worker's counters, in the order of their registration.
    pub fn workers(&self) -> Vec<Arc<Counters>> {
        self.0.lock().clone()
    }

    /// Name, meaning and sum over all workers.
    pub fn merged(&self) -> Vec<(&'static str, &'static str, u64)> {
        let mut sums = Counters::default().list();
        for worker in self.workers() {
            for (sum, (_, _, value)) in sums.iter_mut().zip(worker.list()) {
                sum.2 = sum.2.wrapping_add(value);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_merge_on_reading() {
        let telemetry = Telemetry::default();
        let (a, b) = (telemetry.worker(), telemetry.worker());
        a.requests.add(2);
        b.requests.add(3);
        b.requests_now.add(1);
        b.requests_now.sub(1);
        let merged = telemetry.merged();
        assert!(merged.iter().any(|(n, _, v)| *n == "requests" && *v == 5));
        assert!(
            merged
                .iter()
                .any(|(n, _, v)| *n == "requests_now" && *v == 0)
        );
    }
}
