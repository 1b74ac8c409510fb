//! Objects in memory: the table that owns them, their bytes, and the ledger that bounds them.
//!
//! # Locks
//!
//! | lock | guards | order |
//! |---|---|---|
//! | sweep (`Purges::round`) | how far the sweep through the store is | first |
//! | shard (`Store::shards`) | the shard's entries and its eviction policy; `Object::checked` | after the sweep |
//! | object (`Object::state`) | every field of `State` | after the shard |
//! | purge rules (`Purges::index`) | the rules in force | after the shard, never with an object |
//! | births (`Purges::births`) | numbers of fetches without a head | after the sweep, with no other |
//! | volumes (`Store::volumes`) | the pointer to the cache's volumes, held only to clone it | last |
//!
//! No lock is held across an await. Pages are freed and wakers are called after unlocking. The
//! ledger is one atomic number.
//!
//! # Which file may change what
//!
//! | state | changed by | under |
//! |---|---|---|
//! | entries of the table: objects in and out, Vary, resource history | `table`, through `locked`; `table` alone when it evicts | shard |
//! | the eviction policy, weights of objects and blocks | `table` | shard |
//! | `State::phase` | `object` (opened, renewed, retired), `claims` (refused, failed), `revalidation` (the stored response is used) | object |
//! | `State::length`, `joinable`, `block` | `object`, once, when the head is known; `claims` sets the length when the first flight ends | object |
//! | `State::claims` | `arrange` (made), `claims` (changed, ended); `disk_tier::reads` adds those of reads from volumes | object |
//! | `State::present`, `pages` | bytes in: `claims` (published), `pages`, `disk_tier::{reads, recall}`. Bytes out: `blocks` (evicted), `pass_through` (read by all) | object |
//! | bytes of a page | the flight that claimed them, through `landing`, before they are published | none: nobody else has them |
//! | `State::watchers` | `reader_watch` | object |
//! | `State::riders` | `reader` | object |
//! | `Rare::interim` | `interim`; `object` drops it when the head is known | object |
//! | `State::stalled`, `Rare::left_behind`, `passes_through` | `pass_through` | object |
//! | `Rare::stoppable` | `stop`; `claims` when a flight ends | object |
//! | `Rare::replaces` | `replacement` | shard, then object |
//! | `State::ties` | `revalidation` | object |
//! | `State::disk` | `disk_tier`; `blocks` and `pages` its `transient` | object |
//! | `State::notes` | `snapshot` | object |
//! | `State::setbacks` | `setbacks`; `claims` forgets those of bytes that arrived | object |
//! | `Object::checked` | `purges` | shard |
//! | purge rules | `purges`; `disk_tier::durable_purge` restores them from volumes | purge rules |
//! | charges on the ledger | `object_store::make_room`, and `Ledger::charge_anyway` for bytes that readers wait for | none |

mod arrange;
mod block_index;
mod blocks;
mod claim;
mod claims;
mod decisions;
pub mod disk_tier;
mod head;
mod interim;
mod landing;
mod ledger;
mod locked;
mod object;
mod object_store;
mod page;
mod pages;
mod pass_through;
mod purges;
mod rare;
mod reader;
mod reader_watch;
mod replacement;
mod resource_history;
mod revalidation;
mod setbacks;
mod slots;
mod snapshot;
mod stop;
mod sync;
mod table;
mod table_key;
#[cfg(test)]
mod tests;
mod watcher;
mod weight;

pub use arrange::{Arrangement, ObjectView};
pub use claim::{CLAIMS_MAX, Claim};
pub use decisions::{Decision, DecisionKind};
pub use head::{Head, Selected, VaryNames};
pub use landing::{Landing, Progress};
pub use locked::Locked;
pub use object::{Abandoned, Failure, Object, Phase, Revalidated};
#[cfg(test)]
pub use object_store::SHARD_LOCKS;
pub use object_store::{Options, Store};
pub use purges::{Full, Names, RULES_MAX, Rule, Swept, TEXT_MAX};
pub use reader::{Next, Opening, Reader};
pub use resource_history::{Refusal, ResourceHistory};
pub use setbacks::Setback;
pub use table_key::{TableKey, VARIANTS_MAX};
pub use watcher::Readers;
pub use weight::{block_weight, content_weight};
