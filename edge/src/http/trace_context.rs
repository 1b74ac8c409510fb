//! W3C Trace Context: the headers traceparent and tracestate, by which the parts of a system relate
//! what they log about one request (www.w3.org/TR/trace-context).

use smallvec::SmallVec;

use super::fields::Fields;

/// Name of the header with the ids.
pub const PARENT_HEADER: &str = "traceparent";
/// Name of the header with the data of tracing systems.
pub const STATE_HEADER: &str = "tracestate";

/// Most bytes of tracestate that are passed on. Whole entries are left out of a longer one.
pub const STATE_MAX: usize = 512;
/// Entries longer than this are left out first, as the specification says (3.3.1.5).
const ENTRY_LONG: usize = 128;
/// Most entries of tracestate (3.3.1.1).
const ENTRIES_MAX: usize = 32;
/// Most bytes of tracestate that are read.
const READ_MAX: usize = 8 << 10;
/// Bytes of traceparent in version 00.
const PARENT_BYTES: usize = 55;
/// The flags that are passed on: sampled, and random trace id.
const KNOWN_FLAGS: u8 = 0b11;
/// The flags of a trace that begins here: sampled, so that the origin's own sampling decides.
const OWN_FLAGS: u8 = 0b01;

/// The trace of a request, with the id of its part here (span).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
    /// The value of tracestate. Empty if there is none.
    state: Box<str>,
}

/// The content of traceparent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// Id of the trace, never zero.
    pub trace_id: [u8; 16],
    /// Id of the caller's span, never zero.
    pub parent_id: [u8; 8],
    /// The flags.
    pub flags: u8,
}

impl TraceContext {
    /// Returns the trace of a request with these headers: the one that the client began if its traceparent is valid, else a
    /// new one. The ids come from `random`.
    pub fn of(fields: &Fields, random: [u64; 3]) -> TraceContext {
        let span_id = random[0].max(1).to_be_bytes();
        let mut parents = fields.get_all(PARENT_HEADER);
        let parent = parents.next().filter(|_| parents.next().is_none());
        if let Some(parent) = parent.and_then(TraceParent::parse) {
            return TraceContext {
                trace_id: parent.trace_id,
                span_id,
                flags: parent.flags & KNOWN_FLAGS,
                state: state(fields.get_all(STATE_HEADER)).unwrap_or_default(),
            };
        }
        let mut trace_id = [0; 16];
        trace_id[..8].copy_from_slice(&random[1].to_be_bytes());
        trace_id[8..].copy_from_slice(&random[2].max(1).to_be_bytes());
        TraceContext {
            trace_id,
            span_id,
            flags: OWN_FLAGS,
            state: Box::default(),
        }
    }

    /// Returns the same trace without the client's tracestate.
    pub fn without_state(&self) -> TraceContext {
        TraceContext {
            state: Box::default(),
            ..self.clone()
        }
    }

    /// Returns the id of the trace in hexadecimal.
    pub fn trace_id(&self) -> Hex<32> {
        Hex::of(&self.trace_id)
    }

    /// Returns the id of the span in hexadecimal, which is the parent id of requests to origins.
    pub fn span_id(&self) -> Hex<16> {
        Hex::of(&self.span_id)
    }

    /// Appends the value of traceparent for requests that this one causes.
    pub fn write_parent(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"00-");
        out.extend_from_slice(self.trace_id().as_str().as_bytes());
        out.push(b'-');
        out.extend_from_slice(self.span_id().as_str().as_bytes());
        out.push(b'-');
        out.extend_from_slice(Hex::<2>::of(&[self.flags]).as_str().as_bytes());
    }

    /// Returns the value of tracestate for requests that this one causes.
    pub fn state(&self) -> Option<&str> {
        (!self.state.is_empty()).then_some(&self.state)
    }
}

