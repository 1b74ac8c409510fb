//! The writer thread: assembles records into batches, passes them to the thread that writes to the device, and updates the index.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bytes::Bytes;

use super::batch::{Batch, Completion, Packer};
use super::compose::{Open, Origin, Pages, Record, fits, in_pages};
use super::device_writer::{self, Done, Job};
use super::format::record::Mark;
use super::mounted::{LOADED, Mounted, Position};
use super::queue::Item;
use super::recency;
use super::reclaim::Reclaim;
use super::types::{Id, Kind};

/// Approximate maximum size of a write in bytes.
const BATCH: u64 = 8 << 20;
/// Number of queued bytes from which on a batch is written at once.
const BATCH_BYTES_MIN: u64 = 1 << 20;
/// Longest time to wait for an item while the queue is empty.
const IDLE: Duration = Duration::from_secs(1);
/// Maximum number of batches passed to the other thread: one that is being written, and one that waits.
const BATCHES_AHEAD: usize = 2;
/// Fill level of the open segment, in thousandths, from which on the records of the next segment are read for copying.
const RECLAIM_FROM: u64 = 500;

/// Runs the writer thread until the queue is closed and empty, or the volume ends.
pub fn run(mounted: &Arc<Mounted>, open: Open) {
    let (jobs, to_write) = channel();
    let (done, written) = channel();
    let device_writer = {
        let mounted = Arc::clone(mounted);
        let write = move || device_writer::run(&mounted, &to_write, &done);
        std::thread::Builder::new()
            .name("volume-device".into())
            .spawn(write)
    };
    if let Err(error) = &device_writer {
        mounted.fail("no thread for writing", error);
    }
    let mut writer = Writer {
        mounted,
        open,
        packer: Packer::default(),
        line: VecDeque::new(),
        held: None,
        reclaim: None,
        jobs,
        written,
        under_way: 0,
        waits_since: None,
        batch: Batch::default(),
    };
    let work = AssertUnwindSafe(|| writer.work());
    if std::panic::catch_unwind(work).is_err() {
        mounted.end("a thread that writes has panicked");
    }
    writer.give_up();
    if let Ok(device_writer) = device_writer {
        let _ = device_writer.join();
    }
}

struct Writer<'a> {
    mounted: &'a Arc<Mounted>,
    open: Open,
    packer: Packer,
    /// Items taken from the queue and not yet in a batch.
    line: VecDeque<Item>,
    /// A record for which the open segment had no space: the first one of the next segment.
    held: Option<Record>,
    reclaim: Option<Reclaim>,
    jobs: Sender<Job>,
    written: Receiver<Done>,
    /// Number of writes that the other thread has not finished yet.
    under_way: usize,
    /// Time since which fewer than `BATCH_BYTES_MIN` bytes are queued, in microseconds.
    waits_since: Option<u64>,
    batch: Batch,
}

