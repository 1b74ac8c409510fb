//! One exchange with an origin server, and its connection, as a ring of exchanges keeps them.

use crate::reason::Reason;

/// Most bytes of a path that are kept.
pub const PATH_MAX: usize = 64;
/// Number of words of an encoded record.
pub(super) const WORDS: usize = PATH_AT + PATH_MAX / 8;

const NUMBER: usize = 0;
const SERVER: usize = 1;
const OPENED: usize = 2;
const SETUP: usize = 3;
const FLAGS: usize = 4;
const BEGAN: usize = 5;
/// First word that changes when the exchange ends.
const ENDED: usize = 6;
const RESULT: usize = 7;
const CAUSE: usize = 8;
const BYTES: usize = 9;
/// First word that changes when the connection is closed.
const CLOSED: usize = 10;
const CLOSED_BY: usize = 11;
const PATH_AT: usize = 12;

/// Value in place of the time of a handshake that there was not.
const NONE: u32 = u32::MAX;

/// A connection to an origin server. All times are microseconds of one monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFacts {
    /// Number that no other connection of this process has.
    pub number: u64,
    /// Number of the server among those of its upstream.
    pub server: u64,
    /// Time at which the connection was open.
    pub opened_us: u64,
    /// Duration of opening the connection, with the handshake of TLS.
    pub connect_us: u32,
    /// Duration of the handshake of TLS; `None` for clear text.
    pub tls_us: Option<u32>,
    /// Whether the connection speaks HTTP/2.
    pub is_http2: bool,
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeEnd {
    /// The whole response was received.
    Complete = 1,
    /// The connection or the response failed.
    Failed,
    /// The response was not wanted any more.
    Cancelled,
}

/// The side that closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedBy {
    /// The server closed the connection, or announced that it would.
    Server = 1,
    /// Sluice closed the connection.
    Sluice,
}

/// The result of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeResult {
    /// Time of the end.
    pub ended_us: u64,
    /// Status of the response, 0 if there was none.
    pub status: u16,
    /// Time from sending the request to the head of the response in microseconds, if there was one.
    pub head_us: u32,
    /// Bytes of content received.
    pub bytes: u64,
    /// How the exchange ended.
    pub end: ExchangeEnd,
    /// Why the exchange failed.
    pub reason: Option<Reason>,
}

/// An exchange and its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeRecord {
    /// The connection.
    pub connection: ConnectionFacts,
    /// Time at which the connection was closed, and the side that closed it.
    pub closed: Option<(u64, ClosedBy)>,
    /// Place of the exchange among those of its connection; 1 is the first.
    pub nth: u32,
    /// Time at which the request was sent.
    pub began_us: u64,
    /// The result; `None` while the exchange is in progress.
    pub result: Option<ExchangeResult>,
    /// The beginning of the path, as it was sent to the server.
    pub path: Vec<u8>,
    /// Whether more of the target follows.
    pub is_cut: bool,
}

/// Words of a record from this index on.
pub(super) type Part<const N: usize> = (usize, [u64; N]);

