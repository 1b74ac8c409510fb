//! The table of all metrics, except those of routes and servers (`traffic_table`). Each metric is declared here only: the
//! structs with the numbers, the status, Prometheus' text, `sluice status` and `docs/metrics.md` are derived from this
//! table.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::counter::Counter;
use super::histogram::{Histogram, Shown};
use super::histogram_counters::HistogramCounters;
use super::measures::Measures;
use super::metric::{Kind, Metric, Numbers, Scope, Unit};
use super::reasons::{ReasonCounters, Reasons};
use super::table_macros::{counters, numbers};

numbers! {
    /// The numbers of the process.
    ProcessNumbers of Process {
        /// Time since the process started.
        uptime_seconds: Gauge Seconds,
        /// Number of configurations that came into use, the first one included.
        config_generation: Gauge Count,
        /// Whether the last reload failed, so that the earlier configuration stays in use.
        config_reload_failed: Gauge Flag,
        /// Certificates, authorities and secrets of tickets whose changed files can't be used, so that the earlier ones stay in use.
        tls_files_refused: Gauge Count,
        /// Memory of the process that is resident, with its program and files mapped into it.
        resident_bytes: Gauge Bytes,
        /// Memory that the process can use: that of the machine or less, if a control group limited it at the start; 0 if unknown.
        memory_limit: Gauge Bytes,
        /// CPU time of all threads of the process.
        process_cpu_ms: Counter Milliseconds,
    }
}