impl TraceParent {
    /// Parses the value of traceparent (3.2). `None` if it is invalid.
    pub fn parse(value: &[u8]) -> Option<TraceParent> {
        let version = *hex::<1>(value.get(..2)?)?.first()?;
        let is_long = value.len() > PARENT_BYTES;
        let fits = match version {
            0xff => false,
            0 => !is_long,
            // A later version may have further parts.
            _ => !is_long || value[PARENT_BYTES] == b'-',
        };
        let dashes = [2, 35, 52].iter().all(|at| value.get(*at) == Some(&b'-'));
        if !fits || !dashes {
            return None;
        }
        let trace_id = hex::<16>(value.get(3..35)?)?;
        let parent_id = hex::<8>(value.get(36..52)?)?;
        let [flags] = hex::<1>(value.get(53..55)?)?;
        let is_valid = trace_id != [0; 16] && parent_id != [0; 8];
        is_valid.then_some(TraceParent {
            trace_id,
            parent_id,
            flags,
        })
    }
}

/// Parses lower-case hexadecimal digits.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// A number in hexadecimal.
#[derive(Clone, Copy, Debug)]
pub struct Hex<const N: usize>([u8; N]);

impl<const N: usize> Hex<N> {
    /// `N` must be twice the number of bytes.
    fn of(bytes: &[u8]) -> Hex<N> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'0'; N];
        for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
            pair.copy_from_slice(&[
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]);
        }
        Hex(text)
    }

    /// Returns the digits.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Joins the lines of tracestate, and leaves entries out if the result would be too long (3.3). `None` if a line is
/// invalid.
pub fn state<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Box<str>> {
    let mut entries: SmallVec<[&str; 8]> = SmallVec::new();
    let mut read = 0_usize;
    for line in lines {
        read = read.saturating_add(line.len());
        if read > READ_MAX {
            return None;
        }
        for entry in line.split(|b| *b == b',') {
            let entry = trimmed(entry);
            if entry.is_empty() {
                continue;
            }
            let key = key_of(entry)?;
            let is_known = entries
                .iter()
                .any(|known| known.split('=').next() == Some(key));
            if is_known || entries.len() == ENTRIES_MAX {
                return None;
            }
            entries.push(std::str::from_utf8(entry).ok()?);
        }
    }
    Some(bounded(entries).join(",").into())
}

/// Leaves out entries until the rest fits: long ones first, then the last ones.
fn bounded(mut entries: SmallVec<[&str; 8]>) -> SmallVec<[&str; 8]> {
    let length = |entries: &[&str]| entries.iter().map(|entry| entry.len() + 1).sum::<usize>();
    while length(&entries) > STATE_MAX + 1 {
        let long = entries.iter().rposition(|entry| entry.len() > ENTRY_LONG);
        entries.remove(long.unwrap_or(entries.len() - 1));
    }
    entries
}