/// Encodes an exchange that begins. `target` is that of the request: a query and other parameters are left out, since they
/// may contain secrets.
pub(super) fn begun(
    connection: &ConnectionFacts,
    nth: u32,
    began_us: u64,
    target: &[u8],
) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    let is_separator = |b: &u8| b"?#;&".contains(b);
    let end = target.iter().take(PATH_MAX).position(is_separator);
    let length = end.map_or(target.len(), |at| at + 1).min(PATH_MAX);
    let is_cut = length < target.len();
    words[NUMBER] = connection.number;
    words[SERVER] = connection.server;
    words[OPENED] = connection.opened_us;
    words[SETUP] = pair(connection.connect_us, connection.tls_us.unwrap_or(NONE));
    let flags = (u32::from(is_cut) << 8) | (u32::from(connection.is_http2) << 9);
    words[FLAGS] = pair(nth, flags | length as u32);
    words[BEGAN] = began_us;
    let mut path = [0; PATH_MAX];
    path[..length].copy_from_slice(&target[..length]);
    for (word, bytes) in words[PATH_AT..].iter_mut().zip(path.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// Encodes the result of an exchange.
pub(super) fn ended(result: &ExchangeResult) -> Part<4> {
    let facts = u32::from(result.status) | ((result.end as u32) << 16);
    let cause = result.reason.map_or(0, |reason| reason as u64 + 1);
    let words = [
        // 0 says that the exchange is in progress.
        result.ended_us.max(1),
        pair(result.head_us, facts),
        cause,
        result.bytes,
    ];
    (ENDED, words)
}

/// Encodes the end of a connection.
pub(super) fn closed(at_us: u64, by: ClosedBy) -> Part<2> {
    (CLOSED, [at_us.max(1), by as u64])
}

/// Decodes a record.
pub(super) fn decoded(words: &[u64; WORDS]) -> ExchangeRecord {
    let ((connect_us, tls_us), (nth, flags)) = (halves(words[SETUP]), halves(words[FLAGS]));
    let path: Vec<u8> = words[PATH_AT..]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .take(flags as usize & 0xff)
        .collect();
    let by = match words[CLOSED_BY] {
        by if by == ClosedBy::Server as u64 => ClosedBy::Server,
        _ => ClosedBy::Sluice,
    };
    ExchangeRecord {
        connection: ConnectionFacts {
            number: words[NUMBER],
            server: words[SERVER],
            opened_us: words[OPENED],
            connect_us,
            tls_us: (tls_us != NONE).then_some(tls_us),
            is_http2: (flags >> 9) & 1 == 1,
        },
        closed: (words[CLOSED] > 0).then_some((words[CLOSED], by)),
        nth,
        began_us: words[BEGAN],
        result: (words[ENDED] > 0).then(|| result(words)),
        path,
        is_cut: (flags >> 8) & 1 == 1,
    }
}

fn result(words: &[u64; WORDS]) -> ExchangeResult {
    let (head_us, facts) = halves(words[RESULT]);
    let cause = (words[CAUSE] as usize).checked_sub(1);
    ExchangeResult {
        ended_us: words[ENDED],
        status: (facts & 0xffff) as u16,
        head_us,
        bytes: words[BYTES],
        end: match facts >> 16 {
            end if end == ExchangeEnd::Complete as u32 => ExchangeEnd::Complete,
            end if end == ExchangeEnd::Failed as u32 => ExchangeEnd::Failed,
            _ => ExchangeEnd::Cancelled,
        },
        reason: cause.and_then(|at| Reason::ALL.get(at).copied()),
    }
}

fn pair(high: u32, low: u32) -> u64 {
    (u64::from(high) << 32) | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put<const N: usize>(words: &mut [u64; WORDS], (at, part): Part<N>) {
        words[at..at + N].copy_from_slice(&part);
    }

    #[test]
    fn a_record_is_decoded_as_it_was_encoded() {
        let connection = ConnectionFacts {
            number: u64::MAX,
            server: 7,
            opened_us: 1_000_000,
            connect_us: 1500,
            tls_us: Some(900),
            is_http2: true,
        };
        let mut words = begun(&connection, 3, 2_000_000, b"/a/b");
        let record = decoded(&words);
        assert_eq!((record.connection, record.nth), (connection, 3));
        assert_eq!(
            (record.began_us, &record.path[..]),
            (2_000_000, &b"/a/b"[..])
        );
        assert_eq!(
            (record.result, record.closed, record.is_cut),
            (None, None, false)
        );
        let result = ExchangeResult {
            ended_us: 2_500_000,
            status: 502,
            head_us: 12,
            bytes: u64::MAX,
            end: ExchangeEnd::Failed,
            reason: Some(Reason::BodyCut),
        };
        put(&mut words, ended(&result));
        put(&mut words, closed(3_000_000, ClosedBy::Server));
        let record = decoded(&words);
        assert_eq!(record.result, Some(result));
        assert_eq!(record.closed, Some((3_000_000, ClosedBy::Server)));
        assert_eq!(record.connection, connection);
        for (end, by) in [
            (ExchangeEnd::Complete, ClosedBy::Sluice),
            (ExchangeEnd::Cancelled, ClosedBy::Sluice),
        ] {
            let reason = Reason::ALL.last().copied();
            let result = ExchangeResult {
                end,
                reason,
                ..result
            };
            put(&mut words, ended(&result));
            put(&mut words, closed(0, by));
            assert_eq!(decoded(&words).result, Some(result));
            assert_eq!(decoded(&words).closed, Some((1, by)));
        }
    }

    #[test]
    fn queries_and_parameters_are_not_kept_and_long_paths_are_cut() {
        let path = |target: &[u8]| {
            let record = decoded(&begun(&ConnectionFacts::default(), 1, 1, target));
            (
                String::from_utf8(record.path).expect("ASCII"),
                record.is_cut,
            )
        };
        assert_eq!(path(b"/a?token=secret"), ("/a?".to_owned(), true));
        assert_eq!(path(b"/a;jsessionid=1/b"), ("/a;".to_owned(), true));
        assert_eq!(path(b"/a?"), ("/a?".to_owned(), false));
        assert_eq!(path(b""), (String::new(), false));
        let full = "/".repeat(PATH_MAX);
        assert_eq!(path(full.as_bytes()), (full.clone(), false));
        let long = format!("{full}?x");
        assert_eq!(path(long.as_bytes()), (full, true));
    }
}
