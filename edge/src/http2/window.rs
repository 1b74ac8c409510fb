//! Flow-control windows (RFC 9113 5.2, 6.9).

/// Largest window.
pub const WINDOW_MAX: u32 = (1 << 31) - 1;

/// A window has left its bounds: an error of type FLOW_CONTROL_ERROR, of the connection or of the stream to which the
/// window belongs (RFC 9113 6.9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

/// The number of bytes that one side may still send. Negative after the peer has reduced
/// SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(i32);

impl Window {
    /// Creates a window of at most `WINDOW_MAX` bytes.
    pub fn new(bytes: u32) -> Window {
        Window(bytes.min(WINDOW_MAX) as i32)
    }

    /// Returns the number of bytes that may be sent.
    #[inline]
    pub fn available(self) -> u32 {
        u32::try_from(self.0).unwrap_or(0)
    }

    /// Subtracts bytes that are sent or received.
    ///
    /// # Errors
    ///
    /// More than available. The window is unchanged.
    #[inline]
    pub fn consume(&mut self, bytes: u32) -> Result<(), Overflow> {
        if bytes > self.available() {
            // A frame without content is permitted even if the window is negative.
            return if bytes == 0 { Ok(()) } else { Err(Overflow) };
        }
        self.0 -= bytes as i32;
        Ok(())
    }

    /// Adds the increment of a WINDOW_UPDATE.
    ///
    /// # Errors
    ///
    /// The window would be above `WINDOW_MAX`. The window is unchanged.
    #[inline]
    pub fn expand(&mut self, increment: u32) -> Result<(), Overflow> {
        self.shift(i64::from(increment))
    }

    /// Takes over a change of SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 6.9.2).
    ///
    /// # Errors
    ///
    /// The window would be above `WINDOW_MAX`, which is an error of the connection. The window is unchanged.
    pub fn adjust(&mut self, before: u32, after: u32) -> Result<(), Overflow> {
        self.shift(i64::from(after) - i64::from(before))
    }

    fn shift(&mut self, by: i64) -> Result<(), Overflow> {
        self.0 = i32::try_from(i64::from(self.0) + by).map_err(|_| Overflow)?;
        Ok(())
    }
}

/// The window of received bytes: the bytes that the peer may still send, and those that were consumed and not announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveWindow {
    window: Window,
    /// The size that the window regains.
    size: u32,
    /// Bytes to announce with the next WINDOW_UPDATE.
    owed: u32,
    /// Increment from which on a WINDOW_UPDATE is worth sending.
    least: u32,
}

impl ReceiveWindow {
    /// Creates a window, of which the peer knows `announced` bytes. The first update announces the rest of `size`.
    pub fn new(announced: u32, size: u32) -> ReceiveWindow {
        let size = size.clamp(announced, WINDOW_MAX);
        ReceiveWindow {
            window: Window::new(announced),
            size,
            owed: size - announced.min(size),
            least: size / 2,
        }
    }

    /// Makes updates of at least this increment worth sending, instead of half of the window. The window of a connection
    /// needs this, since streams that are not read may hold more than half of it.
    #[must_use]
    pub fn updated_by(self, least: u32) -> ReceiveWindow {
        ReceiveWindow { least, ..self }
    }

    /// Counts received payload, including padding (RFC 9113 6.9.1).
    ///
    /// # Errors
    ///
    /// The peer has sent more than the window permits.
    #[inline]
    pub fn receive(&mut self, bytes: u32) -> Result<(), Overflow> {
        self.window.consume(bytes)
    }

    /// Counts received bytes that need no memory any more. The sum must not exceed the received bytes.
    #[inline]
    pub fn release(&mut self, bytes: u32) {
        self.owed = self.owed.saturating_add(bytes);
    }