fn trimmed(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// Returns the key of a valid entry of tracestate (3.3.1.2, 3.3.1.3).
fn key_of(entry: &[u8]) -> Option<&str> {
    let at = entry.iter().position(|b| *b == b'=')?;
    let (key, value) = (&entry[..at], &entry[at + 1..]);
    let is_value = (1..=256).contains(&value.len())
        && value
            .iter()
            .all(|b| matches!(b, b' '..=b'~') && !b",=".contains(b));
    let is_key = match key.iter().position(|b| *b == b'@') {
        None => is_name(key, 256),
        Some(at) => is_name(&key[..at], 241) && is_name(&key[at + 1..], 14),
    };
    let key = std::str::from_utf8(key).ok()?;
    (is_value && is_key).then_some(key)
}

/// Whether this is a part of a key: a lower-case letter or digit, and further characters.
fn is_name(name: &[u8], most: usize) -> bool {
    let begins = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=most).contains(&name.len())
        && begins(&name[0])
        && name.iter().all(|b| begins(b) || b"_-*/".contains(b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn context(lines: &[(&str, &str)]) -> TraceContext {
        let fields: Fields = lines.iter().copied().collect();
        TraceContext::of(&fields, [0x1122, 0x33, 0x44])
    }

    fn sent(context: &TraceContext) -> String {
        let mut out = Vec::new();
        context.write_parent(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_valid_trace_goes_on_with_a_new_span() {
        let trace = context(&[
            (PARENT_HEADER, PARENT),
            (STATE_HEADER, "a=1"),
            (STATE_HEADER, " b=2 ,, c@d=3"),
        ]);
        assert_eq!(
            sent(&trace),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000001122-01"
        );
        assert_eq!(trace.state(), Some("a=1,b=2,c@d=3"));
        assert_eq!(
            trace.trace_id().as_str(),
            "4bf92f3577b34da6a3ce929d0e0e4736"
        );
        let later = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff-more";
        assert_eq!(
            sent(&context(&[(PARENT_HEADER, later)])),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000001122-03"
        );
    }

    #[test]
    fn an_invalid_trace_is_replaced() {
        let long = format!("{PARENT}-more");
        let odd = format!("cc{}x", &PARENT[2..]);
        let upper = PARENT.to_uppercase();
        let bad = [
            "",
            "00",
            &PARENT[..54],
            &long,
            &odd,
            &upper,
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
            "0g-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
        ];
        for value in bad {
            let trace = context(&[(PARENT_HEADER, value), (STATE_HEADER, "a=1")]);
            assert_eq!(
                sent(&trace),
                "00-00000000000000330000000000000044-0000000000001122-01",
                "{value}"
            );
            assert_eq!(trace.state(), None);
        }
        let twice = context(&[(PARENT_HEADER, PARENT), (PARENT_HEADER, PARENT)]);
        assert!(sent(&twice).starts_with("00-0000000000000033"));
        let zero = TraceContext::of(&Fields::new(), [0; 3]);
        assert!(TraceParent::parse(sent(&zero).as_bytes()).is_some());
    }

    #[test]
    fn tracestate_is_checked_and_bounded() {
        let state = |value: &str| state([value.as_bytes()].into_iter());
        for good in ["a=1", "a_-*/0=x y", "0t@s=~", "a=1,b=2"] {
            assert_eq!(state(good).as_deref(), Some(good));
        }
        for bad in [
            "a",
            "A=1",
            "a=",
            "=1",
            "a=1,a=2",
            "a=b=c",
            "a@=1",
            "@a=1",
            "a@b@c=1",
            "a=\u{e9}",
            "a=\t1\u{0}",
            "-a=1",
        ] {
            assert_eq!(state(bad), None, "{bad}");
        }
        let many = |n: usize| {
            (0..n)
                .map(|i| format!("k{i}=1"))
                .collect::<Vec<_>>()
                .join(",")
        };
        assert!(state(&many(32)).is_some() && state(&many(33)).is_none());
        let long = format!("a=1,b={},c={},d=2", "x".repeat(200), "y".repeat(100));
        assert_eq!(state(&long).as_deref(), Some(&*long));
        let longer = format!("{long},e={}", "z".repeat(250));
        assert_eq!(state(&longer).as_deref(), Some(&*long));
        let of_short = (0..32)
            .map(|i| format!("k{i:02}={}", "v".repeat(20)))
            .collect::<Vec<_>>();
        let kept = state(&of_short.join(",")).expect("valid");
        assert!(kept.len() <= STATE_MAX && of_short.join(",").starts_with(&*kept));
    }

    proptest! {
        #[test]
        fn what_is_sent_is_valid(parent in "[0-9a-f-]{50,60}|\\PC*", value in "[a-z=,@ ]{0,600}|\\PC*", random in any::<[u64; 3]>()) {
            let fields: Fields = [(PARENT_HEADER, parent.as_str()), (STATE_HEADER, value.as_str())].into_iter().collect();
            let trace = TraceContext::of(&fields, random);
            let parent = TraceParent::parse(sent(&trace).as_bytes());
            prop_assert_eq!(parent.map(|parent| parent.trace_id), Some(trace.trace_id));
            if let Some(kept) = trace.state() {
                prop_assert!(kept.len() <= STATE_MAX);
                let again = state([kept.as_bytes()].into_iter());
                prop_assert_eq!(again.as_deref(), Some(kept));
            }
        }
    }
}
