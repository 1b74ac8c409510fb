//! The simulations of other sizes of the caches: their thread, their options, and their report.

use std::io;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::edge::Edge;
use super::snapshot::Snapshot;
use crate::admin::{CacheWhatIf, HitRatios, SizeRatios, WhatIf};
use crate::cache;
use crate::sys::priority;
use crate::what_if::{CacheOptions, Ratios, Report, Size};

/// Time between two rounds in which sampled references are simulated.
const PAUSE: Duration = Duration::from_millis(100);
/// The time between two rounds after one without references.
const IDLE_PAUSE: Duration = Duration::from_millis(250);

/// Starts to simulate the caches of the current plan, on a thread with low priority. Without an admin address nobody could see the results,
/// so nothing is simulated.
///
/// # Errors
///
/// The thread can't be started.
pub(super) fn start(edge: &Arc<Edge>) -> io::Result<Option<JoinHandle<()>>> {
    let snapshot = edge.snapshots.borrow().clone();
    if snapshot.plan.admin.is_none() {
        return Ok(None);
    }
    edge.simulate(&snapshot);
    drop(snapshot);
    let edge = Arc::downgrade(edge);
    let thread = thread::Builder::new()
        .name("what-if".to_owned())
        .spawn(move || run(&edge))?;
    Ok(Some(thread))
}

/// Ends the thread.
pub(super) fn stop(thread: Option<JoinHandle<()>>) {
    let Some(thread) = thread else {
        return;
    };
    thread.thread().unpark();
    if thread.join().is_err() {
        tracing::error!("the thread that simulates other cache sizes had panicked");
    }
}

/// Simulates until the edge stops.
fn run(edge: &Weak<Edge>) {
    if let Err(error) = priority::lower() {
        tracing::warn!(%error, "the thread that simulates other cache sizes has normal priority");
    }
    let mut last_us = None;
    loop {
        let Some(edge) = edge.upgrade().filter(|edge| !*edge.stopping.borrow()) else {
            return;
        };
        let now_us = edge.clock.monotonic_us();
        let elapsed_us = now_us.saturating_sub(last_us.replace(now_us).unwrap_or(now_us));
        let replayed = edge.what_if.replay(elapsed_us);
        drop(edge);
        thread::park_timeout(match replayed {
            0 => IDLE_PAUSE,
            _ => PAUSE,
        });
    }
}

impl Edge {
    /// Simulates the caches of this snapshot from now on.
    pub(super) fn simulate(&self, snapshot: &Snapshot) {
        if snapshot.plan.admin.is_none() {
            return;
        }
        let caches = snapshot.plan.caches.iter().map(|(name, options)| {
            let options = CacheOptions {
                evict: options.evict,
                size: size(snapshot, options),
            };
            (name.clone(), options)
        });
        self.what_if.follow(caches, || self.random.next_u64());
    }

    /// Returns the hit ratios that the caches would have with other sizes.
    pub(super) fn simulated(&self) -> WhatIf {
        let snapshot = self.snapshots.borrow().clone();
        let reports = self.what_if.report().into_iter();
        let caches = reports.filter_map(|(name, report)| {
            let options = snapshot.plan.caches.get(&name)?;
            let volumes = volume_bytes(&snapshot, options);
            Some((name, state(options.memory, volumes, &report)))
        });
        WhatIf {
            caches: caches.collect(),
        }
    }
}

/// Returns the size of a cache: its memory and its volumes.
fn size(snapshot: &Snapshot, options: &cache::Options) -> Size {
    Size {
        bytes: options
            .memory
            .saturating_add(volume_bytes(snapshot, options)),
        unit_max: options.object_max(),
        unit_max_grows: options.max_object_size == 0,
    }
}

/// Returns the size of a cache's volumes. A volume that several caches use counts fully for each of them.
fn volume_bytes(snapshot: &Snapshot, options: &cache::Options) -> u64 {
    let bytes = |name: &String| {
        let configured = snapshot.plan.volumes.get(name).map(|volume| volume.size);
        let opened = snapshot.volumes.get(name);
        // The size of a block device need not be configured.
        let actual = opened.map(|volume| volume.status().numbers.size);
        configured.max(actual).unwrap_or(0)
    };
    let names = options.disk_tier.volumes.iter();
    names.map(bytes).fold(0, u64::saturating_add)
}

fn state(memory: u64, volumes: u64, report: &Report) -> CacheWhatIf {
    let points = report.points.iter().map(|point| SizeRatios {
        times: point.times,
        bytes: point.bytes,
        ratios: ratios(point.ratios),
    });
    CacheWhatIf {
        memory,
        volumes,
        evict: report.evict.name(),
        sampled: report.share,
        references: report.requests,
        sampled_references: report.sampled,
        dropped: report.dropped,
        points: points.collect(),
        measured: ratios(report.measured),
    }
}

fn ratios(ratios: Option<Ratios>) -> HitRatios {
    HitRatios {
        hit_ratio: ratios.map(|ratios| ratios.requests),
        byte_hit_ratio: ratios.map(|ratios| ratios.bytes),
    }
}
