//! Purges that last: the rules of a cache in the logs of its volumes.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};

use super::Volumes;
use crate::store::purges::Rule;
use crate::store::{Full, Store};
use crate::volume::{LogError, Volume, Witness};

/// A rule as it is logged.
#[derive(Serialize, Deserialize)]
struct Written {
    /// When what it covers becomes stale, Unix ms; `None`: it is dropped.
    soft_ms: Option<u64>,
    rule: Rule,
}

/// No volume could take a purge into its log: it is in force, but may not outlast a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLasting(String);

impl NotLasting {
    /// What keeps it from lasting, without what that means.
    pub fn reason(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NotLasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the purge is in force, but may be undone by a restart: {}",
            self.0
        )
    }
}

impl std::error::Error for NotLasting {}

/// A purge that is in force, to be made to last.
#[derive(Clone)]
pub struct Lasting {
    volumes: Arc<Volumes>,
    number: u64,
    text: Vec<u8>,
}

impl Lasting {
    /// Logs it on all volumes that are up. Waits for their disks.
    ///
    /// # Errors
    /// None of them has it.
    pub fn log(&self) -> Result<(), NotLasting> {
        let Lasting {
            volumes,
            number,
            text,
        } = self;
        let (mut logged, mut full, mut why) = (false, Vec::new(), String::new());
        for volume in volumes.all() {
            match volume.log_purge(volumes.space, *number, text) {
                Ok(()) => logged = true,
                // It comes back empty.
                Err(LogError::Out) => why = format!("volume {} is out", volume.name()),
                Err(LogError::Full) => {
                    full.push(volume);
                    why = format!("the purge log of volume {} is full", volume.name());
                }
                Err(LogError::Io(error)) => why = format!("volume {}: {error}", volume.name()),
            }
        }
        if !logged {
            return Err(NotLasting(why));
        }
        // What these hold must not outlive a purge that they don't know.
        for volume in full {
            volume.wipe("its purge log is full");
            let _ = volume.mark_purged(volumes.space, *number);
        }
        Ok(())
    }
}

impl Store {
    /// What makes a purge with this number last, where there are volumes.
    pub fn lasting(&self, rule: &Rule, soft_ms: Option<u64>, number: u64) -> Option<Lasting> {
        let volumes = self.volumes()?;
        let written = Written {
            soft_ms,
            rule: rule.clone(),
        };
        Some(Lasting {
            volumes,
            number,
            text: postcard::to_stdvec(&written).unwrap_or_default(),
        })
    }

    /// Takes up volumes: what they have is found from now on, and purges that they know hold.
    ///
    /// # Errors
    /// They know more purges than there may be.
    pub fn set_volumes(self: &Arc<Self>, volumes: Option<Arc<Volumes>>) -> Result<(), Full> {
        if let Some(volumes) = &volumes {
            self.take_up(volumes)?;
            for volume in volumes.all() {
                let witness: Weak<dyn Witness> = Arc::<Store>::downgrade(self);
                volume.set_witness(volumes.space, witness);
            }
        }
        *self.volumes.write() = volumes;
        Ok(())
    }

    fn take_up(&self, volumes: &Volumes) -> Result<(), Full> {
        let (space, all) = (volumes.space, volumes.all());
        let newest = all.iter().map(|volume| volume.purged_upto(space)).max();
        let newest = newest.unwrap_or(0).max(self.purged_upto());
        // What a volume of this store does not have in its log is being logged, or it would be out.
        let before = self.volumes();
        let knows = |new: &Arc<Volume>| {
            let old = before.iter().flat_map(|volumes| volumes.all());
            old.into_iter().any(|old| Arc::ptr_eq(old, new))
        };
        for volume in all.iter().filter(|volume| !knows(volume)) {
            // Fetches from here on are younger than anything that is kept.
            self.sequence.fetch_max(volume.sequence(), Ordering::SeqCst);
            if volume.purged_upto(space) < newest {
                volume.wipe("it missed purges of a cache");
            }
        }
        let mut rules = std::collections::BTreeMap::new();
        for volume in all {
            let logged = volume.purges(space).into_iter();
            rules.extend(logged.map(|logged| (logged.number, logged.text)));
        }
        for (number, text) in rules {
            // What can't be read may have been any purge.
            let written = postcard::from_bytes(&text).unwrap_or(Written {
                soft_ms: None,
                rule: Rule::All,
            });
            self.purges
                .restore(&written.rule, number, written.soft_ms)?;
        }
        self.purges.restore_upto(newest);
        for volume in all.iter().filter(|volume| volume.is_up() && !knows(volume)) {
            if let Err(error) = volume.mark_purged(space, newest) {
                tracing::warn!(
                    "volume {}: can't note purges in its log: {error:?}",
                    volume.name()
                );
            }
        }
        Ok(())
    }

    /// Nothing on volumes, or on the way there, is older than this.
    pub(in crate::store) fn oldest_kept(&self) -> u64 {
        let volumes = self.volumes();
        let oldest = volumes.iter().flat_map(|volumes| volumes.all());
        oldest.map(|v| v.oldest_born()).min().unwrap_or(u64::MAX)
    }

    /// Purges up to this number are needed no more.
    pub(in crate::store) fn drop_logged(&self, upto: u64) {
        if let Some(volumes) = self.volumes() {
            for volume in volumes.all() {
                volume.drop_purges(volumes.space, upto);
            }
        }
    }
}
