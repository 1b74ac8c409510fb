//! The measurements of one server that are more than numbers: durations, and failures by reason.

use serde::{Serialize, Serializer};

use super::failures::Failures;
use super::histogram::Histogram;
use super::metric::Metric;
use super::table::ServerCounters;

/// Durations and failures of one server. As JSON, the histograms are percentiles.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServerMeasures {
    /// Times to open a connection, including the handshake of TLS.
    #[serde(serialize_with = "percentiles")]
    pub connect_duration: Histogram,
    /// Times of handshakes of TLS.
    #[serde(serialize_with = "percentiles")]
    pub tls_handshake_duration: Histogram,
    /// Times from sending a request to the complete head of the response.
    #[serde(serialize_with = "percentiles")]
    pub header_duration: Histogram,
    /// Times from sending a request to the end of the response.
    #[serde(serialize_with = "percentiles")]
    pub response_duration: Histogram,
    /// Round trips in samples of the kernel's data.
    #[serde(serialize_with = "percentiles")]
    pub tcp_rtt: Histogram,
    /// Failures by reason.
    pub failures_by_reason: Failures,
}

impl ServerMeasures {
    /// Adds the current values of one worker.
    pub fn add_worker(&mut self, worker: &ServerCounters) {
        self.connect_duration.add(&worker.connect_duration.values());
        let handshake = worker.tls_handshake_duration.values();
        self.tls_handshake_duration.add(&handshake);
        self.header_duration.add(&worker.header_duration.values());
        let response = worker.response_duration.values();
        self.response_duration.add(&response);
        self.tcp_rtt.add(&worker.tcp_rtt.values());
        self.failures_by_reason
            .add(&worker.failures_by_reason.values());
    }

    /// Adds the values of another server.
    pub fn add(&mut self, other: &ServerMeasures) {
        self.connect_duration.add(&other.connect_duration);
        self.tls_handshake_duration
            .add(&other.tls_handshake_duration);
        self.header_duration.add(&other.header_duration);
        self.response_duration.add(&other.response_duration);
        self.tcp_rtt.add(&other.tcp_rtt);
        self.failures_by_reason.add(&other.failures_by_reason);
    }

    /// Returns each histogram with its description.
    pub fn histograms(&self) -> impl Iterator<Item = (&'static Metric, &Histogram)> {
        let all = [
            &self.connect_duration,
            &self.tls_handshake_duration,
            &self.header_duration,
            &self.response_duration,
            &self.tcp_rtt,
        ];
        ServerCounters::HISTOGRAMS.iter().zip(all)
    }
}

fn percentiles<S: Serializer>(histogram: &Histogram, serializer: S) -> Result<S::Ok, S::Error> {
    histogram.percentiles().serialize(serializer)
}
