//! The compression of one configuration: an encoder for each set of options, and the worker pool
//! that all encoders share.

use std::sync::Arc;

use anyhow::Context as _;

use crate::compress::{Encoder, WorkerPool};
use crate::config::Plan;
use crate::telemetry::{CompressNumbers, Numbers};

/// The compression of one configuration.
#[derive(Default)]
pub(super) struct Compression {
    worker_pool: Option<Arc<WorkerPool>>,
    pub(super) encoders: Vec<Arc<Encoder>>,
}

impl Compression {
    /// Builds the encoders for a plan. Encoders with unchanged options are taken over from `before`
    /// with their compressed content.
    pub(super) fn build(plan: &Plan, before: Option<&Compression>) -> anyhow::Result<Compression> {
        let routes = plan.sites.iter().flat_map(|site| &site.routes);
        let mut all = routes
            .filter_map(|route| route.compress.as_ref())
            .peekable();
        if all.peek().is_none() {
            return Ok(Compression::default());
        }
        let worker_pool = match before.and_then(|before| before.worker_pool.clone()) {
            Some(worker_pool) => worker_pool,
            None => WorkerPool::start().context("can't start the compression threads")?,
        };
        let mut encoders: Vec<Arc<Encoder>> = Vec::new();
        for options in all {
            let is_it = |encoder: &&Arc<Encoder>| encoder.options() == options;
            if encoders.iter().any(|encoder| is_it(&encoder)) {
                continue;
            }
            let kept = before.and_then(|before| before.encoders.iter().find(is_it));
            let new = || Encoder::new(options.clone(), &worker_pool);
            encoders.push(kept.cloned().unwrap_or_else(new));
        }
        Ok(Compression {
            worker_pool: Some(worker_pool),
            encoders,
        })
    }

    /// Returns the numbers of all encoders together, or `None` if there is no encoder.
    pub(super) fn numbers(&self) -> Option<CompressNumbers> {
        let (first, rest) = self.encoders.split_first()?;
        let mut sum = first.numbers();
        for encoder in rest {
            sum.add(&encoder.numbers());
        }
        Some(sum)
    }
}
