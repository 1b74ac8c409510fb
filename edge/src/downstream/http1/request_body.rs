//! Decodes a request body by its framing (RFC 9112 6, 7.1) and puts the content into the exchange's
//! intake.

use bytes::Bytes;

use crate::downstream::connection::Connection;
use crate::downstream::exchange::{Exchange, Intake};
use crate::handler::{Body, Fault};
use crate::http::Fields;
use crate::http::chunked::{Decoded, Decoder};
use crate::reason::Reason;

use super::chunked;
use super::framing_headers::Framing;

/// The decoder of one request body.
pub struct RequestBody(State);

enum State {
    Length(u64),
    Chunked(Box<Decoder>),
    Ended,
    /// The body is malformed, so its end is unknown.
    Broken(Fault),
}

/// Result of decoding a part of the input.
enum Decoding<'a> {
    Nothing,
    Data(&'a [u8]),
    Trailers(Fields),
}

impl RequestBody {
    /// Creates the decoder for this framing.
    pub fn new(framing: Framing, trailers_max: usize) -> RequestBody {
        RequestBody(match framing {
            Framing::None => State::Ended,
            Framing::Length(n) => State::Length(n),
            Framing::Chunked => State::Chunked(Box::new(chunked::decoder(trailers_max))),
        })
    }

    /// Returns the decoder of a request without a body.
    #[inline]
    pub const fn none() -> RequestBody {
        RequestBody(State::Ended)
    }

    /// Whether all of the body has been decoded.
    #[inline]
    pub fn is_complete(&self) -> bool {
        matches!(self.0, State::Ended)
    }

    /// Whether the body may end after at most this many further bytes of content. True if the
    /// length is not declared.
    pub fn may_end_within(&self, bytes: u64) -> bool {
        match self.0 {
            State::Length(left) => left <= bytes,
            State::Chunked(_) | State::Ended => true,
            State::Broken(_) => false,
        }
    }

    /// Decodes the start of `input` into the intake. Returns the number of bytes used, 0 if more
    /// input is needed.
    ///
    /// # Errors
    ///
    /// The framing is malformed, or the body is over the limit. The intake gets the same fault.
    pub fn take(&mut self, intake: &mut Intake, input: &[u8]) -> Result<usize, Fault> {
        let (used, decoding) = self
            .decode(intake, input)
            .inspect_err(|&fault| intake.fail(fault))?;
        let trailers = match decoding {
            Decoding::Nothing => None,
            Decoding::Data(data) => {
                intake.push(data);
                None
            }
            Decoding::Trailers(fields) => Some(fields),
        };
        if self.is_complete() {
            intake.end(trailers);
        }
        Ok(used)
    }

    /// Decodes the start of `input` and discards it. Returns the number of bytes used.
    ///
    /// # Errors
    ///
    /// As for `take`.
    pub fn discard(&mut self, intake: &mut Intake, input: &[u8]) -> Result<usize, Fault> {
        self.decode(intake, input).map(|(used, _)| used)
    }

    /// Decodes the start of `input`. After an error every further call returns the same error: the
    /// decoder may have read further than the bytes reported as used, so going on would take
    /// content for framing.
    fn decode<'a>(
        &mut self,
        intake: &mut Intake,
        input: &'a [u8],
    ) -> Result<(usize, Decoding<'a>), Fault> {
        let result = self.advance(input).and_then(|(used, decoding)| {
            if let Decoding::Data(data) = decoding {
                intake.count(data.len())?;
            }
            Ok((used, decoding))
        });
        result.inspect_err(|&fault| self.0 = State::Broken(fault))
    }

    fn advance<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Decoding<'a>), Fault> {
        if let State::Broken(fault) = self.0 {
            return Err(fault);
        }
        if input.is_empty() {
            return Ok((0, Decoding::Nothing));
        }
        match &mut self.0 {
            State::Ended | State::Broken(_) => Ok((0, Decoding::Nothing)),
            State::Length(left) => {
                let n = input
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= n as u64;
                if *left == 0 {
                    self.0 = State::Ended;
                }
                Ok((n, Decoding::Data(&input[..n])))
            }
            State::Chunked(decoder) => match decoder.decode(input) {
                Err(_) => Err(Reason::BadRequestBody.into()),
                Ok(Decoded::More) => Ok((input.len(), Decoding::Nothing)),
                Ok(Decoded::Data(used, data)) => Ok((used, Decoding::Data(data))),
                Ok(Decoded::End(used, trailers)) => {
                    self.0 = State::Ended;
                    match trailers.is_empty() {
                        true => Ok((used, Decoding::Nothing)),
                        false => Ok((used, Decoding::Trailers(trailers))),
                    }
                }
            },
        }
    }
}

/// Receives a request's body: as bytes if all of it arrived with the head, else as a stream that an
/// intake feeds.
#[inline]
pub fn receive(
    connection: &mut Connection,
    exchange: &mut Exchange,
    framing: Framing,
) -> (Body, RequestBody) {
    if framing == Framing::None {
        return (Body::Empty, RequestBody::none());
    }
    let declared = framing.length();
    if let Some(body) = declared
        .and_then(|length| usize::try_from(length).ok())
        .and_then(|length| connection.input().get(..length))
    {
        let bytes = Bytes::copy_from_slice(body);
        connection.consume(bytes.len());
        return (Body::Bytes(bytes), RequestBody::none());
    }
    let options = &exchange.record.serving.options;
    let (intake, stream) = Intake::new(declared, options.body);
    let decoder = RequestBody::new(framing, options.headers);
    exchange.intake = Some(intake);
    (Body::stream(stream), decoder)
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::handler::Frame;

    #[test]
    fn a_declared_length_ends_the_body_before_the_next_request() {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut intake, stream) = Intake::new(Some(5), 0);
        let mut decoder = RequestBody::new(Framing::Length(5), 0);
        let mut body = Body::stream(stream);
        assert_eq!(decoder.take(&mut intake, b"abcdeGET"), Ok(5));
        assert!(decoder.is_complete() && body.length() == Some(5));
        assert!(
            matches!(body.poll_frame(&mut cx), Poll::Ready(Some(Ok(Frame::Data(b)))) if b == "abcde")
        );
        assert!(matches!(body.poll_frame(&mut cx), Poll::Ready(None)));
    }

    #[test]
    fn after_an_error_there_is_only_that_error() {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut intake, stream) = Intake::new(None, 4);
        let mut decoder = RequestBody::new(Framing::Chunked, 100);
        let mut body = Body::stream(stream);
        assert_eq!(decoder.take(&mut intake, b"3\r\nabc\r\n2\r\nde"), Ok(6));
        assert_eq!(
            decoder.take(&mut intake, b"\r\n2\r\nde"),
            Err(Reason::RequestBodyTooLarge.into())
        );
        for more in ["\r\n2\r\nde", "0\r\n\r\n", ""] {
            let again = decoder.discard(&mut intake, more.as_bytes());
            assert_eq!(again, Err(Reason::RequestBodyTooLarge.into()));
        }
        assert!(!decoder.is_complete() && !decoder.may_end_within(u64::MAX));
        assert!(body.poll_frame(&mut cx).is_ready());
        drop(intake);
        assert!(matches!(
            body.poll_frame(&mut cx),
            Poll::Ready(Some(Err(f))) if f.reason == Reason::RequestBodyTooLarge
        ));
    }
}
