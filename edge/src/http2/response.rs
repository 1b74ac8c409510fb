//! Collects and checks the header section of a response (RFC 9113 8.3.2), and trailer sections of both directions.

use super::hpack::Field;
use super::malformed::{Malformed, check, check_regular, take_length};
use crate::http::{Fields, Status, trailers};

/// The header section of a response.
#[derive(Debug, Default)]
pub struct Response {
    /// The status. 0 until `:status` has come.
    pub status: Status,
    /// The fields, in order.
    pub fields: Fields,
    /// The declared length of the content.
    pub content_length: Option<u64>,
    malformed: Option<Malformed>,
}

impl Response {
    /// Adds a field. After a malformed one, further fields are ignored.
    #[inline]
    pub fn add(&mut self, field: &Field<'_>) {
        if self.malformed.is_none() {
            self.malformed = self.take(field).err();
        }
    }

    fn take(&mut self, field: &Field<'_>) -> Result<(), Malformed> {
        check(field)?;
        if field.name.first() == Some(&b':') {
            return self.take_pseudo(field);
        }
        check_regular(field.name, field.value)?;
        if field.name == b"content-length" {
            take_length(&mut self.content_length, field.value)?;
        }
        self.fields.append_bytes(field.name, field.value);
        Ok(())
    }

    fn take_pseudo(&mut self, field: &Field<'_>) -> Result<(), Malformed> {
        match field.name {
            b":status" if self.status != 0 => Err(Malformed::RepeatedPseudo),
            b":status" if !self.fields.is_empty() => Err(Malformed::LatePseudo),
            b":status" => {
                self.status = status(field.value)?;
                Ok(())
            }
            _ => Err(Malformed::UnknownPseudo),
        }
    }

    /// Checks the response as a whole, after its last field.
    ///
    /// # Errors
    ///
    /// The response is malformed, so its stream is reset.
    pub fn finish(&self) -> Result<(), Malformed> {
        match self.malformed {
            Some(malformed) => Err(malformed),
            None if self.status == 0 => Err(Malformed::MissingPseudo),
            None => Ok(()),
        }
    }
}

/// Parses a status: three digits from 100 to 999. There is no 101 in HTTP/2 (RFC 9113 8.6).
fn status(value: &[u8]) -> Result<Status, Malformed> {
    match value {
        b"101" => Err(Malformed::Status),
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
            let digit = |byte: &u8| Status::from(byte - b'0');
            Ok(digit(a) * 100 + digit(b) * 10 + digit(c))
        }
        _ => Err(Malformed::Status),
    }
}

/// A trailer section (RFC 9113 8.1).
#[derive(Debug, Default)]
pub struct Trailers {
    /// The fields, in order.
    pub fields: Fields,
    malformed: Option<Malformed>,
}

impl Trailers {
    /// Adds a field. After a malformed one, further fields are ignored.
    pub fn add(&mut self, field: &Field<'_>) {
        if self.malformed.is_none() {
            self.malformed = self.take(field).err();
        }
    }

    fn take(&mut self, field: &Field<'_>) -> Result<(), Malformed> {
        check(field)?;
        if field.name.first() == Some(&b':') {
            return Err(Malformed::UnknownPseudo);
        }
        check_regular(field.name, field.value)?;
        if trailers::is_barred(field.name) {
            return Err(Malformed::Trailer);
        }
        self.fields.append_bytes(field.name, field.value);
        Ok(())
    }

    /// Returns the fields, after the last one.
    ///
    /// # Errors
    ///
    /// The trailers are malformed, so the stream is reset.
    pub fn finish(self) -> Result<Fields, Malformed> {
        match self.malformed {
            Some(malformed) => Err(malformed),
            None => Ok(self.fields),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::field;

    fn each(lines: &[(&str, &str)], mut add: impl FnMut(&Field<'_>)) {
        for (name, value) in lines {
            add(&Field {
                name: name.as_bytes(),
                value: value.as_bytes(),
                is_valid: field::is_valid(name.as_bytes(), value.as_bytes()),
                never_indexed: false,
            });
        }
    }

    fn collect(lines: &[(&str, &str)]) -> Result<Response, Malformed> {
        let mut response = Response::default();
        each(lines, |field| response.add(field));
        response.finish().map(|()| response)
    }

    #[test]
    fn a_response_is_collected() {
        let response = collect(&[(":status", "204"), ("a", "b"), ("content-length", "5")]);
        let response = response.expect("a valid response");
        assert_eq!((response.status, response.content_length), (204, Some(5)));
        assert_eq!(response.fields.text(), b"a: b\r\ncontent-length: 5\r\n");
    }

    #[test]
    fn malformed_responses_are_refused() {
        let ok = (":status", "200");
        for (lines, malformed) in [
            (&[][..], Malformed::MissingPseudo),
            (&[("a", "b")], Malformed::MissingPseudo),
            (&[ok, ok], Malformed::RepeatedPseudo),
            (&[("a", "b"), ok], Malformed::LatePseudo),
            (&[ok, (":path", "/")], Malformed::UnknownPseudo),
            (&[(":status", "101")], Malformed::Status),
            (&[(":status", "099")], Malformed::Status),
            (&[(":status", "2000")], Malformed::Status),
            (&[(":status", "")], Malformed::Status),
            (
                &[ok, ("connection", "close")],
                Malformed::ConnectionSpecific,
            ),
            (&[ok, ("A", "b")], Malformed::Name),
            (&[ok, ("a", "b\n")], Malformed::Value),
            (&[ok, ("content-length", "x")], Malformed::ContentLength),
        ] {
            assert_eq!(collect(lines).err(), Some(malformed), "{lines:?}");
        }
    }

    #[test]
    fn trailers_have_no_pseudo_headers_and_no_framing() {
        let collect = |lines: &[(&str, &str)]| {
            let mut trailers = Trailers::default();
            each(lines, |field| trailers.add(field));
            trailers.finish()
        };
        assert!(collect(&[("grpc-status", "0")]).is_ok_and(|fields| fields.len() == 1));
        assert_eq!(
            collect(&[(":status", "200")]),
            Err(Malformed::UnknownPseudo)
        );
        assert_eq!(collect(&[("content-length", "2")]), Err(Malformed::Trailer));
        assert_eq!(collect(&[("host", "a")]), Err(Malformed::Trailer));
        assert_eq!(
            collect(&[("te", "gzip")]),
            Err(Malformed::ConnectionSpecific)
        );
    }
}
