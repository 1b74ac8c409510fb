//! Counts the received bytes that rustls keeps, because a record or a message in several records is not complete.

/// Length of a record's header (RFC 8446 5.1).
const HEADER_BYTES: usize = 5;
/// Most bytes of records without data after the handshake, such as KeyUpdate messages.
const MESSAGES_BYTES_MAX: usize = 16 << 10;
/// Most bytes of records during the handshake, with a long chain of certificates and rejected early data. rustls joins
/// a message of up to 64 KiB.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;

/// The received bytes that rustls keeps. Counts from the first byte of a connection, since rustls does not say where a
/// record begins.
#[derive(Default)]
pub struct Incomplete {
    header: [u8; HEADER_BYTES],
    /// Bytes of the last record that have arrived, with its header.
    arrived: usize,
    /// Bytes of complete records since the last one with data, or since the handshake ended.
    complete: usize,
    is_handshake_complete: bool,
}

impl Incomplete {
    /// Counts bytes that have been given to rustls.
    pub fn fed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let length = match self.arrived.checked_sub(HEADER_BYTES) {
                None => HEADER_BYTES,
                Some(_) => self.record_length(),
            };
            let (taken, rest) = bytes.split_at(bytes.len().min(length - self.arrived));
            if let Some(missing) = self.header.get_mut(self.arrived..) {
                let n = missing.len().min(taken.len());
                missing[..n].copy_from_slice(&taken[..n]);
            }
            self.arrived += taken.len();
            if self.arrived >= HEADER_BYTES && self.arrived == self.record_length() {
                self.complete += self.arrived;
                self.arrived = 0;
            }
            bytes = rest;
        }
    }

    fn record_length(&self) -> usize {
        HEADER_BYTES + usize::from(u16::from_be_bytes([self.header[3], self.header[4]]))
    }

    /// Notes that data was decrypted. No message is incomplete then: records of another type must not interrupt one
    /// (RFC 8446 5.1), which rustls checks.
    pub(super) fn has_data(&mut self) {
        self.complete = 0;
    }

    /// Notes that the handshake is complete. Its messages and rejected early data are not kept any more.
    pub(super) fn end_handshake(&mut self) {
        if !self.is_handshake_complete {
            self.is_handshake_complete = true;
            self.complete = 0;
        }
    }

    /// Returns the most bytes that rustls may keep.
    pub fn bytes(&self) -> usize {
        self.complete + self.arrived
    }

    /// Whether there are too many bytes without data.
    pub(super) fn is_too_much(&self) -> bool {
        let most = match self.is_handshake_complete {
            true => MESSAGES_BYTES_MAX,
            false => HANDSHAKE_BYTES_MAX,
        };
        self.complete > most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(length: u16) -> Vec<u8> {
        let mut record = vec![23, 3, 3];
        record.extend(length.to_be_bytes());
        record.resize(HEADER_BYTES + usize::from(length), 7);
        record
    }

    #[test]
    fn records_are_counted_however_they_are_split() {
        let bytes = [record(3), record(0), record(300), record(700)].concat();
        let whole = bytes.len() - 1;
        for size in [1, 2, 5, 6, 7, 400, whole] {
            let mut incomplete = Incomplete::default();
            bytes[..whole]
                .chunks(size)
                .for_each(|part| incomplete.fed(part));
            assert_eq!(incomplete.bytes(), whole, "parts of {size}");
            incomplete.has_data();
            assert_eq!(incomplete.bytes(), HEADER_BYTES + 699);
            incomplete.fed(&bytes[whole..]);
            incomplete.has_data();
            assert_eq!(incomplete.bytes(), 0);
        }
    }

    #[test]
    fn too_much_without_data_is_noticed() {
        let mut incomplete = Incomplete::default();
        for _ in 0..3 {
            incomplete.fed(&record(16 << 10));
        }
        assert!(!incomplete.is_too_much(), "it may be a long chain");
        incomplete.end_handshake();
        assert_eq!(incomplete.bytes(), 0);
        incomplete.fed(&record(16 << 10)[..16 << 10]);
        assert!(!incomplete.is_too_much(), "it may be a record of data");
        incomplete.fed(&[7; HEADER_BYTES]);
        assert!(incomplete.is_too_much());
        incomplete.has_data();
        assert!(!incomplete.is_too_much());
    }

    #[test]
    fn messages_of_a_handshake_have_a_limit() {
        let mut incomplete = Incomplete::default();
        for _ in 0..4 {
            incomplete.fed(&record((16 << 10) - 100));
            assert!(!incomplete.is_too_much());
        }
        incomplete.fed(&record(1000));
        assert!(incomplete.is_too_much());
    }
}
