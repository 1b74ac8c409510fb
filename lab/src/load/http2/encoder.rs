//! An encoder of the requests of a load (RFC 7541).
//!
//! As in browsers, the server's dynamic table keeps the fields that all requests have in common, so that they take one
//! byte each from the second request on. Strings are sent without Huffman coding.

use super::super::LoadPlan;
use super::super::targets::write_range;

/// Size of a dynamic table that a server has not changed, in bytes (RFC 9113 6.5.2).
const TABLE_SIZE: usize = 4096;
/// Bytes that each entry of a table counts beyond its name and value (RFC 7541 4.1).
const ENTRY: usize = 32;
/// Index that the newest entry of the dynamic table has.
const NEWEST: usize = 62;

/// Indexes in the static table.
const AUTHORITY: usize = 1;
const PATH: usize = 4;
const RANGE: usize = 50;
const METHOD_GET: u8 = 0x82;
const SCHEME_HTTP: u8 = 0x86;
const SCHEME_HTTPS: u8 = 0x87;

/// The fields that all requests of a load have in common, encoded in three ways.
#[derive(Debug)]
pub(super) struct Fields {
    scheme: u8,
    /// Literals that don't change the dynamic table.
    literal: Vec<u8>,
    /// Literals that are added to the dynamic table.
    added: Vec<u8>,
    /// References to the dynamic table.
    indexed: Vec<u8>,
    /// Size of the fields in the dynamic table.
    size: usize,
}

impl Fields {
    pub(super) fn of(plan: &LoadPlan) -> Fields {
        let mut fields = Fields {
            scheme: match plan.tls {
                Some(_) => SCHEME_HTTPS,
                None => SCHEME_HTTP,
            },
            literal: Vec::new(),
            added: Vec::new(),
            indexed: Vec::new(),
            size: ":authority".len() + plan.host.len() + ENTRY,
        };
        integer(&mut fields.literal, 0, 4, AUTHORITY);
        string(&mut fields.literal, plan.host.as_bytes());
        integer(&mut fields.added, 0x40, 6, AUTHORITY);
        string(&mut fields.added, plan.host.as_bytes());
        for (name, value) in &plan.headers {
            let name = name.to_ascii_lowercase();
            for (out, first) in [(&mut fields.literal, 0), (&mut fields.added, 0x40)] {
                out.push(first);
                string(out, name.as_bytes());
                string(out, value.as_bytes());
            }
            fields.size += name.len() + value.len() + ENTRY;
        }
        for place in (0..=plan.headers.len()).rev() {
            integer(&mut fields.indexed, 0x80, 7, NEWEST + place);
        }
        fields
    }
}

/// The way in which a connection sends the common fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Literal,
    /// The next request adds the fields to the dynamic table.
    Added,
    Indexed,
}

/// The state of a connection's encoder.
#[derive(Debug)]
pub(super) struct Encoder {
    form: Form,
    table_size: usize,
    /// Whether the next request announces that the table has become smaller (RFC 7541 4.2).
    is_smaller: bool,
}

impl Encoder {
    pub(super) fn new(fields: &Fields) -> Encoder {
        Encoder {
            form: match fields.size <= TABLE_SIZE {
                true => Form::Added,
                false => Form::Literal,
            },
            table_size: TABLE_SIZE,
            is_smaller: false,
        }
    }

    /// Applies the server's limit of the table. A larger table than the usual one is not used.
    pub(super) fn limit_table(&mut self, size: usize, fields: &Fields) {
        if size < self.table_size {
            self.table_size = size;
            self.is_smaller = true;
            if fields.size > size {
                self.form = Form::Literal;
            }
        }
    }

    /// Writes the field section of a GET request.
    pub(super) fn request(
        &mut self,
        fields: &Fields,
        target: &[u8],
        range: Option<(u64, Option<u64>)>,
        out: &mut Vec<u8>,
    ) {
        if self.is_smaller {
            integer(out, 0x20, 5, self.table_size);
            self.is_smaller = false;
        }
        out.extend_from_slice(&[METHOD_GET, fields.scheme]);
        integer(out, 0, 4, PATH);
        string(out, target);
        out.extend_from_slice(match self.form {
            Form::Literal => &fields.literal,
            Form::Added => &fields.added,
            Form::Indexed => &fields.indexed,
        });
        if self.form == Form::Added {
            self.form = Form::Indexed;
        }
        if let Some(range) = range {
            integer(out, 0, 4, RANGE);
            // The value has less than 127 bytes, so that its length takes one byte.
            let at = out.len();
            out.push(0);
            write_range(out, range);
            out[at] = (out.len() - at - 1) as u8;
        }
    }
}

/// Writes a string without Huffman coding.
fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    integer(out, 0, 7, bytes.len());
    out.extend_from_slice(bytes);
}

/// Writes an integer with a prefix of this many bits after `pattern` (RFC 7541 5.1).
fn integer(out: &mut Vec<u8>, pattern: u8, bits: u32, value: usize) {
    let most = (1 << bits) - 1;
    if value < most {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields {
        let plan = LoadPlan {
            host: "h".to_owned(),
            headers: vec![("Accept".to_owned(), "x".to_owned())],
            ..LoadPlan::new("127.0.0.1:1".parse().expect("an address"), "/")
        };
        Fields::of(&plan)
    }

    fn request(encoder: &mut Encoder, range: Option<(u64, Option<u64>)>) -> Vec<u8> {
        let mut out = Vec::new();
        encoder.request(&fields(), b"/a", range, &mut out);
        out
    }

    #[test]
    fn common_fields_are_indexed_from_the_second_request_on() {
        let mut encoder = Encoder::new(&fields());
        let first = b"\x82\x86\x04\x02/a\x41\x01h\x40\x06accept\x01x";
        assert_eq!(request(&mut encoder, None), first);
        assert_eq!(request(&mut encoder, None), b"\x82\x86\x04\x02/a\xbf\xbe");
        let ranged = b"\x82\x86\x04\x02/a\xbf\xbe\x0f\x23\x09bytes=1-2";
        assert_eq!(request(&mut encoder, Some((1, Some(2)))), ranged);
    }

    #[test]
    fn a_smaller_table_is_announced_and_not_used() {
        let mut encoder = Encoder::new(&fields());
        request(&mut encoder, None);
        encoder.limit_table(5000, &fields());
        encoder.limit_table(0, &fields());
        let literal = b"\x82\x86\x04\x02/a\x01\x01h\x00\x06accept\x01x";
        assert_eq!(
            request(&mut encoder, None),
            [&b"\x20"[..], literal].concat()
        );
        assert_eq!(request(&mut encoder, None), literal);
    }
}