counters! {
    /// One worker's counters, which only that worker writes.
    Counters,
    /// The numbers of one worker, or of all workers together.
    WorkerNumbers of Worker {
        /// Open client connections.
        connections_now: Gauge Count => "connections" "open",
        /// Client connections that this worker served, including those handed over to it.
        connections_accepted: Counter Count => "connections" "accepted",
        /// Idle connections closed to make room because the limit of connections was reached.
        connections_refused: Counter Count => "connections" "idle ones closed to make room",
        /// Connections that this worker accepted and handed over to a worker with fewer
        /// connections.
        connections_handed_over: Counter Count,
        /// Connections closed because their client had as many as `connections_per_ip` allows.
        connections_over_ip: Counter Count,
        /// Connections closed because they had no PROXY protocol header from a trusted load
        /// balancer.
        connections_not_introduced: Counter Count,
        /// Connections closed unserved because file descriptors or memory had run out.
        connections_shed: Counter Count,
        /// Open client connections that speak HTTP/1.
        http1_connections_now: Gauge Count,
        /// Client connections that spoke HTTP/1.
        http1_connections: Counter Count,
        /// Open client connections that speak HTTP/2.
        http2_connections_now: Gauge Count => "http/2" "connections open",
        /// Client connections that spoke HTTP/2.
        http2_connections: Counter Count,
        /// Open streams of HTTP/2: requests in progress.
        http2_streams_now: Gauge Count,
        /// Open streams of HTTP/2 whose response has content but no useful window: less than 256 bytes.
        http2_streams_stalled_now: Gauge Count,
        /// Streams of HTTP/2 that were opened.
        http2_streams: Counter Count => "http/2" "requests",
        /// Streams of HTTP/2 that clients reset before their response was complete.
        http2_resets_received: Counter Count,
        /// Streams of HTTP/2 that Sluice reset, for any reason. A request that is not needed completely is one.
        http2_resets_sent: Counter Count,
        /// Requests of HTTP/2 that broke the rules of the protocol, so that their streams were reset (`malformed-request`,
        /// `bad-request-body`).
        http2_malformed: Counter Count,
        /// Requests of HTTP/2 refused because their connection had as many as `max_streams` allows, or did not read the
        /// responses of others (`too-many-streams`).
        http2_streams_refused: Counter Count => "http/2" "refused",
        /// Connections of HTTP/2 ended without an error (GOAWAY): because they were idle, because of `keepalive_requests`, or
        /// at shutdown.
        http2_goaways: Counter Count,
        /// Connections of HTTP/2 ended because the client broke the rules of the protocol.
        http2_failed_protocol: Counter Count => "http/2" "connections that broke the rules",
        /// Connections of HTTP/2 ended because the client sent too much that has no effect, such as cancelled requests
        /// (ENHANCE_YOUR_CALM).
        http2_failed_excess: Counter Count,
        /// Full TLS handshakes that were completed.
        tls_handshakes: Counter Count => "tls" "handshakes",
        /// TLS handshakes that resumed an earlier session.
        tls_resumed: Counter Count => "tls" "resumed",
        /// TLS handshakes in progress.
        tls_handshakes_now: Gauge Count,
        /// TLS handshakes that failed, for any reason, after the client had sent a byte or until the handshake was cut. The
        /// numbers of the single reasons follow.
        tls_handshakes_failed: Counter Count => "tls" "failed",
        /// TLS handshakes cut because they took longer than `handshake_timeout` (`tls-timeout`).
        tls_handshakes_late: Counter Count,
        /// Unfinished TLS handshakes cut because the worker had as many as `handshakes` allows (`tls-cut`).
        tls_handshakes_cut: Counter Count,
        /// TLS handshakes with clients that offered only older versions than `min_version` (`tls-version`).
        tls_failed_version: Counter Count,
        /// TLS handshakes without a common cipher suite, group or signature scheme (`tls-parameters`).
        tls_failed_parameters: Counter Count,
        /// TLS handshakes for an unknown host (`tls-unknown-name`).
        tls_failed_unknown_name: Counter Count,
        /// TLS handshakes for a host that has no certificate yet (`tls-no-certificate`).
        tls_failed_no_certificate: Counter Count,
        /// TLS handshakes with clients that offered only unknown protocols (`tls-protocol`).
        tls_failed_protocol: Counter Count,
        /// TLS handshakes with a missing or invalid client certificate (`tls-client-certificate`).
        tls_failed_client_certificate: Counter Count,
        /// TLS handshakes that the client ended with an alert, usually since it does not trust the certificate
        /// (`tls-refused-by-client`).
        tls_failed_refused_by_client: Counter Count,
        /// Connections to a TLS listener on which the client sent a request in clear text (`not-tls`).
        tls_failed_not_tls: Counter Count,
        /// TLS handshakes in which the client broke the rules of TLS (`tls-malformed`).
        tls_failed_malformed: Counter Count,
        /// Unfinished TLS handshakes cut because the limit of connections was reached (`tls-evicted`).
        tls_failed_evicted: Counter Count,
        /// TLS handshakes during which the client closed the connection (`tls-closed`).
        tls_failed_closed: Counter Count,
        /// TLS handshakes in which Sluice failed (`tls-internal`).
        tls_failed_internal: Counter Count,
        /// Connections closed because their client had as many unfinished TLS handshakes as
        /// `handshakes_per_ip` allows.
        tls_handshakes_over_ip: Counter Count,
        /// Memory held by TLS connections: an estimate for each one, and bytes that wait for the client, for the rest of
        /// their record or message, or for being read.
        tls_memory_now: Gauge Bytes,
        /// Requests whose head was complete and valid.
        requests: Counter Count => "requests" "in all",
        /// Requests in progress.
        requests_now: Gauge Count => "requests" "being answered",
        /// Memory counted for requests that wait for their responses, and for their responses until
        /// these end.
        request_memory_now: Gauge Bytes,
        /// Requests refused because waiting requests took as much memory as `request_memory` allows
        /// (503).
        requests_over_memory: Counter Count,
        /// Requests forwarded once their whole body had arrived.
        requests_buffered: Counter Count,
        /// Responses read as fast as the origin sent them.
        responses_buffered: Counter Count,
        /// Requests refused because the buffers took as much memory or disk space as `[buffers]` allows, or the disk was
        /// full (503, 507).
        requests_over_buffers: Counter Count,
        /// Requests refused because of their head or body (400, 413, 414, 431, 501, 505).
        requests_refused: Counter Count => "requests" "refused",
        /// Requests refused because of their client's address (403).
        requests_denied: Counter Count,
        /// Requests refused because their client has no TLS certificate (403).
        requests_uncertified: Counter Count,
        /// Requests refused because of the signature of their URL (403, 410).
        requests_unsigned: Counter Count,
        /// Requests refused because their client's address exceeded a rate limit (429).
        requests_limited: Counter Count,
        /// Responses delayed by their client's bandwidth limit.
        responses_paced: Counter Count,
        /// Clients near a limit whose counts were dropped because the limit's table was full.
        limits_forgotten: Counter Count,
        /// Connections closed because their client was too slow (with 408 or without a response).
        client_timeouts: Counter Count,
        /// Panics caught while handling requests.
        panics: Counter Count,
        /// Responses with a status of 2xx.
        responses_2xx: Counter Count => "responses" "2xx",
        /// Responses with a status of 3xx.
        responses_3xx: Counter Count => "responses" "3xx",
        /// Responses with a status of 4xx.
        responses_4xx: Counter Count => "responses" "4xx",
        /// Responses with a status of 5xx.
        responses_5xx: Counter Count => "responses" "5xx",
        /// Responses whose body was truncated.
        responses_cut: Counter Count => "responses" "cut short",
        /// Responses with content that Sluice compressed.
        coded_served: Counter Count,
        /// Requests served from stored bytes.
        cache_hits: Counter Count => "cache" "hit",
        /// Cache hits served with a stale response.
        cache_stale: Counter Count,
        /// Requests served from stored bytes after the origin confirmed these (304).
        cache_validated: Counter Count => "cache" "validated",
        /// Requests served by a fetch that they caused.
        cache_misses: Counter Count => "cache" "missed",
        /// Requests served by a fetch that another request caused.
        cache_collapsed: Counter Count => "cache" "collapsed",
        /// Requests forwarded to the origin without the cache, for example because of their method. A request for a response
        /// that may not be stored is a miss.
        cache_passes: Counter Count => "cache" "passed",
        /// Body bytes of the responses of routes with a cache.
        cache_response_bytes: Counter Bytes,
        /// Body bytes of those responses that were served from stored bytes.
        cache_hit_bytes: Counter Bytes,
        /// Fetches begun for the cache.
        flights: Counter Count => "fetches" "begun",
        /// Fetches in progress.
        flights_now: Gauge Count,
        /// Fetches that failed or were abandoned.
        flights_failed: Counter Count => "fetches" "failed",
        /// Fetches that were too slow for a client, so that another fetch took over a part of their range.
        flights_taken_over: Counter Count,
        /// Bytes that fetches received.
        flight_bytes: Counter Bytes,
        /// Requests sent to origin servers, including repeated ones.
        upstream_requests: Counter Count,
        /// Connections opened to origin servers.
        upstream_connects: Counter Count,
        /// Requests sent on a connection that had been used before.
        upstream_reuses: Counter Count,
        /// Requests sent again on another connection or to another server.
        upstream_retries: Counter Count,
        /// Failed requests that were not sent to another server because the budget of retries was used up.
        upstream_retries_refused: Counter Count,
        /// Fetches sent to a second server because the response of the first one was late.
        upstream_hedges: Counter Count,
        /// Attempts to connect to servers that accepted no connections before.
        upstream_probes: Counter Count,
        /// Response bodies that broke off and were continued by another server.
        upstream_resumed: Counter Count,
        /// Redirects of origin servers that were followed.
        upstream_redirects: Counter Count,
        /// Redirects that clients got although their route follows redirects: too many, a loop, or another host.
        upstream_redirects_passed: Counter Count,
        /// Failed requests to servers, including failed attempts to connect and the statuses 500, 502, 503 and 504.
        upstream_failures: Counter Count,
        /// Idle connections to origin servers.
        upstream_idle_now: Gauge Count,
        /// Connections to origin servers in use, including those being opened.
        upstream_busy_now: Gauge Count,
        /// Bytes received from clients.
        client_bytes_in: Counter Bytes,
        /// Bytes sent to clients.
        client_bytes_out: Counter Bytes => "bytes" "to clients",
        /// Bytes of response bodies received from origin servers, without heads and health checks.
        upstream_bytes_in: Counter Bytes => "bytes" "from origins",
        /// Access log lines lost because the writer was too slow or could not write them.
        log_lines_dropped: Counter Count,
        /// CPU time of the worker's thread.
        cpu_ms: Counter Milliseconds,
        /// Samples of requests dropped because collecting them was too slow: they are missing in the top URLs and the recent
        /// errors.
        samples_dropped: Counter Count,
    }
    with
    /// The histograms of one worker, or of all workers together, and their requests by reason.
    WorkerMeasures {
        /// Times from the complete head of a valid request until the last byte of the response was
        /// passed to the connection, without upgraded connections.
        request_duration: Seconds,
        /// Body bytes of responses, as far as they were sent.
        body_size: Bytes,
        /// Times to open a connection to a server, including the handshake of TLS.
        connect_duration: Seconds,
        /// Times from sending a request to a server to the complete head of the response.
        header_duration: Seconds,
        /// Times from sending a request to a server to the end of the response.
        response_duration: Seconds,
        /// Times by which the worker's timer, which ticks ten times per second, ran late because the worker was busy. A
        /// timer is always up to 1 ms late.
        loop_lag: Seconds,
    }
    and {
        /// The requests of each reason.
        requests_by_reason: ReasonCounters => Reasons,
    }
}

