//! One stream with its exchange: the request's content goes in, the response's content comes out part by part.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::downstream::deadlines::Tick;
use crate::downstream::exchange::{Exchange, Intake, Part, UnreadMemory};
use crate::handler::{Body, Receipt};
use crate::http::Fields;
use crate::reason::Reason;

use super::tunnel::Tunnel;

/// An exchange on a stream.
pub struct Stream {
    /// The exchange.
    pub exchange: Exchange,
    /// Whether the request has ended.
    has_request: bool,
    /// Whether the final response's head has been queued.
    pub responds: bool,
    /// Whether the client waits for `100 Continue` before it sends the content.
    pub owes_continue: bool,
    /// Learns how much of the content the client has received.
    pub receipt: Option<Arc<dyn Receipt>>,
    takes_trailers: bool,
    /// The content of a request for a tunnel, until its response begins.
    pub tunnel_content: Option<Body>,
    /// The tunnel that is the content in both directions.
    pub tunnel: Option<Tunnel>,
    /// The memory of the request's content that has arrived and not been read.
    unread: Option<UnreadMemory>,
    /// Whether the reader of the request has begun to read.
    is_read: bool,
    /// Number of the request on its connection.
    pub number: u64,
    /// Number of bytes that are written to the connection before the last queued content has been sent.
    pub queued_until: u64,
    /// Content that has been taken from the exchange and not been queued.
    part: Bytes,
    end: Option<End>,
}

/// The end of the content, which follows `part`.
#[derive(Debug)]
pub enum End {
    /// The content is complete.
    Complete(Option<Fields>),
    /// The content is truncated for this reason.
    Cut(Reason),
}

impl Stream {
    /// Creates the stream of an exchange.
    pub fn new(exchange: Exchange, owes_continue: bool, takes_trailers: bool) -> Stream {
        Stream {
            has_request: exchange.intake.is_none(),
            exchange,
            responds: false,
            owes_continue,
            receipt: None,
            takes_trailers,
            tunnel_content: None,
            tunnel: None,
            unread: None,
            is_read: false,
            number: 0,
            queued_until: 0,
            part: Bytes::new(),
            end: None,
        }
    }

    /// Counts the unread content of a request of this client from now on.
    pub fn count_unread(&mut self, client: IpAddr) {
        self.unread = Some(UnreadMemory::new(client));
    }

    /// Returns the number of bytes that the reader of the request has taken since the last call, and whether it has begun
    /// to read since then. If it has dropped the content, the dropped bytes count as taken.
    pub fn poll_taken(&mut self, cx: &mut Context<'_>) -> (u32, bool) {
        let Some(intake) = &self.exchange.intake else {
            return (0, false);
        };
        let taken = intake.poll_taken(cx);
        let begins = !self.is_read && intake.is_wanted();
        self.is_read |= begins;
        if let (1.., Some(unread)) = (taken, &mut self.unread) {
            // Fewer bytes never exceed the limit.
            let _ = unread.set(&self.exchange.record, intake.queued());
        }
        (taken as u32, begins)
    }

    /// Whether the reader of the request has dropped its content.
    pub fn is_abandoned(&self) -> bool {
        let intake = self.exchange.intake.as_ref();
        intake.is_some_and(Intake::is_abandoned)
    }

    /// Whether the client still has to send a part of the request.
    pub fn awaits_request(&self) -> bool {
        !self.has_request
    }

    /// Passes content of the request to its reader.
    pub fn receive(&mut self, content: &[u8], ends: bool, now: Tick) {
        self.owes_continue = false;
        let Some(intake) = &mut self.exchange.intake else {
            return;
        };
        if intake.fault().is_some() {
            return;
        }
        let mut counted = intake.count(content.len());
        if let Some(unread) = &mut self.unread
            && !intake.is_abandoned()
        {
            let bytes = intake.queued() + content.len();
            counted = counted.and_then(|()| unread.set(&self.exchange.record, bytes));
        }
        if let Err(fault) = counted {
            return intake.fail(fault);
        }
        if !content.is_empty() {
            self.exchange.timeouts.received(now, content.len());
            intake.push(content);
        }
        if ends {
            self.end_request(None);
        }
    }

