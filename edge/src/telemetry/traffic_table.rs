//! The part of the table of metrics that concerns routes and servers.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::counter::Counter;
use super::failures::{FailureCounters, Failures};
use super::histogram::{Histogram, Shown};
use super::histogram_counters::HistogramCounters;
use super::measures::Measures;
use super::metric::{Kind, Metric, Numbers, Scope, Unit};
use super::table_macros::{counters, numbers};

counters! {
    /// One worker's counters of one route, which only that worker writes.
    RouteCounters,
    /// The numbers of one route, or the sum over the routes of a site or cache, over all workers.
    RouteNumbers of Route {
        /// Requests for which this route was chosen.
        requests: Counter Count,
        /// Responses with a status of 2xx.
        responses_2xx: Counter Count,
        /// Responses with a status of 3xx.
        responses_3xx: Counter Count,
        /// Responses with a status of 4xx.
        responses_4xx: Counter Count,
        /// Responses with a status of 5xx.
        responses_5xx: Counter Count,
        /// Responses whose body was truncated.
        responses_cut: Counter Count,
        /// Requests served from stored bytes.
        hits: Counter Count,
        /// Hits served with a stale response.
        stale: Counter Count,
        /// Requests served from stored bytes after the origin confirmed these (304).
        validated: Counter Count,
        /// Requests served by a fetch that they caused.
        misses: Counter Count,
        /// Requests served by a fetch that another request caused.
        collapsed: Counter Count,
        /// Requests forwarded to the origin without the cache, for example because of their method. A request for a response
        /// that may not be stored is a miss.
        passes: Counter Count,
        /// Requests that Sluice answered with an error because of the client, such as a missing signature, a rate limit or
        /// a file that does not exist.
        refused: Counter Count,
        /// Requests that Sluice answered with an error because the origin or Sluice itself failed.
        failed: Counter Count,
        /// Body bytes of responses, as far as they were sent.
        body_bytes: Counter Bytes,
        /// Those of them that were served from stored bytes.
        hit_bytes: Counter Bytes,
        /// Requests sent to origin servers, including repeated ones and those of fetches in the background.
        upstream_requests: Counter Count,
        /// Bytes of response bodies received from origin servers.
        upstream_bytes: Counter Bytes,
    }
    with
    /// The histograms of one route, or the sum over the routes of a site or cache, over all workers.
    RouteMeasures {
        /// Times from the complete head of a request until the last byte of the response was passed to the connection,
        /// without upgraded connections.
        request_duration: Seconds,
        /// Body bytes of responses, as far as they were sent.
        body_size: Bytes,
        /// Times to open a connection to a server, including the handshake of TLS.
        connect_duration: Seconds,
        /// Times from sending a request to a server to the complete head of the response.
        header_duration: Seconds,
        /// Times from sending a request to a server to the end of the response.
        response_duration: Seconds,
    }
}

counters! {
    /// One worker's counters of one server, which only that worker writes.
    ServerCounters,
    /// The numbers of one server, summed over all workers.
    ServerNumbers of Server {
        /// Idle connections.
        idle: Gauge Count,
        /// Connections in use, including those being opened.
        busy: Gauge Count,
        /// Connections opened.
        connects: Counter Count,
        /// Requests sent, including repeated ones.
        requests: Counter Count,
        /// Requests sent on connections that had carried other requests before.
        reuses: Counter Count,
        /// Failed requests, including failed attempts to connect and the statuses 500, 502, 503 and 504.
        failures: Counter Count,
        /// Open connections that speak HTTP/2. They are among those that are idle or in use.
        http2_connections: Gauge Count,
        /// Open streams of HTTP/2: requests in progress.
        http2_streams: Gauge Count,
        /// Requests of HTTP/2 that the server did not process, as it said itself (REFUSED_STREAM, GOAWAY,
        /// HTTP_1_1_REQUIRED). Most of them are sent again.
        http2_streams_refused: Counter Count,
        /// Streams of HTTP/2 that the server reset for other reasons, before their response was complete.
        http2_resets_received: Counter Count,
        /// Connections of HTTP/2 to which the server permitted no further streams (GOAWAY).
        http2_goaways: Counter Count,
        /// Bytes sent to the server, including heads and health checks.
        bytes_out: Counter Bytes,
        /// Bytes received from the server, including heads and health checks.
        bytes_in: Counter Bytes,
        /// Samples of the kernel's data about a connection (TCP_INFO), taken after a response, at most one per second and connection.
        tcp_samples: Counter Count,
        /// Congestion windows towards the server, summed over the samples.
        tcp_window_bytes: Counter Bytes,
        /// Bytes sent and not yet acknowledged, summed over the samples.
        tcp_in_flight_bytes: Counter Bytes,
        /// Segments sent again, as far as samples show.
        tcp_retransmits: Counter Count,
    }
    with
    /// The histograms of one server, and its failures by reason, summed over all workers.
    ServerMeasures {
        /// Times to open a connection, including the handshake of TLS.
        connect_duration: Seconds,
        /// Times of handshakes of TLS, from the open TCP connection or Unix socket on.
        tls_handshake_duration: Seconds,
        /// Times from sending a request to the complete head of the response.
        header_duration: Seconds,
        /// Times from sending a request to the end of the response.
        response_duration: Seconds,
        /// Round trips, smoothed by the kernel, in the samples.
        tcp_rtt: Seconds,
    }
    and {
        /// The failures of each reason.
        failures_by_reason: FailureCounters => Failures,
    }
}
