//! Single requests and events: the URLs with the most requests, bytes, misses and
//! latency, and the recent errors and events.
//!
//! Each worker passes samples of its requests to one collecting thread through a queue of its own,
//! which drops samples when it is full. No request takes a lock for this, except one that is itself an event, such as a purge.

mod collector;
mod events_file;
mod json;
mod layer;
mod measure;
mod memory;
mod notice;
mod notices;
mod sample;
mod sampler;
mod space_saving;
mod tops;
mod url_mask;

pub use collector::Observed;
pub use json::json_text;
pub use layer::event_layer;
pub use measure::Measure;
pub use memory::{SHARED_BYTES_MAX, WORKER_BYTES_MAX};
pub use notice::Notice;
pub use notices::{NOTICES_MAX, Notices, installed, shown_url};
pub use sample::{Sample, SampleResult};
pub use sampler::Sampler;
pub use tops::MINUTES_MAX;
pub use url_mask::UrlMask;