    /// Ends the content of the request.
    pub fn end_request(&mut self, trailers: Option<Fields>) {
        self.has_request = true;
        if let Some(intake) = &mut self.exchange.intake {
            intake.end(trailers.filter(|fields| !fields.is_empty()));
        }
    }

    /// Ends the content of the request with a fault.
    pub fn fail_request(&mut self, reason: Reason) {
        self.has_request = true;
        if let Some(intake) = &self.exchange.intake {
            intake.fail(reason.into());
        }
    }

    /// Whether the reader of the request wants its content.
    pub fn wants_content(&self) -> bool {
        let intake = self.exchange.intake.as_ref();
        intake.is_some_and(|intake| intake.is_wanted() && intake.fault().is_none())
    }

    /// Whether the content of the request has failed, which is the response unless that has begun.
    pub fn awaits_fault(&self) -> bool {
        let intake = self.exchange.intake.as_ref();
        !self.responds && intake.is_some_and(|intake| intake.fault().is_some())
    }

    /// Whether the reader of the request waits for content that the client may send.
    pub fn awaits_data(&self) -> bool {
        let intake = self.exchange.intake.as_ref();
        // A tunnel has a timeout of its own.
        let is_upload = !self.has_request && self.tunnel.is_none();
        is_upload && intake.is_some_and(Intake::is_starved)
    }

    /// Takes content from the exchange until there is some or the content has ended. Looks one part ahead, so that the last
    /// content carries the end. Returns whether there is something to send.
    pub fn fetch(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(tunnel) = &self.tunnel {
            tunnel.poll_up(cx, self.exchange.record.counters());
        }
        while self.end.is_none() && self.part.is_empty() {
            match self.exchange.poll_content(cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(Part::Data(bytes))) => {
                    self.part = bytes;
                    self.fetch_end();
                }
                Poll::Ready(Ok(Part::End(trailers))) => {
                    let trailers =
                        trailers.filter(|fields| self.takes_trailers && !fields.is_empty());
                    self.end = Some(End::Complete(trailers));
                }
                Poll::Ready(Err(fault)) => self.end = Some(End::Cut(fault.reason)),
                // A transport that does not send files gets none.
                Poll::Ready(Ok(Part::File(_))) => {
                    self.end = Some(End::Cut(Reason::FileFailed));
                }
            }
        }
        self.has_content()
    }

    /// If all declared content has been taken, takes the end, which is there then.
    fn fetch_end(&mut self) {
        if !self.exchange.is_all_given() {
            return;
        }
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match self.exchange.poll_content(&mut cx) {
            Poll::Ready(Ok(Part::End(trailers))) => {
                let trailers = trailers.filter(|fields| self.takes_trailers && !fields.is_empty());
                self.end = Some(End::Complete(trailers));
            }
            Poll::Ready(Err(fault)) => self.end = Some(End::Cut(fault.reason)),
            Poll::Ready(Ok(_)) | Poll::Pending => {}
        }
    }

    /// Whether there is content or an end to send.
    pub fn has_content(&self) -> bool {
        !self.part.is_empty() || self.end.is_some()
    }

    /// Whether only the end is left, which needs no window.
    pub fn is_at_end(&self) -> bool {
        self.part.is_empty() && self.end.is_some()
    }

    /// Takes at most this many bytes of content. Also returns the end if it follows directly.
    pub fn take(&mut self, most: u32) -> (Bytes, Option<End>) {
        let length = self.part.len().min(most as usize);
        let bytes = self.part.split_to(length);
        let end = if self.part.is_empty() {
            self.end.take()
        } else {
            None
        };
        (bytes, end)
    }

    /// Records how much of the content has been sent: all that was queued except `unsent` bytes.
    pub fn record_sent(&mut self, unsent: usize) {
        self.exchange.record_sent((self.part.len() + unsent) as u64);
    }
}
