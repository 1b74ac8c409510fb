//! Upper bounds of the memory that samples, top URLs and events take.

use super::collector::QUEUE;
use super::measure::Measure;
use super::notice::Notice;
use super::notices::{MESSAGE_MAX, NOTICES_MAX};
use super::sample::{RAW_MAX, Sample};
use super::space_saving::Listed;
use super::tops::{COUNTED, KEPT, MINUTES_MAX};
use super::url_mask::URL_MAX;

/// Most memory of a URL with its sums in bytes, with the counts of its text and its places in tables.
const LISTED: usize = size_of::<Listed>() + URL_MAX + 64;
/// Most memory of a notice, in bytes.
const NOTICE: usize = size_of::<Notice>() + MESSAGE_MAX + URL_MAX;
/// Most memory of a sample, in bytes, with its places in both queues.
const SAMPLE: usize = size_of::<Sample>() + RAW_MAX + 2 * size_of::<Box<Sample>>();

/// Most memory of top URLs and notices, in bytes. Summaries of `MINUTES_MAX` minutes and of one more are kept.
pub const SHARED_BYTES_MAX: usize =
    Measure::ALL.len() * ((MINUTES_MAX + 1) * KEPT + COUNTED) * LISTED + 2 * NOTICES_MAX * NOTICE;

/// Most memory of one worker's samples that wait or are spare, in bytes.
pub const WORKER_BYTES_MAX: usize = 2 * QUEUE * SAMPLE;
