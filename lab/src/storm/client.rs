//! One client of the storm: sends requests, reads the responses and judges them.

use std::net::IpAddr;
use std::time::Instant;

use super::mix::{Form, StormRequest};
use super::tally::{Tally, Verdict};
use super::{Shared, path};
use crate::client::{Client, ContentRange, ReadError, Reply};
use crate::noise;

pub(super) struct StormClient<'a> {
    shared: &'a Shared<'a>,
    source: IpAddr,
    connection: Option<Client>,
    tally: Tally,
}

impl<'a> StormClient<'a> {
    pub(super) fn new(shared: &'a Shared<'a>, source: IpAddr) -> StormClient<'a> {
        StormClient {
            shared,
            source,
            connection: None,
            tally: Tally::default(),
        }
    }

    /// Sends requests until all requests of the storm have been sent.
    pub(super) fn run(mut self) -> Tally {
        while let Some(number) = self.shared.next() {
            let options = self.shared.options;
            let any_size = options.whole_of_any_size;
            let request = StormRequest::draw(options.seed, number, self.shared.files, any_size);
            let sent_at = Instant::now();
            match self.exchange(&request) {
                Ok(reply) => self.record(&request, &reply, sent_at),
                Err(error) => {
                    self.connection = None;
                    let why = format!("{}: {error}", path(request.file));
                    self.tally.count(Verdict::Failed(why));
                }
            }
        }
        self.tally
    }

    fn exchange(&mut self, request: &StormRequest) -> Result<Reply, ReadError> {
        let mut client = match self.connection.take() {
            Some(client) => client,
            None => Client::connect_with(self.shared.server, &self.shared.client(self.source))?,
        };
        let range = request.range();
        let field = range.as_deref().map(|value| ("Range", value));
        let reply = client.get(&path(request.file), field.as_slice())?;
        let closes = reply
            .header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if !closes && !reply.truncated() {
            self.connection = Some(client);
        }
        Ok(reply)
    }

    fn record(&mut self, request: &StormRequest, reply: &Reply, sent_at: Instant) {
        self.tally.bytes += reply.body.len() as u64;
        let (verdict, version) = judge(request, reply);
        let verdict = match version {
            Some(version) if !self.shared.exists(request.file, version) => Verdict::Failed(
                format!("{}: version {version} never existed", path(request.file)),
            ),
            _ => verdict,
        };
        if let Some(version) = version {
            let slice = self.shared.options.slice;
            self.tally
                .touch(request.file, version, &request.bytes, slice);
            if self.shared.stale(request.file, version, sent_at) {
                self.tally.stale += 1;
            }
        }
        self.tally.count(verdict);
    }
}

/// Judges a response. Also returns the version that the response's ETag names.
fn judge(request: &StormRequest, reply: &Reply) -> (Verdict, Option<u32>) {
    let failed = |why: String| {
        (
            Verdict::Failed(format!("{}: {why}", path(request.file))),
            None,
        )
    };
    let (start, expected) = match reply.status {
        // A server may ignore Range and send the whole file (RFC 9110 section 14.2).
        200 => (0, request.length),
        206 if request.form != Form::Whole => {
            (request.bytes.start, request.bytes.end - request.bytes.start)
        }
        status => return failed(format!("status {status}")),
    };
    let announced = (reply.status == 206).then_some(ContentRange {
        first: request.bytes.start,
        last: request.bytes.end - 1,
        complete: Some(request.length),
    });
    if reply.content_range() != announced {
        let field = reply.header("content-range");
        return failed(format!("Content-Range {field:?} to {:?}", request.range()));
    }
    let tag = reply.header("etag");
    let Some(version) = tag.and_then(|tag| version(tag, request.length)) else {
        return failed(format!("ETag {tag:?}"));
    };
    let verdict = match noise::verify(request.file as u64, version, start, &reply.body) {
        Err(wrong) => Verdict::Wrong(format!(
            "{}: byte {} of a response from offset {start} on differs from version {version}",
            path(request.file),
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

/// Returns the version in an ETag of the origin, which has the form `"v<version>-<length>"`.
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

    fn request() -> StormRequest {
        StormRequest {
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
    fn a_response_with_the_bytes_of_its_named_version_is_right() {
        assert_eq!(judge(&request(), &reply()), (Verdict::Right, Some(7)));
        let mut whole = reply();
        whole.status = 200;
        whole.headers.truncate(1);
        whole.body = vec![0; 1000];
        noise::fill(3, 7, 0, &mut whole.body);
        assert_eq!(judge(&request(), &whole).0, Verdict::Right);
    }

    #[test]
    fn a_body_with_bytes_of_two_versions_is_wrong_even_if_cut() {
        let mut mixed = reply();
        noise::fill(3, 8, 190, &mut mixed.body[90..]);
        assert!(matches!(judge(&request(), &mixed).0, Verdict::Wrong(_)));
        mixed.end = BodyEnd::Closed;
        assert!(matches!(judge(&request(), &mixed).0, Verdict::Wrong(_)));
    }

    #[test]
    fn a_short_body_is_cut_and_an_unexpected_head_is_a_failure() {
        let mut cut = reply();
        cut.body.truncate(50);
        cut.end = BodyEnd::Reset;
        assert_eq!(judge(&request(), &cut), (Verdict::Cut, Some(7)));
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
            let (verdict, _) = judge(&request(), &other);
            assert!(matches!(verdict, Verdict::Failed(_)), "{verdict:?}");
        }
    }
}