numbers! {
    /// The numbers of one cache.
    CacheNumbers of Cache {
        /// Objects with stored bytes.
        objects: Gauge Count,
        /// Memory in use, including bookkeeping.
        bytes: Gauge Bytes,
        /// Memory that may be used.
        limit: Gauge Bytes,
        /// Memory that can't be freed now because readers or fetches use it.
        pinned: Gauge Bytes,
        /// Fetches in progress.
        flights: Gauge Count,
        /// Objects and blocks evicted to make room.
        evicted: Counter Count,
        /// Time since the last use of the object or block that was evicted last. While everything that is requested again is
        /// requested within this time, more memory brings nothing. Measured once per second while there is an admin address.
        evicted_age_seconds: Gauge Seconds,
        /// Purges against which stored or fetched objects may still have to be checked.
        purges: Gauge Count,
        /// Objects and blocks found on volumes.
        volume_hits: Counter Count,
        /// Bytes read from volumes.
        volume_bytes: Counter Bytes,
    }
}

numbers! {
    /// The numbers of the buffers of bodies (`request_buffering`, `response_buffering`).
    BufferNumbers of Buffers {
        /// Memory in use.
        bytes: Gauge Bytes,
        /// Memory that may be used.
        limit: Gauge Bytes,
        /// Space that temporary files take on the disk.
        disk_bytes: Gauge Bytes,
        /// Space that temporary files may take on the disk; 0 without `folder`.
        disk_limit: Gauge Bytes,
        /// Temporary files, one for each body that is too long for memory.
        files: Gauge Count,
        /// Bodies that went on in a temporary file.
        spilled: Counter Count,
        /// Bytes written to temporary files.
        disk_written_bytes: Counter Bytes,
        /// Bodies for which the disk or its limits in `[buffers]` had no room.
        disk_full: Counter Count,
        /// Failed writes and reads of temporary files, except those of a full disk.
        disk_errors: Counter Count,
        /// Writes and reads of temporary files that took longer than `disk_timeout`.
        disk_timeouts: Counter Count,
    }
}

