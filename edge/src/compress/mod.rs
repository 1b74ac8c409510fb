//! Content in other codings: made once, off the workers, and kept in memory of its own for whoever asks
//! next. Files and cache ask through `handler::Encodings`; until it is there they give content as it is.

mod codec;
mod lines;
mod table;
mod types;
mod workshop;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use crate::handler::{Choice, Encoded, Encodings, Plain};
use crate::http::Fields;
use crate::http::coding::{Accepted, Coding};
use crate::http::conditional::{EntityTag, is_named};
use crate::http::wanted::{asks_for_less, only_range};
use crate::telemetry::{CompressNumbers, Counters};
use table::{Looked, Table};
pub use types::Types;
pub use workshop::Workshop;
use workshop::{Job, Queue};

/// `compress` of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which codings there are; of several that a client would have equally, the first.
    pub codings: SmallVec<[Coding; 3]>,
    /// Media types that are compressed.
    pub types: Types,
    /// Content shorter than this is not, bytes.
    pub min: u64,
    /// Content longer than this is not, bytes; nor what is longer than a quarter of `memory`.
    pub max: u64,
    /// How hard is tried.
    pub levels: Levels,
    /// Memory for content in codings, bookkeeping included, bytes.
    pub memory: u64,
    /// Whether origins are asked for content as it is, whatever clients accept.
    pub ask_plain: bool,
}

/// How hard codecs try: less content for more time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// 1 to 9.
    pub gzip: u32,
    /// 0 to 11.
    pub brotli: u32,
    /// 1 to 19.
    pub zstd: u32,
}

impl Default for Levels {
    /// Where twice the time buys less than two bytes in a hundred, by our measurement of text, code
    /// and HTML: what is made once may take a little longer than what is made for each request.
    fn default() -> Levels {
        Levels {
            gzip: 6,
            brotli: 6,
            zstd: 11,
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            codings: Coding::ALL.into_iter().collect(),
            types: Types::default(),
            min: 1 << 10,
            max: 8 << 20,
            levels: Levels::default(),
            memory: 64 << 20,
            ask_plain: false,
        }
    }
}

impl Options {
    /// Lengths of content that is compressed.
    pub fn sizes(&self) -> RangeInclusive<u64> {
        self.min..=self.max.min(self.memory / 4)
    }
}

/// Content in codings, of all routes that have the same options; shared by all workers.
pub struct Encoder {
    options: Options,
    table: Table,
    queue: Arc<Queue>,
    numbers: Numbers,
}

/// What became of what was to be compressed, since the start of an encoder.
#[derive(Default)]
struct Numbers {
    made: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    not_worth: AtomicU64,
    failed: AtomicU64,
    queue_full: AtomicU64,
}

impl Encoder {
    /// An empty one, whose work `workshop` does.
    pub fn new(options: Options, workshop: &Workshop) -> Arc<Encoder> {
        Arc::new(Encoder {
            table: Table::new(options.memory),
            options,
            queue: workshop.queue(),
            numbers: Numbers::default(),
        })
    }

    /// What it was made with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Its numbers now.
    pub fn numbers(&self) -> CompressNumbers {
        let number = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let held = self.table.held();
        CompressNumbers {
            contents: held.contents,
            bytes: held.bytes,
            limit: self.options.memory,
            evicted: held.evicted,
            made: number(&self.numbers.made),
            made_bytes_in: number(&self.numbers.bytes_in),
            made_bytes_out: number(&self.numbers.bytes_out),
            not_worth: number(&self.numbers.not_worth),
            failed: number(&self.numbers.failed),
            queue_full: number(&self.numbers.queue_full),
        }
    }

    /// How content is to be given whose id is not known, or was under other field lines.
    fn meet(
        self: &Arc<Encoder>,
        accepted: &Accepted,
        content: &Plain<'_>,
        is_known: bool,
    ) -> Choice {
        if !lines::is_eligible(&self.options, content.length, content.fields) {
            return Choice::Plain;
        }
        let varying = lines::varying(content.fields);
        if is_known {
            self.table.renew(content.id, content.fields, &varying);
            let order = &self.options.codings;
            let looked = self.table.look(content.id, content.fields, accepted, order);
            if let Looked::Known(choice, wish) = looked {
                self.make(content, wish);
                return choice;
            }
        }
        self.make(content, accepted.best(self.options.codings.iter().copied()));
        Choice::Varying(varying)
    }

    /// Has content made in a coding, where it can be had.
    fn make(self: &Arc<Encoder>, content: &Plain<'_>, coding: Option<Coding>) {
        let (Some(coding), true) = (coding, content.length.is_some()) else {
            return;
        };
        let Some(get) = (content.get)() else { return };
        let job = Job {
            encoder: self.clone(),
            id: content.id,
            coding,
            fields: content.fields.clone(),
            get,
        };
        if self.table.ask(content.id, content.fields, coding) && !self.queue.put(job) {
            self.numbers.queue_full.fetch_add(1, Ordering::Relaxed);
            self.table.unask(content.id, coding);
        }
    }
}

/// One worker's way to an encoder.
pub struct Handle {
    encoder: Arc<Encoder>,
    counters: Arc<Counters>,
}

impl Handle {
    /// To this one.
    pub fn new(encoder: Arc<Encoder>, counters: Arc<Counters>) -> Handle {
        Handle { encoder, counters }
    }
}

impl Encodings for Handle {
    #[inline]
    fn choose(&self, accepted: &Accepted, request: &Fields, content: &Plain<'_>) -> Choice {
        let encoder = &self.encoder;
        let order = &encoder.options.codings;
        let choice = match encoder
            .table
            .look(content.id, content.fields, accepted, order)
        {
            Looked::Known(choice, None) => choice,
            Looked::Known(choice, wish) => {
                encoder.make(content, wish);
                choice
            }
            Looked::Other => encoder.meet(accepted, content, true),
            Looked::Unknown => encoder.meet(accepted, content, false),
        };
        match choice {
            Choice::Coded(encoded)
                if asks_for_less(request) && goes_on_plain(request, content, &encoded) =>
            {
                Choice::Varying(lines::varying(content.fields))
            }
            Choice::Coded(encoded) => {
                self.counters.coded_served.add(1);
                Choice::Coded(encoded)
            }
            other => other,
        }
    }

    fn asks_for_plain(&self) -> bool {
        self.encoder.options.ask_plain
    }
}

/// Whether a client is better served with content as it is: it says that it has that, or a part of it,
/// or it wants a part of what has no name, so that it could not be told from a part of the other.
fn goes_on_plain(request: &Fields, content: &Plain<'_>, encoded: &Encoded) -> bool {
    let coded = encoded.etag.as_deref().and_then(EntityTag::parse);
    if only_range(request).is_some() && coded.is_none_or(|tag| tag.weak) {
        return true;
    }
    let is_named = |tag: Option<EntityTag<'_>>| tag.is_some_and(|tag| is_named(request, &tag));
    is_named(lines::etag(content.fields)) && !is_named(coded)
}

#[cfg(test)]
mod tests;