    /// Returns the size that the window regains.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Makes the window larger. The next update announces that.
    pub fn grow(&mut self, bytes: u32) {
        let bytes = bytes.min(WINDOW_MAX - self.size);
        self.size += bytes;
        self.owed = self.owed.saturating_add(bytes);
        self.least = self.size / 2;
    }

    /// Takes over a change of SETTINGS_INITIAL_WINDOW_SIZE, which changes the size by the same amount (RFC 9113 6.9.2).
    ///
    /// # Errors
    ///
    /// The window would be above `WINDOW_MAX`.
    pub fn adjust(&mut self, before: u32, after: u32) -> Result<(), Overflow> {
        self.window.adjust(before, after)?;
        let size = i64::from(self.size) + i64::from(after) - i64::from(before);
        self.size = size.clamp(1, i64::from(WINDOW_MAX)) as u32;
        self.least = self.size / 2;
        Ok(())
    }

    /// Returns the increment of a WINDOW_UPDATE that is worth sending: by default at least half of the window, so that a
    /// long body needs few frames and a sender never waits for one whose bytes were released.
    #[inline]
    pub fn update(&mut self) -> Option<u32> {
        if self.owed == 0 || self.owed < self.least {
            return None;
        }
        let increment = std::mem::take(&mut self.owed).min(WINDOW_MAX - self.window.available());
        self.window.expand(increment).ok()?;
        (increment > 0).then_some(increment)
    }

    /// Returns the number of bytes that the peer may still send.
    #[cfg(test)]
    pub fn available(&self) -> u32 {
        self.window.available()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bounds_are_kept() {
        let mut window = Window::new(10);
        assert_eq!(window.consume(11), Err(Overflow));
        assert_eq!(window.consume(10), Ok(()));
        assert_eq!(window.expand(WINDOW_MAX), Ok(()));
        assert_eq!(window.expand(1), Err(Overflow));
        assert_eq!(window.available(), WINDOW_MAX);
        let mut window = Window::new(65_535);
        assert_eq!(window.consume(65_000), Ok(()));
        assert_eq!(window.adjust(65_535, 0), Ok(()));
        assert_eq!((window.available(), window), (0, Window(-65_000)));
        assert_eq!(
            (window.consume(1), window.consume(0)),
            (Err(Overflow), Ok(()))
        );
        assert_eq!(window.expand(65_001), Ok(()));
        assert_eq!(window.available(), 1);
        let mut full = Window::new(WINDOW_MAX);
        assert_eq!(full.adjust(0, 1), Err(Overflow));
    }

    #[test]
    fn the_first_update_announces_the_whole_window() {
        let mut window = ReceiveWindow::new(65_535, 1 << 20);
        assert_eq!(window.update(), Some((1 << 20) - 65_535));
        assert_eq!(window.update(), None);
    }

    #[test]
    fn a_window_of_which_most_is_held_is_still_opened() {
        let mut window = ReceiveWindow::new(100, 100).updated_by(5);
        assert_eq!(window.receive(100), Ok(()));
        window.release(4);
        assert_eq!(window.update(), None);
        window.release(1);
        assert_eq!((window.update(), window.available()), (Some(5), 5));
    }

    proptest! {
        #[test]
        fn a_window_never_exceeds_its_size_and_never_starves(
            announced in 1u32..5000, size in 1u32..10_000,
            steps in prop::collection::vec((0u32..4000, 0u32..4000), 0..100),
        ) {
            let mut window = ReceiveWindow::new(announced, size);
            let size = size.max(announced);
            let mut held = 0;
            for (received, released) in steps {
                let received = received.min(window.available());
                prop_assert_eq!(window.receive(received), Ok(()));
                prop_assert_eq!(window.receive(window.available() + 1), Err(Overflow));
                held += received;
                let released = released.min(held);
                held -= released;
                window.release(released);
                window.update();
                prop_assert!(window.available() + held <= size);
            }
            window.release(held);
            window.update();
            prop_assert!(window.available() > 0 && window.available() >= size / 2);
        }
    }
}
