//! The choice of what to request: targets in turn, numbers, popular objects, ranges, seeks, and logged requests.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::LoadPlan;
use super::range::Requested;
use super::schedule::Turn;
use crate::zipf::{SplitMix, Zipf};

/// Share of a player's requests after which the player jumps to another position.
const JUMPS: f64 = 0.05;

/// Choice of the requests of a load, beyond taking its targets in turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub enum Choice {
    /// Targets in turn, with numbers in turn in place of `{n}`.
    #[default]
    InTurn,
    /// Numbers from 0 in place of `{n}`, which follow Zipf's distribution.
    Zipf {
        /// Number of objects.
        objects: u32,
        /// Exponent of the distribution.
        exponent: f64,
    },
    /// Ranges of this many bytes at random positions of each target.
    Ranges {
        /// Length of a range in bytes.
        size: u64,
    },
    /// Consecutive ranges of this many bytes on each connection, and now and then a jump to a random position.
    Seeks {
        /// Length of a range in bytes.
        size: u64,
    },
    /// Logged requests at their times, in place of the targets of the plan. All threads of a load share them.
    Replay(#[serde(with = "shared")] Arc<[Replayed]>),
}

/// The form of shared logged requests outside of the program, which is that of a list.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::Replayed;

    pub(super) fn serialize<S: Serializer>(
        lines: &Arc<[Replayed]>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        lines.as_ref().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<[Replayed]>, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into())
    }
}

/// A logged request that is repeated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replayed {
    /// The request target.
    pub target: String,
    /// Seconds from the start of the load.
    pub at: f64,
    /// First and last byte of the range; without a last byte, the range ends with the resource.
    pub range: Option<(u64, Option<u64>)>,
}

/// A chosen request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    /// Index of the prepared or logged request.
    request: usize,
    /// Number in place of `{n}`.
    number: u64,
    /// First and last byte of the requested range.
    pub(super) range: Option<Requested>,
}

/// Maximum length in bytes of a target, and of all headers together. Within these bounds, a request fits into one frame
/// of HTTP/2.
const TARGET_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 7 << 10;

/// A request target, with a place for a number.
enum Target {
    Fixed(String),
    /// The text before and after the number.
    Numbered(String, String),
}

/// A player that reads one resource after another.
#[derive(Debug, Clone, Copy, Default)]
struct Player {
    /// Index of the target that it reads.
    request: usize,
    /// Position after its last range.
    next: u64,
}

/// The prepared requests of a load, and the state of their choice.
pub(super) struct Targets {
    choice: Choice,
    /// The thread's share of the logged requests.
    turn: Turn,
    /// None if the load repeats a log.
    requests: Vec<Target>,
    /// The bytes of an HTTP/1.1 request after its target, up to the empty line.
    rest: Vec<u8>,
    numbers: Option<(u64, u64)>,
    zipf: Option<Zipf>,
    random: SplitMix,
    /// Lengths of the resources, as far as the server has sent them with a range; 0: unknown.
    lengths: Vec<u64>,
    /// The player of each connection or stream.
    players: Vec<Player>,
    /// Number of times that a player has jumped.
    jumps: u64,
    scratch: Vec<u8>,
}

impl Targets {
    /// Prepares the requests of one thread of a load.
    ///
    /// Errors: a target or the headers are too long.
    pub(super) fn new(plan: &LoadPlan, turn: Turn) -> anyhow::Result<Targets> {
        let zipf = match plan.choice {
            Choice::Zipf { objects, exponent } => Some(Zipf::new(objects.max(1), exponent)),
            _ => None,
        };
        let is_numbered = plan.numbers.is_some() || zipf.is_some();
        let target = |path: &str| Target::new(path, is_numbered);
        let requests: Vec<Target> = match &plan.choice {
            Choice::Replay(lines) => {
                lines.iter().try_for_each(|line| check(&line.target))?;
                Vec::new()
            }
            _ => plan
                .paths
                .iter()
                .map(|path| target(path))
                .collect::<anyhow::Result<_>>()?,
        };
        let rest = rest(plan);
        let length = rest.len();
        anyhow::ensure!(
            length <= HEADERS_MAX,
            "the headers of a request have {length} bytes; the most are {HEADERS_MAX}"
        );
        let places = plan.connections.saturating_mul(plan.streams.unwrap_or(1));
        Ok(Targets {
            choice: plan.choice.clone(),
            turn,
            lengths: vec![0; requests.len()],
            requests,
            rest,
            numbers: plan.numbers,
            zipf,
            // The threads have different random numbers.
            random: SplitMix(turn.number + 1),
            players: vec![Player::default(); places],
            // Threads begin with different targets.
            jumps: turn.number,
            scratch: Vec::new(),
        })
    }

