//! The requests of an access log that `--replay` repeats, and the lines that are left out.

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::time::Duration;

use serde::Serialize;
use sluice_lab::access_log::{TimedRequest, Unusable, parse_timed};
use sluice_lab::load::Replayed;

use crate::config::{show_count, show_time};

/// Largest log, in bytes.
const LOG_MAX: u64 = 1 << 30;
/// Longest line, in bytes.
const LINE_MAX: usize = 64 << 10;
/// Most requests that are repeated.
const REQUESTS_MAX: usize = 2_000_000;
/// Longest target that is repeated, in bytes.
const TARGET_MAX: usize = 8 << 10;
/// Longest time between two requests, in seconds of the log. A wrong clock could otherwise stop the load for years.
const GAP_MAX: f64 = 3600.0;

/// Time of a replay above which a remark says how long it takes.
const LONG: Duration = Duration::from_secs(60);

/// The reason for which a line is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOut {
    /// The line is not UTF-8.
    Encoding,
    /// The line or its target is too long.
    Long,
    /// The log has more requests than are repeated.
    Surplus,
    /// The request can't be repeated.
    #[serde(untagged)]
    Unusable(Unusable),
}

impl LeftOut {
    /// Returns the reason as it follows the number of lines.
    fn text(self) -> &'static str {
        match self {
            LeftOut::Encoding => "not UTF-8",
            LeftOut::Long => "too long (64 KiB, or a target of 8 KiB)",
            LeftOut::Surplus => "after the first 2000000 requests",
            LeftOut::Unusable(Unusable::Format) => "neither in the combined format nor JSON",
            LeftOut::Unusable(Unusable::Request) => {
                "with another method than GET, or another status than 200, 206 and 304"
            }
            LeftOut::Unusable(Unusable::Target) => "with a target that can't be requested",
            LeftOut::Unusable(Unusable::Time) => "without a time from 1970 to 9999",
            LeftOut::Unusable(Unusable::Range) => "with a range that can't be requested",
        }
    }
}

/// A log as it is repeated.
#[derive(Debug, Default, Serialize)]
pub struct Log {
    /// The requests in the order of their times.
    #[serde(skip)]
    pub requests: Vec<Replayed>,
    /// Numbers of lines that are left out, by reason.
    pub left_out: BTreeMap<LeftOut, u64>,
    /// Number of gaps between two requests that are shortened to an hour.
    pub gaps_shortened: u64,
}

impl Log {
    /// Reads a log to its end. The replay runs `speed` times as fast as the log.
    ///
    /// # Errors
    ///
    /// Reading failed, or the log is too large.
    pub fn read(mut from: impl BufRead, speed: f64) -> io::Result<Log> {
        let mut log = Log::default();
        let mut requests = Vec::new();
        let mut line = Vec::new();
        let mut bytes = 0;
        while let Some(length) = read_line(&mut from, &mut line)? {
            bytes += length;
            if bytes > LOG_MAX {
                let message = "the log has more than 1 GiB";
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
            }
            match request(&line) {
                Ok(request) if requests.len() < REQUESTS_MAX => requests.push(request),
                Ok(_) => log.leave_out(LeftOut::Surplus),
                Err(reason) => log.leave_out(reason),
            }
        }
        log.schedule(requests, speed);
        Ok(log)
    }

    fn leave_out(&mut self, reason: LeftOut) {
        *self.left_out.entry(reason).or_default() += 1;
    }

    /// Sorts the requests by their times, and shortens long gaps.
    fn schedule(&mut self, mut requests: Vec<TimedRequest>, speed: f64) {
        sort_and_spread(&mut requests);
        let mut before = requests.first().map_or(0.0, |request| request.time);
        let mut at = 0.0;
        self.requests.reserve_exact(requests.len());
        for request in requests {
            let gap = request.time - before;
            before = request.time;
            self.gaps_shortened += u64::from(gap > GAP_MAX);
            at += gap.min(GAP_MAX);
            self.requests.push(Replayed {
                target: request.target,
                at: at / speed,
                range: request.range,
            });
        }
    }