impl Writer<'_> {
    fn work(&mut self) {
        while !self.mounted.is_ended() {
            self.receive_completions();
            while self.under_way >= BATCHES_AHEAD {
                self.receive_completion();
            }
            if self.line.is_empty() && self.held.is_none() && !self.is_time() {
                continue;
            }
            let (waiting, flush, is_closed) = self.mounted.queue.waiting();
            let has_more = waiting > 0 || flush || !self.line.is_empty() || self.held.is_some();
            if is_closed && !has_more {
                self.finish();
                return;
            }
            self.write_some();
        }
    }

    /// Whether to write the queued items now. Waits a little for more items if not.
    fn is_time(&mut self) -> bool {
        let queue = &self.mounted.queue;
        let (waiting, flush, is_closed) = queue.waiting();
        if waiting >= BATCH_BYTES_MIN || flush || is_closed {
            self.waits_since = None;
            return true;
        }
        if waiting == 0 {
            self.waits_since = None;
            queue.wait(1, IDLE);
            return false;
        }
        let delay_us = self.mounted.context.options.write_delay.as_micros() as u64;
        let now = self.mounted.context.clock.monotonic_us();
        let waits = now.saturating_sub(*self.waits_since.get_or_insert(now));
        if waits >= delay_us {
            self.waits_since = None;
            return true;
        }
        queue.wait(BATCH_BYTES_MIN, Duration::from_micros(delay_us - waits));
        false
    }

    /// Assembles a batch and passes it to the other thread. If the open segment is full, continues in the next one.
    fn write_some(&mut self) {
        self.open.begin(self.mounted, &mut self.packer);
        let is_full = self.fill_batch();
        let mut batch = std::mem::take(&mut self.batch);
        self.open.end(self.mounted, &mut self.packer, &mut batch);
        if !batch.completions.is_empty() {
            self.hand_over(Job::Batch(batch));
        }
        if is_full {
            self.next_segment();
        }
    }

    /// Assembles records into the batch. Returns whether the open segment is full.
    fn fill_batch(&mut self) -> bool {
        while self.packer.length() < BATCH {
            let record = match self.held.take() {
                Some(record) => record,
                None => match self.next_record() {
                    Some(record) => record,
                    None => break,
                },
            };
            if let Some(record) = self.append(record) {
                self.held = Some(record);
                // Copied records may be smaller than `record` and still fit into the rest of the segment.
                while let Some(record) = self.next_to_rewrite() {
                    self.append(record);
                }
                return true;
            }
        }
        false
    }

    /// Adds a record to the batch. Returns the record if the open segment has no space for it. A copied record is dropped in that case: the
    /// next segment to be written is the record's old one, whose records are removed from the index before.
    fn append(&mut self, record: Record) -> Option<Record> {
        if let Err(error) = self.mounted.reserve(record.born_seq) {
            self.mounted.fail("the superblock can't be written", &error);
        }
        match self.open.append(self.mounted, &mut self.packer, record) {
            Ok(completion) => {
                let counters = &self.mounted.context.counters;
                match &completion {
                    Completion::Put { place, .. } => {
                        counters.records.add(u64::from(place.length()))
                    }
                    Completion::Moved { to, .. } => counters.rewritten.add(u64::from(to.length())),
                    _ => {}
                }
                self.batch.completions.push(completion);
                None
            }
            Err(record) => Some(*record).filter(|r| !matches!(r.origin, Origin::Moved(_))),
        }
    }

    /// Returns the next record to write.
    fn next_record(&mut self) -> Option<Record> {
        if let Some(record) = self.next_to_rewrite() {
            return Some(record);
        }
        loop {
            if self.line.is_empty() {
                self.line = self.mounted.queue.take(BATCH).into();
            }
            match self.line.pop_front()? {
                #[cfg(test)]
                Item::Flush(sender) => {
                    self.batch.sync = true;
                    self.batch.completions.push(Completion::Flush(sender));
                }
                Item::Tombstone { ticket, id } => return Some(tombstone(id, ticket)),
                Item::Put {
                    ticket,
                    weight,
                    id,
                    mut source,
                } => {
                    let segment = self.mounted.geometry.segment;
                    let content = source.record().map(|content| (content.meta, content.data));
                    let fitting = content.filter(|(meta, data)| fits(segment, meta.len(), data));
                    let Some((meta, data)) = fitting else {
                        self.mounted.queue.give_up(&id, weight);
                        source.done(false);
                        continue;
                    };
                    return Some(Record {
                        mark: Mark::Stored(id.kind),
                        id,
                        born_seq: source.born_seq(),
                        meta: meta.into(),
                        data: in_pages(data),
                        origin: Origin::Put {
                            ticket,
                            weight,
                            source,
                        },
                    });
                }
            }
        }
    }

    /// Returns the next record to copy from the segment that is overwritten next, if it is time to copy records.
    fn next_to_rewrite(&mut self) -> Option<Record> {
        let segment = self.mounted.geometry.segment;
        let is_full = self.held.is_some();
        if !is_full && self.open.fullness(segment) < RECLAIM_FROM {
            return None;
        }
        let result = match self.reclaim.take() {
            Some(reclaim) => Ok(reclaim),
            None => Reclaim::begin(self.mounted, self.next_position()),
        };
        let record = result.and_then(|reclaim| {
            let reclaim = self.reclaim.insert(reclaim);
            match is_full || reclaim.is_time(self.open.room(segment)) {
                true => reclaim.next_record(self.mounted),
                false => Ok(None),
            }
        });
        record.unwrap_or_else(|error| {
            self.mounted.fail("what was read can't be kept", &error);
            None
        })
    }

    fn next_segment(&mut self) {
        let (at, bytes) = self.open.seal(self.mounted);
        let next = self.next_position();
        let begin = self
            .mounted
            .geometry
            .segment_place(self.open.position.segment);
        self.hand_over(Job::Seal {
            place: begin + at,
            bytes,
            next,
        });
        // All writes must end first, for two reasons: the index must contain the new locations of copied records before the old ones are
        // removed, and after a power failure the log must not end in the segment that is overwritten.
        while self.under_way > 0 {
            self.receive_completion();
        }
        let reclaim = match self.reclaim.take() {
            Some(reclaim) => Ok(reclaim),
            None => Reclaim::begin(self.mounted, next),
        };
        match reclaim {
            Ok(reclaim) => reclaim.finish(self.mounted),
            Err(error) => self.mounted.fail("a table can't be read", &error),
        }
        self.open = Open::empty(next, self.open.last_seq());
    }

    fn next_position(&self) -> Position {
        self.open.position.next(self.mounted.geometry.segments)
    }

    fn hand_over(&mut self, job: Job) {
        self.under_way += 1;
        if let Err(unsent) = self.jobs.send(job) {
            self.conclude(Done {
                job: unsent.0,
                written: false,
            });
        }
    }

    fn receive_completions(&mut self) {
        while let Ok(done) = self.written.try_recv() {
            self.conclude(done);
        }
    }

    fn receive_completion(&mut self) {
        match self.written.recv() {
            Ok(done) => self.conclude(done),
            // The other thread ends before this one only by a panic.
            Err(_) => {
                self.mounted.end("the thread that writes is gone");
                self.under_way = 0;
            }
        }
    }

    /// Updates the index and notifies the callers after a write has completed.
    fn conclude(&mut self, done: Done) {
        self.under_way = self.under_way.saturating_sub(1);
        if let Job::Batch(batch) = done.job {
            let now = self.mounted.now();
            for completion in batch.completions {
                notify(self.mounted, completion, done.written, now);
            }
            self.packer.recycle(batch.pieces);
        }
    }

    /// Writes the recency of records, and marks the volume as properly closed.
    fn finish(&mut self) {
        // All writes must end first, since they change the locations whose recency is written.
        while self.under_way > 0 {
            self.receive_completion();
        }
        if self.mounted.loaded() == LOADED {
            for data in recency::of(self.mounted) {
                self.held = Some(recency_record(self.mounted, data));
                while self.held.is_some() && !self.mounted.is_ended() {
                    self.write_some();
                }
            }
        }
        // Tombstones that were queued meanwhile are still written.
        while !self.mounted.is_ended() {
            let is_behind = self.held.is_some() || !self.line.is_empty();
            if !is_behind && self.mounted.queue.end_if_empty() {
                break;
            }
            self.write_some();
        }
        if self.mounted.loaded() == LOADED {
            self.hand_over(Job::Clean);
        }
        while self.under_way > 0 {
            self.receive_completion();
        }
    }

    /// Notifies all waiting callers that nothing more is written.
    fn give_up(&mut self) {
        self.mounted.queue.end();
        // Dropping the channel's sender ends the other thread.
        self.jobs = channel().0;
        while let Ok(done) = self.written.recv() {
            self.conclude(done);
        }
        let held = self.held.take().map(|record| record.origin);
        if let Some(Origin::Put { source, .. }) = held {
            source.done(false);
        }
        let completions = std::mem::take(&mut self.batch.completions);
        for completion in completions {
            notify(self.mounted, completion, false, 0);
        }
        let waiting = self.mounted.queue.take(u64::MAX);
        for item in self.line.drain(..).chain(waiting) {
            if let Item::Put { source, .. } = item {
                source.done(false);
            }
        }
    }
}