numbers! {
    /// The numbers of compressed content.
    CompressNumbers of Compress {
        /// Responses or files whose compressed forms are stored or queued for compression.
        contents: Gauge Count,
        /// Memory in use, including bookkeeping.
        bytes: Gauge Bytes,
        /// Memory that may be used.
        limit: Gauge Bytes,
        /// Responses or files whose compressed forms were evicted to make room.
        evicted: Counter Count,
        /// Compressions completed.
        made: Counter Count,
        /// Bytes before compression, summed over all completed compressions.
        made_bytes_in: Counter Bytes,
        /// Bytes after compression, summed over all completed compressions.
        made_bytes_out: Counter Bytes,
        /// Responses or files that compression did not shorten enough.
        not_worth: Counter Count,
        /// Compressions that failed because the encoder failed or the content was gone.
        failed: Counter Count,
        /// Compressions that were not queued because the queue was full.
        queue_full: Counter Count,
    }
}

numbers! {
    /// Flags of a volume. In the status they are combined in its `state`.
    VolumeFlags of Volume {
        /// Whether the volume is used.
        up: Gauge Flag,
        /// Whether the volume's index is still being loaded.
        loading: Gauge Flag,
    }
}

numbers! {
    /// The numbers of one volume. Counters begin when the volume is opened.
    VolumeNumbers of Volume {
        /// Space that the volume takes on the device.
        size: Gauge Bytes,
        /// Segments of the volume.
        segments: Gauge Count,
        /// Size of each segment.
        segment_bytes: Gauge Bytes,
        /// Records in the index.
        records: Gauge Count,
        /// Bytes that wait to be written.
        queue_bytes: Gauge Bytes,
        /// Bytes written, including headers, padding and tables.
        written_bytes: Counter Bytes,
        /// Bytes of new records written. `written_bytes` divided by this number is the write amplification.
        record_bytes: Counter Bytes,
        /// Bytes of records written again when their segment was reclaimed.
        rewritten_bytes: Counter Bytes,
        /// Bytes read.
        read_bytes: Counter Bytes,
        /// Reads.
        reads: Counter Count,
        /// Reads served from the page cache.
        reads_cached: Counter Count,
        /// Records not written because the queue was full.
        shed: Counter Count,
        /// Bytes not written because the queue was full.
        shed_bytes: Counter Bytes,
        /// Records found damaged.
        damaged: Counter Count,
        /// Input or output errors of the device.
        errors: Counter Count,
        /// Number of times that the whole volume was written from start to end.
        laps: Counter Count,
        /// Time during which at least one write was in progress.
        write_ms: Counter Milliseconds,
        /// Time taken by reads, summed over all reads.
        read_ms: Counter Milliseconds,
        /// Reads that the disk of the volume completed, as the kernel counts them for all programs (`iostat`). This and the
        /// following numbers are 0 if the volume's file system has no disk of its own, such as one on several disks.
        disk_reads: Counter Count,
        /// Time taken by reads of the disk, summed over all of them.
        disk_read_ms: Counter Milliseconds,
        /// Writes that the disk completed.
        disk_writes: Counter Count,
        /// Time taken by writes to the disk, summed over all of them.
        disk_write_ms: Counter Milliseconds,
        /// Reads and writes of the disk in progress.
        disk_in_flight: Gauge Count,
        /// Time during which a read or write of the disk was in progress.
        disk_busy_ms: Counter Milliseconds,
        /// Time that reads, writes and others took with their time in the disk's queue, summed over all of them. Its growth per
        /// second is the mean length of the queue.
        disk_queue_ms: Counter Milliseconds,
    }
}