    /// Returns a remark on a replay that takes long, before it begins.
    pub fn remark(&self) -> Option<String> {
        let seconds = self.requests.last()?.at;
        let time = Duration::try_from_secs_f64(seconds.round()).ok()?;
        (time > LONG).then(|| {
            let takes = show_time(time);
            format!("the replay takes {takes}; --speed and --duration make it shorter")
        })
    }

    /// Returns the number of lines that are left out.
    pub fn left_out_total(&self) -> u64 {
        self.left_out.values().sum()
    }

    /// Describes what is not repeated as it was logged; empty if there is nothing.
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        if !self.left_out.is_empty() {
            let reasons = self.left_out.iter();
            let reasons: Vec<String> = reasons
                .map(|(reason, count)| format!("{count} {}", reason.text()))
                .collect();
            let lines = show_count(self.left_out_total(), "line");
            parts.push(format!("{lines} left out: {}", reasons.join(", ")));
        }
        if self.gaps_shortened > 0 {
            let gaps = show_count(self.gaps_shortened, "gap");
            parts.push(format!("{gaps} shortened to 1 hour"));
        }
        parts.join("; ")
    }
}

/// Sorts the requests by their times. Those of which the log has only the second are spread evenly over this second: if
/// they were all due at its beginning, they would wait for one another.
fn sort_and_spread(requests: &mut [TimedRequest]) {
    let by_time = |one: &TimedRequest, other: &TimedRequest| one.time.total_cmp(&other.time);
    requests.sort_by(by_time);
    for same in requests.chunk_by_mut(|one, other| by_time(one, other).is_eq()) {
        let coarse = |request: &&mut TimedRequest| request.is_whole_second;
        let count = same.iter().filter(|one| one.is_whole_second).count();
        for (number, request) in same.iter_mut().filter(coarse).enumerate() {
            request.time += number as f64 / count as f64;
        }
    }
    requests.sort_by(by_time);
}

fn request(line: &[u8]) -> Result<TimedRequest, LeftOut> {
    if line.len() > LINE_MAX {
        return Err(LeftOut::Long);
    }
    let text = std::str::from_utf8(line).map_err(|_| LeftOut::Encoding)?;
    let request = parse_timed(text.trim_end()).map_err(LeftOut::Unusable)?;
    match request.target.len() <= TARGET_MAX {
        true => Ok(request),
        false => Err(LeftOut::Long),
    }
}

