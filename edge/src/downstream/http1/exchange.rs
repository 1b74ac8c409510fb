//! One request being answered: awaiting, replying, and what has to happen before the next one.
//!
//! It lives on the stack for as long as nothing has to be waited for, and is boxed when it does.

use std::task::{Context, Poll};

use crate::downstream::Refusal;
use crate::downstream::deadlines::NEVER;
use crate::handler::{Answer, Fault, Pending, Response};
use crate::http::Version;
use crate::reason::Reason;

use super::account::Account;
use super::outbox::Outbox;
use super::patience::Patience;
use super::render::{self, Persistence};
use super::reply::{self, Reply};
use super::tunnel::Tunnel;
use super::upload::Upload;
use super::wire::{Budget, Wire, guarded, yield_turn};

/// Unwanted bytes that are read to keep or to close a connection cleanly.
pub(super) const DISCARD_BYTES_MAX: u64 = 256 << 10;
/// How long a client may go on sending after it was told to stop.
const LINGER: std::time::Duration = std::time::Duration::from_secs(2);

/// A request from its head to the end of its response.
pub struct Exchange {
    pub(super) account: Account,
    pub(super) upload: Option<Upload>,
    /// The client waits for `100 Continue` before it sends the body.
    owes_continue: bool,
    /// The client sends nothing more.
    input_ended: bool,
    pub(super) stage: Stage,
    out: Outbox,
    pub(super) patience: Patience,
}

pub(super) enum Stage {
    /// The response is not there yet.
    Awaiting(Pending),
    /// It is being sent.
    Replying(Reply),
    /// It is sent; the rest of the request is read and thrown away, so many bytes at most.
    Discarding(u64),
    /// We are done, and the client may still be sending.
    Lingering(u64),
    /// Bytes both ways.
    Tunnelling(Box<Tunnel>),
}

/// What comes after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another request.
    Request,
    /// The end of the connection.
    Close,
}

pub(super) enum Progress {
    Again,
    Yield,
    Wait,
    Then(Next),
}

impl Exchange {
    /// Of a request to which the answer is still to be given.
    #[inline]
    pub fn new(
        account: Account,
        upload: Option<Upload>,
        owes_continue: bool,
        wire: &Wire,
    ) -> Exchange {
        Exchange {
            account,
            upload,
            owes_continue,
            input_ended: false,
            stage: Stage::Discarding(0),
            out: wire.worker.pool.outbox(),
            patience: Patience::default(),
        }
    }

    /// Answers it.
    #[inline]
    pub fn answer(&mut self, answer: Answer, wire: &Wire) {
        match answer {
            Answer::Ready(result) => self.respond(result, wire),
            Answer::Later(pending) => self.stage = Stage::Awaiting(pending),
        }
    }

    /// Refuses it.
    pub fn refuse(&mut self, refusal: Refusal, wire: &Wire) {
        self.account.reason = Some(refusal.reason);
        self.send(&mut refusal.response(), wire);
    }