numbers! {
    /// The numbers of one folder of static files.
    FilesNumbers of Files {
        /// Paths whose lookup is cached, including paths without a file.
        entries: Gauge Count,
        /// Memory in use, including bookkeeping. An open file counts with a fixed amount.
        bytes: Gauge Bytes,
        /// Memory that may be used.
        limit: Gauge Bytes,
        /// Files held open.
        open: Gauge Count,
        /// Paths looked up in the file system.
        loaded: Counter Count,
    }
}

numbers! {
    /// The numbers of all certificates together.
    CertificateTotals of Certificates {
        /// Certificates that the configuration names or wants.
        configured: Gauge Count,
        /// Certificates in use. The others are still to be obtained.
        in_use: Gauge Count,
        /// Certificates with a warning: those that are missing after a failed attempt, have expired, or have a third of their
        /// validity left or less.
        warned: Gauge Count,
        /// Certificates whose last attempt to obtain them failed.
        failing: Gauge Count,
    }
}

numbers! {
    /// The numbers of one certificate.
    CertificateNumbers of Certificate {
        /// End of the validity as Unix time; 0 without a certificate.
        not_after_seconds: Gauge Seconds,
        /// Whether the certificate is in use.
        in_use: Gauge Flag,
        /// Failed attempts to obtain the certificate since the last success.
        failures: Gauge Count,
        /// Time of the renewal, or of the next attempt after a failure, as Unix time; 0 for certificates in files.
        renewal_seconds: Gauge Seconds,
    }
}
