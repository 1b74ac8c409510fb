//! One client of the storm: asks, reads, and judges what came.

use std::net::IpAddr;
use std::time::Instant;

use super::mix::{Ask, Form};
use super::tally::Tally;
use super::{Weather, path};
use crate::client::{Client, ContentRange, ReadError, Reply};
use crate::noise;

/// What a response is worth. What it says of itself is believed only as far as it agrees with what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All bytes, and all right.
    Right,
    /// A byte that does not belong there, in the version that the response names.
    Wrong(String),
    /// No response, or one that is no answer to the request.
    Failed(String),
    /// Ended before its announced end; what came is right.
    Cut,
}

pub(super) struct Asking<'a> {
    weather: &'a Weather<'a>,
    source: IpAddr,
    connection: Option<Client>,
    tally: Tally,
}

impl<'a> Asking<'a> {
    pub(super) fn new(weather: &'a Weather<'a>, source: IpAddr) -> Asking<'a> {
        Asking {
            weather,
            source,
            connection: None,
            tally: Tally::default(),
        }
    }

    /// Asks until there is nothing more to ask.
    pub(super) fn run(mut self) -> Tally {
        while let Some(number) = self.weather.next() {
            let options = self.weather.options;
            let any_size = options.whole_of_any_size;
            let ask = Ask::draw(options.seed, number, self.weather.files, any_size);
            let asked = Instant::now();
            match self.exchange(&ask) {
                Ok(reply) => self.judged(&ask, &reply, asked),
                Err(error) => {
                    self.connection = None;
                    let why = format!("{}: {error}", path(ask.file));
                    self.tally.count(Verdict::Failed(why));
                }
            }
        }
        self.tally
    }

    fn exchange(&mut self, ask: &Ask) -> Result<Reply, ReadError> {
        let mut client = match self.connection.take() {
            Some(client) => client,
            None => Client::connect_with(self.weather.server, &self.weather.client(self.source))?,
        };
        let range = ask.range();
        let field = range.as_deref().map(|value| ("Range", value));
        let reply = client.get(&path(ask.file), field.as_slice())?;
        let closes = reply
            .header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if !closes && !reply.truncated() {
            self.connection = Some(client);
        }
        Ok(reply)
    }

    fn judged(&mut self, ask: &Ask, reply: &Reply, asked: Instant) {
        self.tally.bytes += reply.body.len() as u64;
        let (verdict, version) = judge(ask, reply);
        let verdict = match version {
            Some(version) if !self.weather.exists(ask.file, version) => {
                Verdict::Failed(format!("{}: version {version} never was", path(ask.file)))
            }
            _ => verdict,
        };
        if let Some(version) = version {
            let slice = self.weather.options.slice;
            self.tally.touch(ask.file, version, &ask.bytes, slice);
            if self.weather.stale(ask.file, version, asked) {
                self.tally.stale += 1;
            }
        }
        self.tally.count(verdict);
    }
}

/// What a reply is worth, and the version that it names.
fn judge(ask: &Ask, reply: &Reply) -> (Verdict, Option<u32>) {
    let failed = |why: String| (Verdict::Failed(format!("{}: {why}", path(ask.file))), None);
    let (start, expected) = match reply.status {
        // Whoever asks for a range must put up with the whole (RFC 9110, 14.2).
        200 => (0, ask.length),
        206 if ask.form != Form::Whole => (ask.bytes.start, ask.bytes.end - ask.bytes.start),
        status => return failed(format!("status {status}")),
    };
    let announced = (reply.status == 206).then_some(ContentRange {
        first: ask.bytes.start,
        last: ask.bytes.end - 1,
        complete: Some(ask.length),
    });
    if reply.content_range() != announced {
        let field = reply.header("content-range");
        return failed(format!("Content-Range {field:?} to {:?}", ask.range()));
    }
    let tag = reply.header("etag");
    let Some(version) = tag.and_then(|tag| version(tag, ask.length)) else {
        return failed(format!("ETag {tag:?}"));
    };
    let verdict = match noise::verify(ask.file as u64, version, start, &reply.body) {
        Err(wrong) => Verdict::Wrong(format!(
            "{}: byte {} of a response from {start} on is not version {version}'s",
            path(ask.file),
            wrong.position
        )),
        Ok(()) if reply.truncated() => Verdict::Cut,
        Ok(()) if reply.body.len() as u64 != expected => {
            return failed(format!("{} bytes, not {expected}", reply.body.len()));
        }
        Ok(()) => Verdict::Right,
    };
    (verdict, Some(version))
}

/// The version in one of the origin's entity tags, `"v<version>-<length>"`.
fn version(tag: &str, length: u64) -> Option<u32> {
    let opaque = tag.strip_prefix("\"v")?.strip_suffix('"')?;
    let (version, said) = opaque.split_once('-')?;
    let version = version.parse().ok()?;
    (said.parse() == Ok(length)).then_some(version)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client::BodyEnd;

    fn ask() -> Ask {
        Ask {
            file: 3,
            bytes: 100..200,
            form: Form::Closed,
            length: 1000,
        }
    }

    fn reply() -> Reply {
        let mut body = vec![0; 100];
        noise::fill(3, 7, 100, &mut body);
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Reply {
            interim: Vec::new(),
            status: 206,
            reason: String::new(),
            headers: vec![
                field("ETag", "\"v7-1000\""),
                field("Content-Range", "bytes 100-199/1000"),
            ],
            body,
            trailers: Vec::new(),
            end: BodyEnd::Complete,
            first_byte: Duration::ZERO,
            total: Duration::ZERO,
        }
    }

    #[test]
    fn right_bytes_of_the_version_named_are_right() {
        assert_eq!(judge(&ask(), &reply()), (Verdict::Right, Some(7)));
        let mut whole = reply();
        whole.status = 200;
        whole.headers.truncate(1);
        whole.body = vec![0; 1000];
        noise::fill(3, 7, 0, &mut whole.body);
        assert_eq!(judge(&ask(), &whole).0, Verdict::Right);
    }

    #[test]
    fn two_versions_in_one_body_are_wrong_even_if_it_is_cut() {
        let mut mixed = reply();
        noise::fill(3, 8, 190, &mut mixed.body[90..]);
        assert!(matches!(judge(&ask(), &mixed).0, Verdict::Wrong(_)));
        mixed.end = BodyEnd::Closed;
        assert!(matches!(judge(&ask(), &mixed).0, Verdict::Wrong(_)));
    }

    #[test]
    fn bodies_that_end_early_are_cut_and_other_answers_fail() {
        let mut cut = reply();
        cut.body.truncate(50);
        cut.end = BodyEnd::Reset;
        assert_eq!(judge(&ask(), &cut), (Verdict::Cut, Some(7)));
        for (status, tag, range) in [
            (502, "\"v7-1000\"", "bytes 100-199/1000"),
            (200, "\"v7-1000\"", "bytes 100-199/1000"),
            (206, "W/\"v7-1000\"", "bytes 100-199/1000"),
            (206, "\"v7-999\"", "bytes 100-199/1000"),
            (206, "\"v7-1000\"", "bytes 100-198/1000"),
        ] {
            let mut other = reply();
            other.status = status;
            other.headers[0].1 = tag.to_owned();
            other.headers[1].1 = range.to_owned();
            let (verdict, _) = judge(&ask(), &other);
            assert!(matches!(verdict, Verdict::Failed(_)), "{verdict:?}");
        }
    }
}
