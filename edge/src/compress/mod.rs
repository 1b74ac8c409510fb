//! Compression of stored content: each content is compressed once, outside the workers, and kept in
//! memory for later requests. Files and cache use it through `handler::Encodings`; until the
//! compressed form exists they send the original.

mod codec;
mod lines;
mod options;
mod table;
mod types;
mod worker_pool;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::handler::{Choice, Encoded, Encodings, Identity};
use crate::http::Fields;
use crate::http::coding::{Accepted, Coding};
use crate::http::conditional::{EntityTag, is_named};
use crate::http::wanted::{has_condition_or_range, only_range};
use crate::telemetry::{CompressNumbers, Counters};
pub use options::{Levels, Options};
use table::{Lookup, Table, Urgency};
pub use types::Types;
pub use worker_pool::WorkerPool;
use worker_pool::{Job, JobOwner, Numbers, Queue};

/// The compressed content of all routes with equal compression options, shared by all workers.
pub struct Encoder {
    options: Options,
    table: Table,
    queue: Arc<Queue>,
    numbers: Numbers,
}

impl Encoder {
    /// Creates an encoder without compressed content. `worker_pool` runs its compression jobs.
    pub fn new(options: Options, worker_pool: &WorkerPool) -> Arc<Encoder> {
        Arc::new(Encoder {
            table: Table::new(options.memory),
            options,
            queue: worker_pool.queue(),
            numbers: Numbers::default(),
        })
    }

    /// Returns the compression options of the encoder.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the encoder's current counters and memory use.
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

    /// Handles a lookup of content whose id is not in the table, or is there with other header
    /// lines.
    fn look_up_again(
        self: &Arc<Encoder>,
        accepted: &Accepted,
        content: &Identity<'_>,
        is_known: bool,
    ) -> Choice {
        if !lines::is_eligible(&self.options, content.length, content.fields) {
            return Choice::Identity;
        }
        let varying = lines::varying(content.fields);
        if is_known {
            self.table.renew(content.id, content.fields, &varying);
            let order = &self.options.encodings;
            let lookup = self
                .table
                .look_up(content.id, content.fields, accepted, order);
            if let Lookup::Known(choice, missing) = lookup {
                self.make(content, missing);
                return choice;
            }
        }
        self.make(
            content,
            accepted.best(self.options.encodings.iter().copied()),
        );
        Choice::Varying(varying)
    }

    /// Queues a job that compresses the content with `coding`, for a request. If the content is
    /// incomplete, the encoding is marked as wanted instead: see [`Encoder::complete`].
    fn make(self: &Arc<Encoder>, content: &Identity<'_>, coding: Option<Coding>) {
        if let Some(coding) = coding {
            self.queue_job(content, coding, Urgency::Again);
        }
    }

    fn queue_job(self: &Arc<Encoder>, content: &Identity<'_>, coding: Coding, urgency: Urgency) {
        let get = || content.length.and_then(|_| (content.get)());
        // The second attempt is for content that became complete before it was marked.
        let Some(get) = get().or_else(|| {
            self.table.mark_wanted(content.id, content.fields, coding);
            get()
        }) else {
            return;
        };
        let job = Job {
            owner: self.clone(),
            id: content.id,
            coding,
            fields: content.fields.clone(),
            get,
        };
        let (id, fields) = (content.id, content.fields);
        if self.table.mark_queued(id, fields, coding, urgency) && !self.queue.put(job, urgency) {
            self.numbers.queue_full.fetch_add(1, Ordering::Relaxed);
            self.table.unmark_queued(content.id, coding);
        }
    }
}

impl Encoder {
    /// Queues jobs for the encodings that are marked as wanted. The content is complete now, so its
    /// length is known.
    fn complete(self: &Arc<Encoder>, content: &Identity<'_>) {
        let wanted = self.table.wanted(content.id, &self.options.encodings);
        if wanted.is_empty() || !lines::is_eligible(&self.options, content.length, content.fields) {
            return;
        }
        for coding in wanted {
            self.queue_job(content, coding, Urgency::First);
        }
    }
}

impl JobOwner for Encoder {
    fn levels(&self) -> Levels {
        self.options.levels
    }

    fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    fn table(&self) -> &Table {
        &self.table
    }
}

/// One worker's access to an encoder, with that worker's counters.
pub struct Handle {
    encoder: Arc<Encoder>,
    counters: Arc<Counters>,
}

impl Handle {
    /// Creates a worker's handle to an encoder.
    pub fn new(encoder: Arc<Encoder>, counters: Arc<Counters>) -> Handle {
        Handle { encoder, counters }
    }
}

impl Encodings for Handle {
    #[inline]
    fn choose(&self, accepted: &Accepted, request: &Fields, content: &Identity<'_>) -> Choice {
        let encoder = &self.encoder;
        let order = &encoder.options.encodings;
        let choice = match encoder
            .table
            .look_up(content.id, content.fields, accepted, order)
        {
            Lookup::Known(choice, None) => choice,
            Lookup::Known(choice, missing) => {
                encoder.make(content, missing);
                choice
            }
            Lookup::OtherFields => encoder.look_up_again(accepted, content, true),
            Lookup::Unknown => encoder.look_up_again(accepted, content, false),
        };
        match choice {
            Choice::Coded(encoded)
                if has_condition_or_range(request)
                    && needs_identity(request, content, &encoded) =>
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

    fn complete(&self, content: &Identity<'_>) {
        self.encoder.complete(content);
    }

    fn requests_identity(&self) -> bool {
        self.encoder.options.request_identity
    }
}

/// Whether the client must get the uncompressed content: its conditions name the uncompressed ETag,
/// or the request is for a range of content without a strong ETag. The client could not distinguish
/// such a range from a range of the compressed content.
fn needs_identity(request: &Fields, content: &Identity<'_>, encoded: &Encoded) -> bool {
    let coded = encoded.etag.as_deref().and_then(EntityTag::parse);
    if only_range(request).is_some() && coded.is_none_or(|tag| tag.weak) {
        return true;
    }
    let is_named = |tag: Option<EntityTag<'_>>| tag.is_some_and(|tag| is_named(request, &tag));
    is_named(lines::etag(content.fields)) && !is_named(coded)
}

#[cfg(test)]
mod tests;
