//! The table of all counters and gauges. Each is stated here and nowhere else: the structs that hold
//! the numbers, the status, Prometheus' text, `sluice status` and `docs/metrics.md` come from it.

use serde::Serialize;

use super::counter::Counter;
use super::metric::{Kind, Metric, Numbers, Scope, Unit};

/// Defines a struct of numbers with the description of each: `name: kind unit`, and
/// `=> "line" "label"` if `sluice status` shows it in its summary.
macro_rules! numbers {
    (
        $(#[doc = $about:literal])*
        $type:ident of $scope:ident {
            $($(#[doc = $doc:literal])* $name:ident: $kind:ident $unit:ident $(=> $line:literal $label:literal)?,)*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct $type {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Numbers for $type {
            const METRICS: &'static [Metric] = &[$(Metric {
                name: stringify!($name),
                kind: Kind::$kind,
                unit: Unit::$unit,
                scope: Scope::$scope,
                help: concat!($($doc),*).trim_ascii(),
                summary: numbers!(@summary $($line $label)?),
            }),*];

            fn values(&self) -> impl Iterator<Item = u64> {
                [$(self.$name),*].into_iter()
            }

            fn read(get: impl Fn(&'static str) -> u64) -> $type {
                $type { $($name: get(stringify!($name)),)* }
            }

            fn add(&mut self, other: &$type) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }
        }
    };
    (@summary) => { None };
    (@summary $line:literal $label:literal) => { Some(($line, $label)) };
}

