//! The last exchanges of one worker with the servers of one upstream, in a ring of fixed size.
//!
//! Only the worker writes, with plain stores. Another thread reads without a lock: the version of an entry is odd while the
//! entry is being written, so a reader notices that an entry has changed while it was read.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use super::exchange_record::{
    ClosedBy, ConnectionFacts, ExchangeRecord, ExchangeResult, Part, WORDS, begun, closed, decoded,
    ended,
};

/// Most and fewest exchanges of one ring. An entry takes 176 bytes.
const EXCHANGES_MAX: usize = 512;
const EXCHANGES_MIN: usize = 32;
/// Number of exchanges that all rings share. With more than 32 rings, each new one is smaller.
const EXCHANGES: usize = 32 * EXCHANGES_MAX;
/// Number of times that an entry is read before it is left out, since it changes all the time.
const TRIES: usize = 8;

/// Number of rings that have entries.
static RINGS: AtomicUsize = AtomicUsize::new(0);

/// The last exchanges of a worker with the servers of an upstream.
#[derive(Default)]
pub struct ExchangeRing {
    /// The entries, from the first exchange on.
    entries: OnceLock<Box<[Entry]>>,
    /// Number of exchanges so far.
    next: AtomicU64,
}

/// One exchange, which begins with its position in the sequence of all exchanges; 0 if there is none yet.
#[derive(Default)]
struct Entry {
    version: AtomicU64,
    position: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl ExchangeRing {
    /// Adds an exchange that begins, in place of the oldest one. Returns its position. Only the owning worker may call
    /// this.
    pub fn begin(
        &self,
        connection: &ConnectionFacts,
        nth: u32,
        began_us: u64,
        target: &[u8],
    ) -> u64 {
        let entries = self.entries.get_or_init(entries);
        let position = self.next.load(Ordering::Relaxed) + 1;
        self.next.store(position, Ordering::Relaxed);
        let words = begun(connection, nth, began_us, target);
        if let Some(entry) = entry_at(entries, position) {
            entry.write(position, (0, words));
        }
        position
    }

    /// Adds the result of the exchange at a position, unless others have replaced it. Only the owning worker may call this.
    pub fn end(&self, position: u64, result: &ExchangeResult) {
        if let Some(entry) = self.entry(position) {
            entry.write(position, ended(result));
        }
    }

    /// Adds to the exchange at a position, unless others have replaced it, that its connection was closed. Only the owning
    /// worker may call this.
    pub fn close(&self, position: u64, at_us: u64, by: ClosedBy) {
        if let Some(entry) = self.entry(position) {
            entry.write(position, closed(at_us, by));
        }
    }

    /// Returns the exchanges in the order in which they began, on any thread.
    pub fn read(&self) -> Vec<ExchangeRecord> {
        let entries = self.entries.get().map_or(&[][..], |entries| &entries[..]);
        let mut all: Vec<_> = entries.iter().filter_map(Entry::read).collect();
        all.sort_unstable_by_key(|(position, _)| *position);
        all.iter().map(|(_, words)| decoded(words)).collect()
    }

    /// Returns the entry that still has this exchange.
    fn entry(&self, position: u64) -> Option<&Entry> {
        let entry = entry_at(self.entries.get()?, position)?;
        (entry.position.load(Ordering::Relaxed) == position).then_some(entry)
    }
}

impl Drop for ExchangeRing {
    fn drop(&mut self) {
        if self.entries.get().is_some() {
            RINGS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn entries() -> Box<[Entry]> {
    let rings = RINGS.fetch_add(1, Ordering::Relaxed) + 1;
    let count = (EXCHANGES / rings).clamp(EXCHANGES_MIN, EXCHANGES_MAX);
    (0..count).map(|_| Entry::default()).collect()
}

fn entry_at(entries: &[Entry], position: u64) -> Option<&Entry> {
    entries.get((position % entries.len().max(1) as u64) as usize)
}

impl Entry {
    fn write<const N: usize>(&self, position: u64, (at, words): Part<N>) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        // Nobody sees the stores below without the odd version.
        fence(Ordering::Release);
        self.position.store(position, Ordering::Relaxed);
        for (to, word) in self.words.iter().skip(at).zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
    }

    /// Returns the position and the words.
    fn read(&self) -> Option<(u64, [u64; WORDS])> {
        for _ in 0..TRIES {
            let version = self.version.load(Ordering::Acquire);
            let position = self.position.load(Ordering::Relaxed);
            let words = std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed));
            // The loads above are done before the version is read again.
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return (position > 0).then_some((position, words));
            }
            std::hint::spin_loop();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::exchange_record::ExchangeEnd;
    use super::*;

    fn connection(number: u64) -> ConnectionFacts {
        ConnectionFacts {
            number,
            server: number,
            opened_us: number,
            ..ConnectionFacts::default()
        }
    }

    fn result(ended_us: u64) -> ExchangeResult {
        ExchangeResult {
            ended_us,
            status: 200,
            head_us: 1,
            bytes: ended_us,
            end: ExchangeEnd::Complete,
            reason: None,
        }
    }

    #[test]
    fn the_last_exchanges_are_kept_in_order() {
        let ring = ExchangeRing::default();
        assert!(ring.read().is_empty());
        let first = ring.begin(&connection(1), 1, 1, b"/first");
        let count = ring.entries.get().expect("entries").len() as u64;
        for n in 2..=count + 1 {
            ring.begin(&connection(n), 1, n, b"/");
        }
        ring.end(first, &result(5));
        ring.close(first, 5, ClosedBy::Sluice);
        let all = ring.read();
        let began: Vec<u64> = all.iter().map(|record| record.began_us).collect();
        assert_eq!(began, (2..=count + 1).collect::<Vec<_>>());
        assert!(
            all.iter()
                .all(|one| one.result.is_none() && one.closed.is_none())
        );
    }

    #[test]
    fn results_and_closes_belong_to_their_exchange() {
        let ring = ExchangeRing::default();
        let (a, b) = (
            ring.begin(&connection(1), 1, 1, b"/a"),
            ring.begin(&connection(2), 1, 2, b"/b"),
        );
        ring.end(b, &result(9));
        ring.close(a, 10, ClosedBy::Server);
        let all = ring.read();
        assert_eq!((all[0].result, all[1].result), (None, Some(result(9))));
        assert_eq!(
            (all[0].closed, all[1].closed),
            (Some((10, ClosedBy::Server)), None)
        );
        ring.end(99, &result(1));
    }

    #[test]
    fn a_reader_never_sees_parts_of_two_exchanges() {
        let ring = ExchangeRing::default();
        ring.begin(&connection(1), 1, 1, b"/");
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 2..200_000 {
                    let position =
                        ring.begin(&connection(n), n as u32, n, n.to_string().as_bytes());
                    ring.end(position, &result(n));
                }
            });
            while !writer.is_finished() {
                for record in ring.read() {
                    let n = record.began_us;
                    assert_eq!(record.connection, connection(n));
                    if n > 1 {
                        assert_eq!(
                            (record.nth, &record.path[..]),
                            (n as u32, n.to_string().as_bytes())
                        );
                    }
                    assert!(record.result.is_none_or(|found| found == result(n)));
                }
            }
        });
    }

    #[test]
    fn many_rings_are_smaller() {
        let rings: Vec<ExchangeRing> = (0..200).map(|_| ExchangeRing::default()).collect();
        for ring in &rings {
            ring.begin(&connection(1), 1, 1, b"/");
        }
        let sizes = rings
            .iter()
            .map(|ring| ring.entries.get().map_or(0, |all| all.len()));
        let sizes: Vec<usize> = sizes.collect();
        assert!(
            sizes[199] < EXCHANGES / 150 && sizes[199] >= EXCHANGES_MIN,
            "{sizes:?}"
        );
        assert!(
            sizes
                .iter()
                .all(|size| (EXCHANGES_MIN..=EXCHANGES_MAX).contains(size))
        );
    }
}
