//! Detects that the client has left while its request waits.

use std::io::ErrorKind;
use std::task::{Context, Poll};

use crate::downstream::connection::Connection;
use crate::reason::Reason;

use super::cycle::{Cycle, Next, Progress, Stage};

impl Cycle {
    /// While there is nothing to send, detects that the client has left.
    ///
    /// A client that has closed both directions cannot be distinguished from one that has closed
    /// only its sending direction (RFC 9112 9.6) until something is sent to it. Unless
    /// `half_close` is set, both count as gone, so that their requests hold nothing.
    pub(super) fn watch_client(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
    ) -> Progress {
        if connection.half_close {
            return self.read_ahead(cx, connection);
        }
        match connection.transport.poll_closed(cx) {
            Poll::Ready(_) if self.looks_complete() => {
                // A client that has closed only its own direction would take the content for
                // complete.
                connection.transport.reset_on_drop();
                self.client_gone()
            }
            Poll::Ready(_) => {
                // Unread input would turn the close into a reset, which may destroy an earlier
                // response on its way to a client that has closed only its own direction.
                self.client_gone();
                self.begin_lingering(connection)
            }
            Poll::Pending => Progress::Wait,
        }
    }

    /// Whether the client would take the content sent so far for complete if the connection closed.
    fn looks_complete(&self) -> bool {
        matches!(&self.stage, Stage::Sending(writer) if writer.looks_complete(&self.exchange))
    }

    /// Reads requests that the client has sent in advance, up to one buffer, and detects a reset.
    fn read_ahead(&mut self, cx: &mut Context<'_>, connection: &mut Connection) -> Progress {
        if self.input_ended || !self.body.is_complete() {
            return Progress::Wait;
        }
        while !connection.is_full() {
            match connection.poll_fill(cx) {
                Poll::Ready(Ok(1..)) => {}
                // The request is complete, so it does not matter whether TLS has announced the end.
                Poll::Ready(Err(error)) if error.kind() != ErrorKind::UnexpectedEof => {
                    return self.client_gone();
                }
                Poll::Ready(_) => {
                    self.input_ended = true;
                    self.keep_alive &= !connection.input().is_empty();
                    break;
                }
                Poll::Pending => break,
            }
        }
        Progress::Wait
    }

    pub(super) fn client_gone(&mut self) -> Progress {
        self.exchange.record.reason = Some(Reason::ClientGone);
        Progress::Then(Next::Close)
    }
}