/// As `numbers`, with a second struct of the `Counter`s in which one worker counts them.
macro_rules! counters {
    (
        $(#[doc = $about:literal])*
        $counters:ident,
        $(#[doc = $sums:literal])*
        $type:ident of $scope:ident {
            $($(#[doc = $doc:literal])* $name:ident: $kind:ident $unit:ident $(=> $line:literal $label:literal)?,)*
        }
    ) => {
        numbers! {
            $(#[doc = $sums])*
            $type of $scope {
                $($(#[doc = $doc])* $name: $kind $unit $(=> $line $label)?,)*
            }
        }

        $(#[doc = $about])*
        #[derive(Default)]
        // Each worker writes its own often: they share no cache line.
        #[repr(align(128))]
        pub struct $counters {
            $($(#[doc = $doc])* pub $name: Counter,)*
        }

        impl $counters {
            /// The values now.
            pub fn numbers(&self) -> $type {
                $type { $($name: self.$name.get(),)* }
            }
        }
    };
}

numbers! {
    /// The process.
    ProcessNumbers of Process {
        /// Time since the start.
        uptime_seconds: Gauge Seconds,
        /// How many configurations came into force, the first included.
        config_generation: Gauge Count,
    }
}

counters! {
    /// One worker's counters, which only that worker writes.
    Counters,
    /// The numbers of one worker, or of all workers together.
    WorkerNumbers of Worker {
        /// Open client connections.
        connections_now: Gauge Count => "connections" "open",
        /// Client connections that this worker took, those handed over to it included.
        connections_accepted: Counter Count => "connections" "accepted",
        /// Idle connections closed to make room because the limit of connections was reached.
        connections_refused: Counter Count => "connections" "refused",
        /// Connections that this worker accepted and handed over to one with fewer connections.
        connections_handed_over: Counter Count,
        /// Connections closed because their client had as many as `connections_per_ip` allows.
        connections_over_ip: Counter Count,
        /// Connections closed because no trusted load balancer named their client in the PROXY protocol.
        connections_not_introduced: Counter Count,
        /// Connections closed unserved because there was no file descriptor or no memory for them.
        connections_shed: Counter Count,
        /// Requests whose head was complete and correct.
        requests: Counter Count => "requests" "in all",
        /// Requests being answered.
        requests_now: Gauge Count => "requests" "being answered",
        /// Requests refused because of their head or body (400, 413, 414, 431, 501, 505).
        requests_refused: Counter Count => "requests" "refused",
        /// Requests refused because of their client's address (403).
        requests_denied: Counter Count,
        /// Requests refused because of the signature of their URL (403, 410).
        requests_unsigned: Counter Count,
        /// Requests refused because their client's address sent too many (429).
        requests_limited: Counter Count,
        /// Responses that had to wait because of their client's bandwidth limit.
        responses_paced: Counter Count,
        /// Clients near a limit that were forgotten because the limit's table was full.
        limits_forgotten: Counter Count,
        /// Connections closed because their client was too slow (with 408 or without a response).
        client_timeouts: Counter Count,
        /// Panics caught while answering.
        panics: Counter Count,
        /// Responses with a status of 2xx.
        responses_2xx: Counter Count => "responses" "2xx",
        /// Responses with a status of 3xx.
        responses_3xx: Counter Count => "responses" "3xx",
        /// Responses with a status of 4xx.
        responses_4xx: Counter Count => "responses" "4xx",
        /// Responses with a status of 5xx.
        responses_5xx: Counter Count => "responses" "5xx",
        /// Responses whose body was cut short.
        responses_cut: Counter Count => "responses" "cut short",
        /// Responses with content that Sluice compressed.
        coded_served: Counter Count,
        /// Requests answered from stored bytes.
        cache_hits: Counter Count => "cache" "hits",
        /// Cache hits answered with a stale response.
        cache_stale: Counter Count,
        /// Requests answered from stored bytes after the origin confirmed them (304).
        cache_validated: Counter Count,
        /// Requests answered by a fetch that they caused.
        cache_misses: Counter Count => "cache" "misses",
        /// Requests answered by a fetch that another request caused.
        cache_collapsed: Counter Count => "cache" "rode another's fetch",
        /// Requests forwarded to the origin without the cache.
        cache_passes: Counter Count => "cache" "passed by",
        /// Fetches begun for the cache.
        flights: Counter Count,
        /// Fetches in progress.
        flights_now: Gauge Count,
        /// Fetches that failed or were given up.
        flights_failed: Counter Count,
        /// Bytes that fetches received.
        flight_bytes: Counter Bytes,
        /// Requests sent to origin servers, repeated ones included.
        upstream_requests: Counter Count,
        /// Connections opened to origin servers.
        upstream_connects: Counter Count,
        /// Exchanges on a connection that had been used before.
        upstream_reuses: Counter Count,
        /// Exchanges tried again on another connection or server.
        upstream_retries: Counter Count,
        /// Exchanges and attempts to connect that failed.
        upstream_failures: Counter Count,
        /// Idle connections to origin servers.
        upstream_idle_now: Gauge Count,
        /// Connections to origin servers in use, those being opened included.
        upstream_busy_now: Gauge Count,
        /// Bytes received from clients.
        client_bytes_in: Counter Bytes,
        /// Bytes sent to clients.
        client_bytes_out: Counter Bytes => "bytes" "to clients",
        /// Bytes of response bodies received from origin servers.
        upstream_bytes_in: Counter Bytes => "bytes" "from origins",
        /// Access log lines lost because the writer was too slow or could not write them.
        log_lines_dropped: Counter Count,
    }
}

numbers! {
    /// One cache.
    CacheNumbers of Cache {
        /// Objects with stored bytes.
        objects: Gauge Count,
        /// Memory in use, bookkeeping included.
        bytes: Gauge Bytes,
        /// Memory that may be used.
        limit: Gauge Bytes,
        /// Memory that readers or fetches hold, so that it can't be freed now.
        pinned: Gauge Bytes,
        /// Fetches in progress.
        flights: Gauge Count,
        /// Objects and blocks evicted to make room.
        evicted: Counter Count,
        /// Purges against which stored or fetched objects may still have to be checked.
        purges: Gauge Count,
        /// Objects and blocks found on volumes.
        volume_hits: Counter Count,
        /// Bytes read from volumes.
        volume_bytes: Counter Bytes,
    }
}

numbers! {
    /// Compressed content.
    CompressNumbers of Compress {
        /// Contents in the table.
        contents: Gauge Count,
        /// Memory in use, bookkeeping included.
        bytes: Gauge Bytes,
        /// Memory that may be used.
        limit: Gauge Bytes,
        /// Contents evicted to make room.
        evicted: Counter Count,
        /// Compressed forms made.
        made: Counter Count,
        /// Bytes before compression.
        made_bytes_in: Counter Bytes,
        /// Bytes after compression.
        made_bytes_out: Counter Bytes,
        /// Contents that compression did not shorten enough.
        not_worth: Counter Count,
        /// Compressions that failed, because a codec failed or the content was gone.
        failed: Counter Count,
        /// Compressions that were not queued because the queue was full.
        queue_full: Counter Count,
    }
}

numbers! {
    /// Whether a volume is used; in the status as its `state`.
    VolumeFlags of Volume {
        /// Whether the volume is used.
        up: Gauge Flag,
        /// Whether the volume is used while its index is still being read.
        loading: Gauge Flag,
    }
}

numbers! {
    /// One volume. Counters begin when the volume is opened.
    VolumeNumbers of Volume {
        /// Space that the volume takes on the device.
        size: Gauge Bytes,
        /// Segments.
        segments: Gauge Count,
        /// Size of a segment.
        segment_bytes: Gauge Bytes,
        /// Records in the index.
        records: Gauge Count,
        /// Bytes that wait to be written.
        queue_bytes: Gauge Bytes,
        /// Bytes written, with all that belongs to the format.
        written_bytes: Counter Bytes,
        /// Bytes of records written again when their segment was reclaimed.
        rewritten_bytes: Counter Bytes,
        /// Bytes read.
        read_bytes: Counter Bytes,
        /// Reads.
        reads: Counter Count,
        /// Reads that the page cache answered.
        reads_at_hand: Counter Count,
        /// Records not written because the queue was full.
        shed: Counter Count,
        /// Bytes not written because the queue was full.
        shed_bytes: Counter Bytes,
        /// Records found damaged.
        damaged: Counter Count,
        /// Failures of the device.
        errors: Counter Count,
        /// Times that the whole volume was written.
        laps: Counter Count,
        /// Time during which something was being written.
        write_ms: Counter Milliseconds,
        /// Time that reads took, summed over all reads.
        read_ms: Counter Milliseconds,
    }
}

numbers! {
    /// One folder of static files.
    FilesNumbers of Files {
        /// Paths of which something is known, including that there is no file.
        entries: Gauge Count,
        /// Memory in use, bookkeeping included; an open file counts with a fixed amount.
        bytes: Gauge Bytes,
        /// Memory that may be used.
        limit: Gauge Bytes,
        /// Files held open.
        open: Gauge Count,
        /// Paths looked up in the file system.
        loaded: Counter Count,
    }
}

counters! {
    /// One worker's counters of one server, which only that worker writes.
    ServerCounters,
    /// The numbers of one server, over all workers.
    ServerNumbers of Server {
        /// Idle connections.
        idle: Gauge Count,
        /// Connections in use, those being opened included.
        busy: Gauge Count,
        /// Connections opened.
        connects: Counter Count,
        /// Requests sent, repeated ones included.
        requests: Counter Count,
        /// Exchanges and attempts to connect that failed.
        failures: Counter Count,
    }
}
