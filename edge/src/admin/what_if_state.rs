//! The response to `GET /what-if`.

use std::collections::BTreeMap;

use serde::Serialize;

/// Response to `GET /what-if`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WhatIf {
    /// The simulated caches by name.
    pub caches: BTreeMap<String, CacheWhatIf>,
}

/// The hit ratios of one cache at other sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CacheWhatIf {
    /// Configured memory in bytes.
    pub memory: u64,
    /// Size of the cache's volumes in bytes; 0 without volumes.
    pub volumes: u64,
    /// The eviction policy with which all sizes are simulated.
    pub evict: &'static str,
    /// Sampled share of the objects and blocks, from 0 to 1.
    pub sampled: f64,
    /// Number of requests that the ratios are about. Those of the last ten minutes count fully, earlier ones less.
    pub references: u64,
    /// Number of sampled uses of objects and blocks among them.
    pub sampled_references: u64,
    /// Number of sampled uses that were not simulated since the start, because they came too fast.
    pub dropped: u64,
    /// The simulated sizes, rising.
    pub points: Vec<SizeRatios>,
    /// The ratios of the real cache over the same requests.
    pub measured: HitRatios,
}

/// The estimate for one size.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SizeRatios {
    /// The size as a multiple of `memory` and `volumes` together.
    pub times: f64,
    /// The size in bytes.
    pub bytes: u64,
    /// The estimated ratios.
    #[serde(flatten)]
    pub ratios: HitRatios,
}

/// Shares of hits, from 0 to 1. `None` before the first request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HitRatios {
    /// Share of the requests.
    pub hit_ratio: Option<f64>,
    /// Share of the content of the used objects and blocks.
    pub byte_hit_ratio: Option<f64>,
}