    /// Returns the time at which the thread's logged request with this number is due; `None` if the load repeats no log, or the log has ended.
    pub(super) fn logged_time(&self, number: u64) -> Option<Duration> {
        let Choice::Replay(lines) = &self.choice else {
            return None;
        };
        let line = lines.get(usize::try_from(self.turn.place(number)).ok()?)?;
        Duration::try_from_secs_f64(line.at).ok()
    }

    /// Returns the thread's number of logged requests, if the load repeats a log.
    pub(super) fn logged(&self) -> Option<u64> {
        match &self.choice {
            Choice::Replay(lines) => Some(self.turn.count(lines.len() as u64)),
            _ => None,
        }
    }

    /// Returns the thread's number of logged requests that are due before this time; `None` if the load repeats no log.
    pub(super) fn logged_before(&self, after: Duration) -> Option<u64> {
        let Choice::Replay(lines) = &self.choice else {
            return None;
        };
        let seconds = after.as_secs_f64();
        let whole = lines.partition_point(|line| line.at < seconds) as u64;
        Some(self.turn.count(whole))
    }

    /// Chooses the thread's request number `number`, which connection or stream `slot` sends.
    pub(super) fn choose(&mut self, number: u64, slot: usize) -> Chosen {
        let request = (number % self.requests.len().max(1) as u64) as usize;
        let (first, count) = self.numbers.unwrap_or((0, 1));
        let mut chosen = Chosen {
            request,
            number: first + number % count.max(1),
            range: None,
        };
        match &self.choice {
            Choice::InTurn => {}
            Choice::Zipf { .. } => {
                let unit = self.random.unit();
                let rank = self.zipf.as_ref().map_or(0, |zipf| zipf.rank(unit));
                chosen.number = rank.into();
            }
            Choice::Replay(lines) => {
                // The number of lines is within usize, so that a larger number finds no line.
                chosen.request = usize::try_from(self.turn.place(number)).unwrap_or(usize::MAX);
                chosen.range = lines.get(chosen.request).and_then(|line| line.range);
            }
            &Choice::Ranges { size } => {
                let begin = self.position(request, size);
                chosen.range = Some(self.range(request, begin, size));
            }
            &Choice::Seeks { size } => {
                let (request, begin) = self.seek(slot, size);
                chosen.request = request;
                chosen.range = Some(self.range(request, begin, size));
            }
        }
        chosen
    }

    /// Returns the target and the position that a player reads next. After a jump, that is the next target in turn.
    fn seek(&mut self, slot: usize, size: u64) -> (usize, u64) {
        let Player { request, next } = self.players.get(slot).copied().unwrap_or_default();
        let is_jump = next >= self.lengths[request] || self.random.unit() < JUMPS;
        let (request, begin) = match is_jump {
            true => {
                let request = (self.jumps % self.requests.len().max(1) as u64) as usize;
                self.jumps += 1;
                (request, self.position(request, size))
            }
            false => (request, next),
        };
        if let Some(player) = self.players.get_mut(slot) {
            let next = begin.saturating_add(size);
            *player = Player { request, next };
        }
        (request, begin)
    }

    /// Returns a random position within a resource; 0 while its length is unknown.
    fn position(&mut self, request: usize, size: u64) -> u64 {
        let last = self.lengths[request].saturating_sub(size);
        (self.random.unit() * (last + 1) as f64) as u64
    }

    /// Returns the range of `size` bytes from `begin` on, which ends with the resource at the latest.
    fn range(&self, request: usize, begin: u64, size: u64) -> Requested {
        let end = begin.saturating_add(size.max(1));
        let end = match self.lengths[request] {
            0 => end,
            length => end.min(length),
        };
        (begin, Some(end - 1))
    }