/// Reads a line into `line`: of a line that is too long, only the first `LINE_MAX` + 1 bytes. Returns the length of the
/// line with its end, or `None` at the end of the log.
fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<u64>> {
    line.clear();
    let mut length = 0;
    loop {
        let bytes = match from.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let content = &bytes[..end.unwrap_or(bytes.len())];
        let room = (LINE_MAX + 1).saturating_sub(line.len());
        line.extend_from_slice(&content[..content.len().min(room)]);
        let used = content.len() + usize::from(end.is_some());
        from.consume(used);
        length += used as u64;
        // A line without an end could be longer than any log.
        if end.is_some() || length > LOG_MAX {
            return Ok(Some(length));
        }
        if used == 0 {
            return Ok((length > 0).then_some(length));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(time: &str, target: &str) -> String {
        format!("::1 - - [{time} +0000] \"GET {target} HTTP/1.1\" 200 5 \"-\" \"x\"\n")
    }

    fn read(log: &[u8], speed: f64) -> Log {
        // A small buffer, so that lines are read in pieces.
        let from = io::BufReader::with_capacity(100, log);
        Log::read(from, speed).expect("a log")
    }

    fn times(log: &Log) -> Vec<(&str, f64)> {
        let requests = log.requests.iter();
        requests.map(|one| (one.target.as_str(), one.at)).collect()
    }

    #[test]
    fn requests_are_sorted_and_sped_up() {
        let late = line("10/Oct/2000:13:55:40", "/late");
        let early = line("10/Oct/2000:13:55:36", "/early");
        let log = read(format!("{late}garbage\n{early}").as_bytes(), 2.0);
        assert_eq!(times(&log), [("/early", 0.0), ("/late", 2.0)]);
        assert_eq!(log.left_out_total(), 1);
    }

    #[test]
    fn requests_of_one_whole_second_are_spread_over_it() {
        let mut log = String::new();
        for target in ["/a", "/b", "/c", "/d"] {
            log += &line("10/Oct/2000:13:55:36", target);
        }
        log += &line("10/Oct/2000:13:55:38", "/last");
        for time in ["36.000", "36.000", "36.600"] {
            log += &format!(
                "{{\"time\":\"2000-10-10T13:55:{time}Z\",\"method\":\"GET\",\"target\":\"/json\",\"status\":200}}\n"
            );
        }
        let log = read(log.as_bytes(), 2.0);
        let expected = [
            ("/a", 0.0),
            ("/json", 0.0),
            ("/json", 0.0),
            ("/b", 0.125),
            ("/c", 0.25),
            ("/json", 0.3),
            ("/d", 0.375),
            ("/last", 1.0),
        ];
        let found = times(&log);
        assert_eq!(found.len(), expected.len());
        for (one, other) in found.into_iter().zip(expected) {
            assert_eq!(one.0, other.0);
            assert!((one.1 - other.1).abs() < 1e-6, "{one:?} {other:?}");
        }
    }

    #[test]
    fn unreadable_and_endless_lines_are_left_out_and_counted() {
        let good = line("10/Oct/2000:13:55:36", "/a");
        let long = line(
            "10/Oct/2000:13:55:36",
            &format!("/{}", "x".repeat(TARGET_MAX)),
        );
        let mut log = b"\xff\xfe \xff\n".to_vec();
        log.extend_from_slice(&vec![b'x'; 3 * LINE_MAX]);
        log.extend_from_slice(format!("\n{good}{long}{}", good.trim_end()).as_bytes());
        let log = read(&log, 1.0);
        assert_eq!(times(&log), [("/a", 0.0), ("/a", 0.5)]);
        let left_out = [(LeftOut::Encoding, 1), (LeftOut::Long, 2)];
        assert_eq!(log.left_out, left_out.into());
        assert_eq!(
            log.describe(),
            "3 lines left out: 1 not UTF-8, 2 too long (64 KiB, or a target of 8 KiB)"
        );
        assert!(read(b"", 1.0).requests.is_empty());
    }

    #[test]
    fn a_wrong_clock_does_not_stop_the_load() {
        let log = [
            line("01/Jan/1970:00:00:00", "/first"),
            line("31/Dec/9999:23:59:59", "/last"),
            line("10/Oct/2000:13:55:36", "/a"),
            line("10/Oct/2000:13:55:30", "/back"),
        ];
        let log = read(log.concat().as_bytes(), 0.001);
        let hour = 3_600_000.0;
        assert_eq!(
            times(&log),
            [
                ("/first", 0.0),
                ("/back", hour),
                ("/a", hour + 6000.0),
                ("/last", 2.0 * hour + 6000.0)
            ]
        );
        assert_eq!(log.gaps_shortened, 2);
        let remark = log.remark().expect("a long replay");
        assert!(remark.contains("--speed"), "{remark}");
        assert_eq!(Log::default().remark(), None);
        assert!(log.describe().contains("2 gaps shortened"), "{log:?}");
    }

    #[test]
    fn reasons_have_names_in_json() {
        let log = read(b"\xff\ngarbage\n", 1.0);
        let json = serde_json::to_value(&log).expect("JSON");
        let expected = serde_json::json!({
            "left_out": { "encoding": 1, "format": 1 },
            "gaps_shortened": 0,
        });
        assert_eq!(json, expected);
    }
}
