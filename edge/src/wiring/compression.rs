//! What compresses, as long as a configuration has it: encoders, one for each way in which it is done, and
//! the threads that work for all of them.

use std::sync::Arc;

use anyhow::Context as _;

use crate::compress::{Encoder, Workshop};
use crate::config::Plan;
use crate::telemetry::{CompressNumbers, Numbers};

/// Of one configuration.
#[derive(Default)]
pub(super) struct Compression {
    workshop: Option<Arc<Workshop>>,
    pub(super) encoders: Vec<Arc<Encoder>>,
}

impl Compression {
    /// What a plan needs: what was there is taken over, with all that it holds.
    pub(super) fn build(plan: &Plan, before: Option<&Compression>) -> anyhow::Result<Compression> {
        let routes = plan.sites.iter().flat_map(|site| &site.routes);
        let mut all = routes
            .filter_map(|route| route.compress.as_ref())
            .peekable();
        if all.peek().is_none() {
            return Ok(Compression::default());
        }
        let workshop = match before.and_then(|before| before.workshop.clone()) {
            Some(workshop) => workshop,
            None => Workshop::start().context("can't start the threads that compress")?,
        };
        let mut encoders: Vec<Arc<Encoder>> = Vec::new();
        for options in all {
            let is_it = |encoder: &&Arc<Encoder>| encoder.options() == options;
            if encoders.iter().any(|encoder| is_it(&encoder)) {
                continue;
            }
            let kept = before.and_then(|before| before.encoders.iter().find(is_it));
            let new = || Encoder::new(options.clone(), &workshop);
            encoders.push(kept.cloned().unwrap_or_else(new));
        }
        Ok(Compression {
            workshop: Some(workshop),
            encoders,
        })
    }

    /// The numbers of all encoders together; `None` if there is none.
    pub(super) fn numbers(&self) -> Option<CompressNumbers> {
        let (first, rest) = self.encoders.split_first()?;
        let mut sum = first.numbers();
        for encoder in rest {
            sum.add(&encoder.numbers());
        }
        Some(sum)
    }
}