    /// Records the length of the resource that a response to this request has sent.
    pub(super) fn learn(&mut self, chosen: Chosen, length: u64) {
        if let Some(known) = self.lengths.get_mut(chosen.request) {
            *known = length;
        }
    }

    /// Returns the bytes of a chosen request over HTTP/1.1.
    pub(super) fn bytes(&mut self, chosen: Chosen) -> &[u8] {
        self.scratch.clear();
        self.scratch.extend_from_slice(b"GET ");
        self.write_target(chosen);
        self.scratch.extend_from_slice(&self.rest);
        if let Some(range) = chosen.range {
            self.scratch.extend_from_slice(b"Range: ");
            write_range(&mut self.scratch, range);
            self.scratch.extend_from_slice(b"\r\n");
        }
        self.scratch.extend_from_slice(b"\r\n");
        &self.scratch
    }

    /// Returns the target of a chosen request.
    pub(super) fn target(&mut self, chosen: Chosen) -> &[u8] {
        self.scratch.clear();
        self.write_target(chosen);
        &self.scratch
    }

    fn write_target(&mut self, chosen: Chosen) {
        if let Choice::Replay(lines) = &self.choice {
            let target = lines.get(chosen.request).map_or("", |line| &line.target);
            self.scratch.extend_from_slice(target.as_bytes());
        }
        match self.requests.get(chosen.request) {
            None => {}
            Some(Target::Fixed(target)) => self.scratch.extend_from_slice(target.as_bytes()),
            Some(Target::Numbered(before, after)) => {
                self.scratch.extend_from_slice(before.as_bytes());
                // Writing to a Vec can't fail.
                let _ = write!(self.scratch, "{}", chosen.number);
                self.scratch.extend_from_slice(after.as_bytes());
            }
        }
    }
}

/// Writes the value of the header Range.
pub(super) fn write_range(out: &mut Vec<u8>, (first, last): Requested) {
    // Writing to a Vec can't fail.
    let _ = match last {
        Some(last) => write!(out, "bytes={first}-{last}"),
        None => write!(out, "bytes={first}-"),
    };
}

impl Target {
    fn new(path: &str, is_numbered: bool) -> anyhow::Result<Target> {
        check(path)?;
        Ok(match path.split_once("{n}").filter(|_| is_numbered) {
            Some((before, after)) => Target::Numbered(before.to_owned(), after.to_owned()),
            None => Target::Fixed(path.to_owned()),
        })
    }
}

/// Checks the length of a target.
fn check(path: &str) -> anyhow::Result<()> {
    anyhow::ensure!(path.len() <= TARGET_MAX, "a target is longer than 8 KiB");
    Ok(())
}

