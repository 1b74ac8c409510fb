//! `HeaderLines`, to which the headers of a request are added in the form of each protocol.

/// Header lines to which a message's headers are added, in the form of one protocol.
pub(super) trait HeaderLines {
    /// Adds a line. `write` appends the value to the buffer that it gets. The name is sent in lower
    /// case.
    fn line_with(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>));

    /// Adds a line with this value.
    fn line(&mut self, name: &[u8], value: &[u8]) {
        self.line_with(name, |out| out.extend_from_slice(value));
    }
}