/// Updates the index after a write, and notifies the caller that waits for it.
fn notify(mounted: &Mounted, completion: Completion, written: bool, now: u32) {
    match completion {
        Completion::Put {
            ticket,
            weight,
            id,
            place,
            source,
        } if written => {
            let insert = || mounted.index.insert(&id, place, now);
            let stands = mounted.queue.settle(&id, ticket, weight, insert);
            source.done(stands);
        }
        Completion::Put {
            weight, id, source, ..
        } => {
            mounted.queue.give_up(&id, weight);
            source.done(false);
        }
        Completion::Moved { id, from, to } if written => {
            mounted.index.move_if(mounted.index.key(&id), from, to);
        }
        Completion::Tombstone { ticket, id } => mounted.queue.settle_tombstone(&id, ticket),
        #[cfg(test)]
        Completion::Flush(sender) if written => drop(sender.send(())),
        #[cfg(test)]
        Completion::Flush(_) => {}
        Completion::Moved { .. } | Completion::None => {}
    }
}

fn tombstone(id: Id, ticket: u64) -> Record {
    Record {
        mark: Mark::Tombstone(id.kind),
        id,
        born_seq: u64::MAX,
        meta: Bytes::new(),
        data: Pages::new(),
        origin: Origin::Tombstone(ticket),
    }
}

fn recency_record(mounted: &Mounted, data: Bytes) -> Record {
    Record {
        mark: Mark::Recency,
        id: Id {
            space: 0,
            key: 0,
            // Identifies the run that wrote the recency: the next run uses only records with this number.
            version: mounted.superblock().sequence,
            part: 0,
            kind: Kind::Head,
        },
        born_seq: u64::MAX,
        meta: Bytes::new(),
        data: in_pages(Pages::from_iter([data])),
        origin: Origin::Own,
    }
}