/// Returns the bytes of an HTTP/1.1 request after its target, without the empty line.
fn rest(plan: &LoadPlan) -> Vec<u8> {
    let mut rest = format!(" HTTP/1.1\r\nHost: {}\r\n", plan.host);
    for (name, value) in &plan.headers {
        rest.push_str(&format!("{name}: {value}\r\n"));
    }
    if !plan.keepalive {
        rest.push_str("Connection: close\r\n");
    }
    rest.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(path: &str, choice: Choice) -> Targets {
        part_of(path, choice, Turn::new(0, 1))
    }

    fn part_of(path: &str, choice: Choice, turn: Turn) -> Targets {
        let plan = LoadPlan {
            choice,
            paths: path.split(' ').map(str::to_owned).collect(),
            connections: 2,
            host: "h".to_owned(),
            ..LoadPlan::new("127.0.0.1:1".parse().expect("an address"), "/")
        };
        Targets::new(&plan, turn).expect("a valid plan")
    }

    fn text(targets: &mut Targets, chosen: Chosen) -> String {
        String::from_utf8_lossy(targets.bytes(chosen)).into_owned()
    }

    #[test]
    fn ranges_are_random_once_the_length_is_known() {
        let mut targets = targets("/a", Choice::Ranges { size: 10 });
        let first = targets.choose(0, 0);
        assert_eq!(
            text(&mut targets, first),
            "GET /a HTTP/1.1\r\nHost: h\r\nRange: bytes=0-9\r\n\r\n"
        );
        targets.learn(first, 1000);
        let mut begins: Vec<u64> = Vec::new();
        for number in 1..200 {
            let (begin, end) = targets.choose(number, 0).range.expect("a range");
            assert_eq!(end, Some(begin + 9));
            assert!(begin <= 990);
            begins.push(begin);
        }
        begins.sort_unstable();
        begins.dedup();
        assert!(begins.len() > 100, "{begins:?}");
        targets.learn(first, 4);
        assert_eq!(targets.choose(1, 0).range, Some((0, Some(3))));
    }

    #[test]
    fn a_player_reads_on_and_jumps_now_and_then() {
        let mut targets = targets("/a", Choice::Seeks { size: 10 });
        let first = targets.choose(0, 0);
        targets.learn(first, 100_000);
        let mut next = 10;
        let mut jumps = 0;
        for number in 1..1000 {
            let (begin, _) = targets.choose(number, 0).range.expect("a range");
            jumps += u32::from(begin != next);
            next = begin + 10;
        }
        assert!((20..100).contains(&jumps), "{jumps}");
    }

    #[test]
    fn a_player_changes_the_target_only_when_it_jumps() {
        let mut targets = targets("/a /b /c", Choice::Seeks { size: 10 });
        for request in 0..3 {
            targets.learn(
                Chosen {
                    request,
                    ..Chosen::default()
                },
                100_000,
            );
        }
        // Two players take turns.
        let mut last: [Option<(usize, u64)>; 2] = [None; 2];
        let (mut continued, mut seen) = (0, [0; 3]);
        for number in 0..1000 {
            let slot = number as usize % 2;
            let chosen = targets.choose(number, slot);
            let (begin, _) = chosen.range.expect("a range");
            continued += u32::from(last[slot] == Some((chosen.request, begin)));
            seen[chosen.request] += 1;
            last[slot] = Some((chosen.request, begin + 10));
        }
        assert!((900..980).contains(&continued), "{continued}");
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
    }

    #[test]
    fn numbers_follow_the_distribution() {
        let zipf = Choice::Zipf {
            objects: 10,
            exponent: 1.0,
        };
        let mut targets = targets("/{n}.ts", zipf);
        let mut zeros = 0;
        for number in 0..1000 {
            let chosen = targets.choose(number, 0);
            assert!(chosen.number < 10);
            zeros += u32::from(text(&mut targets, chosen).starts_with("GET /0.ts "));
        }
        assert!((280..400).contains(&zeros), "{zeros}");
    }

    #[test]
    fn logged_requests_keep_their_times_and_ranges() {
        let line = |target: &str, at, range| Replayed {
            target: target.to_owned(),
            at,
            range,
        };
        let lines = [
            line("/a", 0.0, None),
            line("/{n}", 1.5, Some((7, None))),
            line("/c", 2.0, None),
        ];
        let choice = Choice::Replay(lines.into());
        let mut targets = targets("/", choice.clone());
        assert_eq!(targets.logged_time(1), Some(Duration::from_millis(1500)));
        assert_eq!(targets.logged_time(3), None);
        let second = targets.choose(1, 0);
        let sent = text(&mut targets, second);
        assert!(sent.starts_with("GET /{n} "), "{sent}");
        assert!(sent.ends_with("\r\nRange: bytes=7-\r\n\r\n"), "{sent}");
        // Two threads share the lines and take turns with them.
        let mut parts = [0, 1].map(|number| part_of("/", choice.clone(), Turn::new(number, 2)));
        assert_eq!(parts.each_ref().map(Targets::logged), [Some(2), Some(1)]);
        let before = Duration::from_secs(2);
        let logged_before = |part: &Targets| part.logged_before(before);
        assert_eq!(parts.each_ref().map(logged_before), [Some(1), Some(1)]);
        assert_eq!(parts[0].logged_time(1), Some(before));
        assert_eq!(parts[1].logged_time(1), None);
        let last = parts[0].choose(1, 0);
        assert_eq!(parts[0].target(last), b"/c");
    }
}
