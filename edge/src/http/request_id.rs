//! The id of a request, which Sluice, its proxies and its origins log, so that their lines can be
//! matched.

use std::rc::Rc;

use super::fields::Fields;

/// Longest id in bytes that is taken over from a proxy.
const BYTES_MAX: usize = 128;

/// The id of a request. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(Rc<str>);

impl RequestId {
    /// The name of the header that carries the id.
    pub const HEADER: &str = "x-request-id";

    /// Creates an id from the time in milliseconds since the Unix epoch and random numbers: a UUID of version 7 (RFC
    /// 9562 5.7), so that the ids of a log are in the order of time.
    pub fn new(unix_ms: u64, random: [u64; 2]) -> RequestId {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&random[0].to_be_bytes());
        bytes[8..].copy_from_slice(&random[1].to_be_bytes()[..2]);
        let id = uuid::Builder::from_unix_timestamp_millis(unix_ms, &bytes).into_uuid();
        let mut text = uuid::Uuid::encode_buffer();
        RequestId((&*id.hyphenated().encode_lower(&mut text)).into())
    }

    /// Returns the id in the headers of a request. `None` if there is no id or more than one, or if the id is too long
    /// or contains characters other than letters, digits and `-._~+/=:@`.
    pub fn in_fields(fields: &Fields) -> Option<RequestId> {
        let mut values = fields.get_all(RequestId::HEADER);
        let id = values.next().filter(|_| values.next().is_none())?;
        let usual = |b: &u8| b.is_ascii_alphanumeric() || b"-._~+/=:@".contains(b);
        let is_usual = (1..=BYTES_MAX).contains(&id.len()) && id.iter().all(usual);
        let text = std::str::from_utf8(id).ok().filter(|_| is_usual)?;
        Some(RequestId(text.into()))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuids_of_version_7_in_the_order_of_time() {
        let id = |ms| RequestId::new(ms, [0x1234_5678_9abc_def0, u64::MAX]);
        // The time of the example in RFC 9562 A.6.
        assert_eq!(
            id(0x017F_22E2_79B0).as_str(),
            "017f22e2-79b0-7234-9678-9abcdef0ffff"
        );
        assert!(id(5).as_str() < id(6).as_str());
    }

    #[test]
    fn only_a_single_short_and_harmless_id_is_taken_over() {
        let taken = |values: &[&str]| {
            let fields: Fields = values
                .iter()
                .map(|value| (RequestId::HEADER, *value))
                .collect();
            RequestId::in_fields(&fields).map(|id| id.as_str().to_owned())
        };
        let long = "a".repeat(BYTES_MAX + 1);
        for good in ["0", "Root=1-67891233-abc", "a/b+c==", &long[1..]] {
            assert_eq!(taken(&[good]).as_deref(), Some(good));
        }
        for bad in ["", "a b", "a,b", "a\"b", "\u{e9}", "a;b", "<a>", &long] {
            assert_eq!(taken(&[bad]), None, "{bad}");
        }
        assert_eq!(taken(&["a", "a"]), None);
        assert_eq!(taken(&[]), None);
    }
}