    /// Goes on until something has to be waited for.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        wire: &mut Wire,
        budget: &mut Budget,
    ) -> Poll<Next> {
        loop {
            self.pump(cx, wire, budget);
            self.patience.reply_waits = false;
            match self.advance(cx, wire, budget) {
                Progress::Again => {}
                Progress::Then(next) => return Poll::Ready(next),
                Progress::Yield => {
                    yield_turn(cx);
                    break;
                }
                Progress::Wait => break,
            }
        }
        self.watch_the_time(cx, wire, budget)
    }

    fn advance(&mut self, cx: &mut Context<'_>, wire: &mut Wire, budget: &mut Budget) -> Progress {
        match &mut self.stage {
            Stage::Awaiting(_) => self.await_response(cx, wire, budget),
            Stage::Replying(_) => self.reply(cx, wire, budget),
            Stage::Discarding(_) => self.discard(cx, wire, budget),
            Stage::Lingering(_) => self.linger(cx, wire),
            Stage::Tunnelling(tunnel) => {
                // What the handler said before, and its 101, come first.
                if !self.out.is_empty() {
                    return match wire.poll_flush(cx, &mut self.out, budget) {
                        Poll::Ready(Ok(())) => Progress::Again,
                        Poll::Ready(Err(_)) => Progress::Then(Next::Close),
                        Poll::Pending => Progress::Wait,
                    };
                }
                match tunnel.poll(cx, wire) {
                    Poll::Ready(()) => {
                        self.account.body_bytes = tunnel.bytes_to_client();
                        self.account.complete = true;
                        Progress::Then(Next::Close)
                    }
                    Poll::Pending => Progress::Wait,
                }
            }
        }
    }

    /// Moves what the client sends of the body to its reader, as far as that one wants it.
    fn pump(&mut self, cx: &mut Context<'_>, wire: &mut Wire, budget: &mut Budget) {
        self.patience.upload_waits = false;
        let Some(upload) = &mut self.upload else {
            return;
        };
        if !matches!(self.stage, Stage::Awaiting(_) | Stage::Replying(_)) || upload.is_complete() {
            return;
        }
        while upload.poll_room(cx).is_ready() && !budget.is_spent() {
            if self.owes_continue && wire.input().is_empty() {
                self.owes_continue = false;
                if let Stage::Awaiting(_) = self.stage {
                    self.out.text(|t| render::interim(t, 100, b""));
                }
            }
            if !wire.input().is_empty() {
                self.owes_continue = false;
                let Ok(used) = upload.take(wire.input()) else {
                    // Where the next request would begin can't be known any more.
                    self.account.keep = false;
                    self.account.lingers = true;
                    return;
                };
                wire.used(used);
                budget.read(used);
                continue;
            }
            match wire.poll_fill(cx) {
                Poll::Ready(Ok(n)) if n > 0 => {
                    self.patience
                        .upload
                        .progress(wire.worker.deadlines.now(), n);
                }
                Poll::Ready(_) => return upload.fail(Reason::ClientGone.into()),
                Poll::Pending => {
                    self.patience.upload_waits = true;
                    return;
                }
            }
        }
        if budget.is_spent() {
            // There is room and there may be more: nobody else would wake us.
            yield_turn(cx);
        }
    }

    fn await_response(
        &mut self,
        cx: &mut Context<'_>,
        wire: &mut Wire,
        budget: &mut Budget,
    ) -> Progress {
        let fault = self.upload.as_ref().and_then(Upload::fault);
        let Stage::Awaiting(pending) = &mut self.stage else {
            return Progress::Wait;
        };
        if let Some(fault) = fault {
            self.respond(Err(fault), wire);
            return Progress::Again;
        }
        if let (Some(interim), true) = (&pending.interim, self.out.is_empty())
            && self.account.asked.version == Version::Http11
        {
            while let Poll::Ready((status, fields)) = interim.poll_next(cx) {
                self.out.text(|t| render::interim(t, status, fields.text()));
            }
        }
        match guarded(wire, || pending.response.as_mut().poll(cx)) {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(result)) => {
                self.respond(result, wire);
                return Progress::Again;
            }
            Err(fault) => {
                self.respond(Err(fault), wire);
                return Progress::Again;
            }
        }
        while !self.out.is_empty() {
            match wire.poll_flush(cx, &mut self.out, budget) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return self.gone(),
                Poll::Pending => {
                    self.patience.reply_waits = true;
                    return Progress::Wait;
                }
            }
        }
        self.look_ahead(cx, wire)
    }

    /// While there is nothing to tell the client: what it has sent already of its next requests, as
    /// much as one buffer holds, and whether it has reset the connection.
    ///
    /// Its end is no reason to stop: a client may close its sending side behind its last request and
    /// read on (RFC 9112 9.6 closes in halves too). One that has closed both looks the same until
    /// something is sent to it, so what it asked for may be worked out for nobody; an answer that
    /// somebody waits for is worth more than that.
    fn look_ahead(&mut self, cx: &mut Context<'_>, wire: &mut Wire) -> Progress {
        if self.input_ended || self.upload.as_ref().is_some_and(|u| !u.is_complete()) {
            return Progress::Wait;
        }
        while !wire.is_full() {
            match wire.poll_fill(cx) {
                Poll::Ready(Ok(0)) => {
                    self.input_ended = true;
                    self.account.keep &= !wire.input().is_empty();
                    break;
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return self.gone(),
                Poll::Pending => break,
            }
        }
        Progress::Wait
    }

    fn gone(&mut self) -> Progress {
        self.account.reason = Some(Reason::ClientGone);
        Progress::Then(Next::Close)
    }

    #[inline]
    fn respond(&mut self, mut result: Result<Response, Fault>, wire: &Wire) {
        match &mut result {
            Ok(response) if self.is_final(response) => self.send(response, wire),
            Ok(_) => self.fail(Reason::UnexpectedStatus.into(), wire),
            Err(fault) => self.fail(*fault, wire),
        }
    }

    /// A 1xx is no final response, but for a 101 that was asked for and leads somewhere.
    #[inline]
    fn is_final(&self, response: &Response) -> bool {
        match response.status {
            101 => self.account.upgrade && response.upgrade.is_some(),
            status => (200..=999).contains(&status),
        }
    }

    fn fail(&mut self, fault: Fault, wire: &Wire) {
        self.send(&mut fault.response(), wire);
    }

    /// From a response to a head in the outbox and content behind it.
    fn send(&mut self, response: &mut Response, wire: &Wire) {
        self.decide_persistence(wire);
        let persistence = match (response.status, self.account.keep) {
            (101, _) => Persistence::Upgrade,
            (_, false) => Persistence::Close,
            (_, true) => {
                let options = &self.account.serving.options;
                let timeout_s = options
                    .keepalive_header
                    .then_some(options.keepalive_timeout.as_secs());
                Persistence::Keep { timeout_s }
            }
        };
        let asked = self.account.asked;
        let delivery = render::delivery(response, asked);
        if delivery == render::Delivery::UntilClose {
            self.account.keep = false;
        }
        let persistence = match delivery {
            render::Delivery::UntilClose => Persistence::Close,
            _ => persistence,
        };
        self.account.answered(response);
        wire.worker.with_date(|date| {
            self.out.text(|t| {
                render::head(t, response, delivery, persistence, asked.version, date);
            });
        });
        self.stage = match response.upgrade.take() {
            Some(duplex) if response.status == 101 => {
                Stage::Tunnelling(Box::new(Tunnel::new(duplex)))
            }
            _ => Stage::Replying(Reply::new(std::mem::take(&mut response.body), delivery)),
        };
    }

    /// Whether the next request can be found behind this one.
    fn decide_persistence(&mut self, wire: &Wire) {
        if wire.worker.is_draining() {
            self.account.keep = false;
        }
        let Some(upload) = &self.upload else { return };
        let readable = upload.is_complete()
            || (!self.owes_continue
                && upload.fault().is_none()
                && (!upload.is_abandoned() || upload.may_end_within(DISCARD_BYTES_MAX)));
        if !readable {
            self.account.keep = false;
            self.account.lingers = true;
        }
    }

    fn reply(&mut self, cx: &mut Context<'_>, wire: &mut Wire, budget: &mut Budget) -> Progress {
        let Stage::Replying(reply) = &mut self.stage else {
            return Progress::Wait;
        };
        let step = reply.poll(cx, &mut self.out, wire, budget);
        // Of what is gathered and not sent some may be framing: rather too little than too much.
        self.account.body_bytes = reply.content().saturating_sub(self.out.len() as u64);
        match step {
            reply::Step::Yield => Progress::Yield,
            reply::Step::Blocked => {
                self.patience.reply_waits = true;
                Progress::Wait
            }
            reply::Step::Starved => self.look_ahead(cx, wire),
            reply::Step::Gone => self.gone(),
            reply::Step::Cut(fault) => {
                self.account.reason = Some(fault.reason);
                if reply.looks_whole() {
                    wire.socket.reset_on_drop();
                }
                Progress::Then(Next::Close)
            }
            reply::Step::Done => {
                self.account.complete = true;
                self.account.close();
                self.after_reply(wire)
            }
        }
    }

    /// Sets the deadline for what the client is waited for, and acts if it has passed.
    fn watch_the_time(
        &mut self,
        cx: &mut Context<'_>,
        wire: &mut Wire,
        budget: &mut Budget,
    ) -> Poll<Next> {
        wire.release();
        let deadlines = &wire.worker.deadlines;
        let now = deadlines.now();
        let written = budget.take_written();
        if written > 0 {
            self.patience.wrote(now, written);
        }
        let options = &self.account.serving.options;
        let look = self.patience.look(options, now, &wire.socket);
        let lingers = matches!(self.stage, Stage::Lingering(_));
        let (upload, reply) = self.patience.limits(options, now, lingers);
        let whole = match &mut self.stage {
            Stage::Lingering(_) => self.patience.linger(now, LINGER),
            Stage::Tunnelling(tunnel) => tunnel.deadline(now),
            _ => NEVER,
        };
        let soonest = upload.min(reply).min(whole).min(look);
        deadlines.set(wire.slot, soonest, false);
        if whole <= now {
            return Poll::Ready(Next::Close);
        }
        if reply <= now {
            wire.worker.counters.client_timeouts.add(1);
            self.account.reason = Some(Reason::SendTimeout);
            wire.socket.reset_on_drop();
            return Poll::Ready(Next::Close);
        }
        if upload <= now {
            return self.upload_timed_out(cx, wire);
        }
        Poll::Pending
    }

    fn upload_timed_out(&mut self, cx: &mut Context<'_>, wire: &mut Wire) -> Poll<Next> {
        wire.worker.counters.client_timeouts.add(1);
        match (&self.stage, &self.upload) {
            (Stage::Awaiting(_) | Stage::Replying(_), Some(upload)) => {
                // The next poll answers with it; a reply that has begun is for the handler to end.
                upload.fail(Reason::RequestBodyTimeout.into());
                self.account.keep = false;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            _ => Poll::Ready(Next::Close),
        }
    }

    /// The time to drain is over.
    pub fn cut_off(&mut self) {
        self.account.reason = Some(Reason::DrainTimeout);
    }

    /// Gives back what was borrowed.
    #[inline]
    pub fn finish(&mut self, wire: &Wire) {
        wire.worker.pool.put_outbox(std::mem::take(&mut self.out));
    }
}
