//! Our client against the server of the h2 crate.

use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use h2::server::{Connection, Handshake, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{Response, StatusCode};
use sluice::test_rigs::http2::ErrorCode;
use sluice::test_rigs::http2::client::{Client, Event, Options};
use sluice::test_rigs::http2::response::Response as Received;

use super::{
    Lines, Message, OPERATIONS, ROUNDS, STREAMS, Script, Transport, check_interim, content,
    context, encode, of_fields, of_map, receive, release, sorted, to_map,
};

const METHODS: [&str; 4] = ["GET", "POST", "HEAD", "PUT"];
const STATUSES: [u16; 6] = [200, 404, 206, 503, 204, 304];

/// Runs a connection with the input as its script.
pub fn run(data: &[u8]) {
    let mut script = Script::new(data);
    let mut run = Run::new(&mut script);
    for _ in 0..OPERATIONS {
        let Some(operation) = script.next() else {
            break;
        };
        run.operate(operation, &mut script);
        run.drive();
    }
    run.settle();
    run.check();
}

/// A stream, as both sides know it.
#[derive(Default)]
struct Stream {
    head_only: bool,
    /// The client's slot, the content of the request that it has not sent, whether the request ends after it, and the
    /// content of the response that it has not consumed.
    slot: Option<usize>,
    pending: usize,
    is_last: bool,
    held: u32,
    /// The server's ends.
    upload: Option<RecvStream>,
    unreleased: usize,
    respond: Option<SendResponse<Bytes>>,
    download: Option<SendStream<Bytes>>,
    request_sent: Message,
    request_received: Message,
    response_sent: Message,
    response_received: Message,
    /// Fields of the interim heads (103).
    interim_sent: Vec<Lines>,
    interim_received: Vec<Lines>,
    /// Whether the response ended before the request, so that the client has cancelled the rest.
    is_early: bool,
    /// The codes with which each side has reset the stream, and those that the other side has received.
    client_reset: Option<u32>,
    server_reset: Option<u32>,
    client_saw: Option<u32>,
    server_saw: Option<u32>,
    /// Whether the client knows that the request was not processed, because of GOAWAY.
    is_unprocessed: bool,
}

/// The server of h2, before and after it has read the preface.
enum Server {
    Begins(Handshake<Transport, Bytes>),
    Runs(Connection<Transport, Bytes>),
    Closed,
}

struct Run {
    transport: Transport,
    server: Server,
    client: Client,
    now_ms: u64,
    input: Vec<u8>,
    out: Vec<u8>,
    response: Received,
    streams: Vec<Stream>,
    pings: usize,
    pongs: usize,
    is_shut: bool,
}

impl Run {
    fn new(script: &mut Script<'_>) -> Run {
        let mut options = Options::default();
        options.limits.streams = 1 + script.byte() as u32 % 8;
        options.limits.stream_window = super::WINDOW_MIN + script.length() as u32;
        options.limits.header_list = 128 << 10;
        options.limits.block.bytes = 256 << 10;
        options.limits.block.continuations = 32;
        let mut out = Vec::new();
        let client = Client::new(options, 0, &mut out);
        let transport = Transport::default();
        let mut builder = h2::server::Builder::new();
        builder.initial_window_size(script.length() as u32);
        builder.max_frame_size((16 << 10) + script.length() as u32);
        builder.header_table_size(script.length() as u32);
        builder.max_concurrent_streams(1 + script.byte() as u32 % 8);
        // Streams above the limit are refused, which is no misuse before the client knows it.
        builder.max_local_error_reset_streams(None);
        if script.flag() {
            builder.initial_connection_window_size(script.length() as u32 + 65_535);
        }
        Run {
            server: Server::Begins(builder.handshake(transport.clone())),
            transport,
            client,
            now_ms: 0,
            input: Vec::new(),
            out,
            response: Received::default(),
            streams: Vec::new(),
            pings: 0,
            pongs: 0,
            is_shut: false,
        }
    }

    fn operate(&mut self, operation: u8, script: &mut Script<'_>) {
        match operation % 20 {
            0 | 1 => self.begin(script),
            2 | 3 => {
                if let Some(stream) = pick(&mut self.streams, script)
                    && stream.slot.is_some()
                    && !stream.is_last
                {
                    stream.pending += script.content();
                    stream.is_last = script.flag();
                }
            }
            4 => self.end_request(script),
            5 => self.reset_by_client(script),
            6 => self.consume(script),
            7 => self.change_windows(script),
            8 | 9 => {
                self.transport.collect(&mut self.input, script.length());
                self.take();
            }
            10 | 11 => self.transport.deliver(&mut self.out, script.length()),
            12 | 13 => self.respond(script),
            14 => self.download(script),
            15 => self.reset_by_server(script),
            16 => {
                if let Some(stream) = pick(&mut self.streams, script)
                    && let Some(upload) = &mut stream.upload
                {
                    release(upload, &mut stream.unreleased, script.length());
                }
            }
            17 => self.interim(script),
            _ => self.pass_time(script),
        }
    }

    fn begin(&mut self, script: &mut Script<'_>) {
        let number = self.streams.len();
        if number == STREAMS {
            return;
        }
        let method = METHODS[script.byte() % METHODS.len()];
        let lines = script.lines();
        let ends = script.flag();
        let path = format!("/{number}");
        let begun = self
            .client
            .begin(ends, method == "HEAD", &mut self.out, |encoder, out| {
                let pseudo = [
                    (":method", method),
                    (":scheme", "http"),
                    (":path", &path),
                    (":authority", "a"),
                ];
                let pseudo = pseudo.map(|(name, value)| (name.to_owned(), value.to_owned()));
                encode(encoder, out, &pseudo.into());
                encode(encoder, out, &lines);
            });
        let Some(slot) = begun else { return };
        let is_free = self.streams.iter().all(|it| it.slot != Some(slot));
        assert!(is_free, "a slot in use");
        self.streams.push(Stream {
            head_only: method == "HEAD",
            slot: Some(slot),
            is_last: ends,
            request_sent: Message {
                head: Some(sorted(lines)),
                ends,
                ..Message::default()
            },
            ..Stream::default()
        });
    }

    fn end_request(&mut self, script: &mut Script<'_>) {
        let Some(stream) = pick(&mut self.streams, script) else {
            return;
        };
        let lines = script.trailers();
        let sent = &mut stream.request_sent;
        // h2 takes trailers of a stream that it has refused, or never seen, for a violation.
        let is_accepted = stream.upload.is_some();
        if let Some(slot) = stream.slot.filter(|_| is_accepted)
            && stream.pending == 0
            && !sent.ends
        {
            self.client.trailers(slot, &mut self.out, |encoder, out| {
                encode(encoder, out, &lines);
            });
            sent.trailers = Some(sorted(lines));
            sent.ends = true;
            stream.is_last = true;
        }
    }

    fn reset_by_client(&mut self, script: &mut Script<'_>) {
        let Some(stream) = pick(&mut self.streams, script) else {
            return;
        };
        let code = 1 + script.byte() as u32 % 13;
        if let Some(slot) = stream.slot.take() {
            stream.client_reset = Some(code);
            self.client.reset(slot, ErrorCode(code), &mut self.out);
        }
    }

    fn consume(&mut self, script: &mut Script<'_>) {
        let Some(stream) = pick(&mut self.streams, script) else {
            return;
        };
        let length = (script.length() as u32).min(stream.held);
        if let Some(slot) = stream.slot {
            stream.held -= length;
            self.client
                .consume(slot, length, self.now_ms, &mut self.out);
        }
    }

    fn change_windows(&mut self, script: &mut Script<'_>) {
        let size = script.length() as u32;
        if let Server::Runs(connection) = &mut self.server {
            match script.flag() {
                // Refused if settings are on their way.
                true => drop(connection.set_initial_window_size(size)),
                false => connection.set_target_window_size(size + 65_535),
            }
        }
    }

    fn respond(&mut self, script: &mut Script<'_>) {
        let Some((number, stream)) = pick_numbered(&mut self.streams, script) else {
            return;
        };
        let status = STATUSES[script.byte() % STATUSES.len()];
        let mut lines = script.lines();
        let is_empty = stream.head_only || matches!(status, 204 | 304);
        let ends = is_empty || script.flag();
        let mut length = None;
        if stream.head_only {
            lines.push(("content-length".to_owned(), "5".to_owned()));
        } else if !ends && script.flag() {
            length = Some(script.content());
            let text = length.unwrap_or(0).to_string();
            lines.push(("content-length".to_owned(), text));
        }
        stream.respond(number, status, lines, ends, length);
    }

    fn interim(&mut self, script: &mut Script<'_>) {
        let Some(stream) = pick(&mut self.streams, script) else {
            return;
        };
        let lines = script.lines();
        // h2 sends an interim head even after it has reset the stream.
        let is_reset = stream.server_reset.is_some() || stream.server_saw.is_some();
        let Some(respond) = stream.respond.as_mut().filter(|_| !is_reset) else {
            return;
        };
        let mut head = Response::new(());
        *head.status_mut() = StatusCode::EARLY_HINTS;
        *head.headers_mut() = to_map(&lines);
        if respond.send_informational(head).is_ok() {
            stream.interim_sent.push(sorted(lines));
        }
    }

    fn download(&mut self, script: &mut Script<'_>) {
        let Some((number, stream)) = pick_numbered(&mut self.streams, script) else {
            return;
        };
        let (length, ends) = (script.content(), script.flag());
        let lines = (!ends && script.flag()).then(|| script.trailers());
        let sent = &mut stream.response_sent;
        let Some(download) = &mut stream.download else {
            return;
        };
        if sent.ends {
            return;
        }
        let part = content(number, sent.length, length);
        if download.send_data(part.into(), ends).is_ok() {
            sent.length += length as u64;
            sent.ends = ends;
        }
        if let Some(lines) = lines
            && download.send_trailers(to_map(&lines)).is_ok()
        {
            sent.trailers = Some(sorted(lines));
            sent.ends = true;
        }
    }

    fn reset_by_server(&mut self, script: &mut Script<'_>) {
        let Some(stream) = pick(&mut self.streams, script) else {
            return;
        };
        let code = 1 + script.byte() as u32 % 13;
        if stream.server_reset.is_some() {
            return;
        }
        match (&mut stream.respond, &mut stream.download) {
            (Some(respond), _) => respond.send_reset(Reason::from(code)),
            (None, Some(download)) => download.send_reset(Reason::from(code)),
            (None, None) => return,
        }
        stream.server_reset = Some(code);
    }

    fn pass_time(&mut self, script: &mut Script<'_>) {
        match script.byte() {
            255 => {
                if let Server::Runs(connection) = &mut self.server {
                    self.is_shut = true;
                    connection.graceful_shutdown();
                }
            }
            200.. => {
                self.pings += 1;
                self.client.ping([self.pings as u8; 8], &mut self.out);
            }
            tenths => self.now_ms += 100 * tenths as u64,
        }
    }

    /// Returns the stream in a slot of the client, with its number.
    fn at(&mut self, slot: usize) -> (usize, &mut Stream) {
        let mut streams = self.streams.iter_mut().enumerate();
        let found = streams.find(|(_, it)| it.slot == Some(slot));
        found.expect("a stream in this slot")
    }

    /// Handles the frames of the server that have arrived.
    fn take(&mut self) {
        loop {
            let taken =
                self.client
                    .take(&self.input, self.now_ms, &mut self.response, &mut self.out);
            let (used, event) = taken.expect("no error of the connection");
            let mut ended = None;
            match event {
                Some(Event::Head {
                    slot,
                    status: 103,
                    ends,
                }) => {
                    assert!(!ends);
                    let lines = of_fields(&self.response.fields);
                    self.at(slot).1.interim_received.push(lines);
                }
                Some(Event::Head { slot, status, ends }) => {
                    let mut lines = of_fields(&self.response.fields);
                    lines.push((":status".to_owned(), status.to_string()));
                    let received = &mut self.at(slot).1.response_received;
                    assert_eq!(received.head, None);
                    received.head = Some(sorted(lines));
                    ended = ends.then_some(slot);
                }
                Some(Event::Content {
                    slot,
                    content,
                    ends,
                }) => {
                    let found = self.streams.iter_mut().enumerate();
                    let (number, stream) = { found }
                        .find(|(_, it)| it.slot == Some(slot))
                        .expect("a stream in this slot");
                    stream.response_received.receive(number, content);
                    stream.held += content.len() as u32;
                    ended = ends.then_some(slot);
                }
                Some(Event::Trailers { slot, fields }) => {
                    let received = &mut self.at(slot).1.response_received;
                    received.trailers = Some(of_fields(&fields));
                    ended = Some(slot);
                }
                Some(Event::Failed {
                    slot,
                    code,
                    violation,
                }) => {
                    assert_eq!(violation, None);
                    let stream = self.at(slot).1;
                    stream.client_saw = Some(code.0);
                    stream.slot = None;
                }
                Some(Event::GoAway { code }) => {
                    assert!(self.is_shut && code == ErrorCode::NO_ERROR);
                    while let Some(slot) = self.client.take_unprocessed(&mut self.out) {
                        let stream = self.at(slot).1;
                        stream.is_unprocessed = true;
                        stream.slot = None;
                    }
                }
                Some(Event::Pong(bytes)) => {
                    self.pongs += 1;
                    assert_eq!(bytes, [self.pongs as u8; 8]);
                }
                None => {}
            }
            if let Some(slot) = ended {
                let stream = self.at(slot).1;
                stream.response_received.ends = true;
                stream.is_early = !stream.request_sent.ends;
                stream.slot = None;
                self.client.end(slot, &mut self.out);
            }
            if used == 0 {
                return;
            }
            self.input.drain(..used);
        }
    }

    /// Sends content and ends of requests, as far as the windows permit.
    fn pump(&mut self) {
        for stream in &mut self.streams {
            if let Some(slot) = stream.slot {
                self.client.set_content(slot, stream.pending > 0);
            }
        }
        while let Some((slot, most)) = self.client.next() {
            let found = self.streams.iter_mut().enumerate();
            let (number, stream) = { found }
                .find(|(_, it)| it.slot == Some(slot))
                .expect("a stream in this slot");
            let length = stream.pending.min(most as usize);
            stream.pending -= length;
            let ends = stream.is_last && stream.pending == 0;
            self.client.data(slot, length as u32, ends, &mut self.out);
            let sent = &mut stream.request_sent;
            self.out.extend(content(number, sent.length, length));
            sent.length += length as u64;
            sent.ends = ends;
            self.client.set_content(slot, stream.pending > 0);
        }
        for stream in &mut self.streams {
            let Some(slot) = stream.slot else { continue };
            if stream.is_last && stream.pending == 0 && !stream.request_sent.ends {
                self.client.data(slot, 0, true, &mut self.out);
                stream.request_sent.ends = true;
            }
        }
    }

    /// Lets both sides do what they can do without further bytes.
    fn drive(&mut self) {
        self.pump();
        for _ in 0..2 {
            self.accept();
            for (number, stream) in self.streams.iter_mut().enumerate() {
                stream.receive_request(number);
            }
        }
        assert!(self.client.memory() < 1 << 20);
    }

    /// Drives the connection of h2, and accepts its requests.
    fn accept(&mut self) {
        let mut cx = context();
        if let Server::Begins(handshake) = &mut self.server
            && let Poll::Ready(begun) = Pin::new(handshake).poll(&mut cx)
        {
            self.server = Server::Runs(begun.expect("a connection"));
        }
        loop {
            let Server::Runs(connection) = &mut self.server else {
                return;
            };
            match connection.poll_accept(&mut cx) {
                Poll::Pending => return,
                Poll::Ready(None) => {
                    self.server = Server::Closed;
                    self.transport.leave();
                }
                Poll::Ready(Some(accepted)) => {
                    let (request, respond) = accepted.expect("no error of the connection");
                    let (head, upload) = request.into_parts();
                    let number: usize = head.uri.path()[1..].parse().expect("a number");
                    let stream = &mut self.streams[number];
                    assert_eq!(stream.request_received.head, None);
                    stream.request_received.head = Some(of_map(&head.headers));
                    stream.upload = Some(upload);
                    stream.respond = Some(respond);
                }
            }
        }
    }

    /// Completes all messages.
    fn settle(&mut self) {
        let (mut idle, mut is_open) = (0, false);
        for _ in 0..ROUNDS {
            if let Server::Runs(connection) = &mut self.server
                && !is_open
            {
                connection.set_target_window_size(super::WINDOW);
                // Refused while other settings are on their way.
                is_open = connection.set_initial_window_size(super::WINDOW).is_ok();
            }
            self.transport.deliver(&mut self.out, usize::MAX);
            self.drive();
            self.transport.collect(&mut self.input, usize::MAX);
            self.take();
            for (number, stream) in self.streams.iter_mut().enumerate() {
                if let Some(slot) = stream.slot {
                    stream.is_last = true;
                    self.client
                        .consume(slot, stream.held, self.now_ms, &mut self.out);
                    stream.held = 0;
                }
                stream.complete_response(number);
            }
            let is_idle = self.out.is_empty() && self.transport.is_empty();
            idle = if is_idle { idle + 1 } else { 0 };
            if idle == 3 {
                return;
            }
        }
        panic!("the connection does not come to rest");
    }

    /// Checks that both sides agree.
    fn check(&self) {
        assert_eq!(self.client.open_streams(), 0);
        if !self.is_shut {
            assert_eq!(self.pongs, self.pings);
        }
        for (number, stream) in self.streams.iter().enumerate() {
            stream.check(number);
        }
    }
}

impl Stream {
    /// Sends the head of a response, and all of its content if the length is declared.
    fn respond(
        &mut self,
        number: usize,
        status: u16,
        mut lines: Lines,
        ends: bool,
        length: Option<usize>,
    ) {
        let Some(respond) = &mut self.respond else {
            return;
        };
        let mut head = Response::new(());
        *head.status_mut() = status.try_into().expect("a status");
        *head.headers_mut() = to_map(&lines);
        let Ok(mut download) = respond.send_response(head, ends) else {
            return;
        };
        self.respond = None;
        lines.push((":status".to_owned(), status.to_string()));
        let sent = &mut self.response_sent;
        sent.head = Some(sorted(lines));
        sent.ends = ends;
        if let Some(length) = length {
            let part = content(number, 0, length);
            if download.send_data(part.into(), true).is_ok() {
                (sent.length, sent.ends) = (length as u64, true);
            }
        }
        self.download = Some(download);
    }

    /// Ends the response, and reads the rest of the request.
    fn complete_response(&mut self, number: usize) {
        if let Some(upload) = &mut self.upload {
            release(upload, &mut self.unreleased, usize::MAX);
        }
        if self.server_reset.is_some() {
            return;
        }
        let ends = self.head_only;
        self.respond(number, 200, Lines::new(), ends, None);
        if let Some(download) = &mut self.download
            && !self.response_sent.ends
            && download.send_data(Bytes::new(), true).is_ok()
        {
            self.response_sent.ends = true;
        }
    }

    fn receive_request(&mut self, number: usize) {
        if self.server_saw.is_some() {
            return;
        }
        if let Some(upload) = &mut self.upload {
            let received = receive(
                upload,
                &mut self.request_received,
                number,
                &mut self.unreleased,
            );
            if let Err(error) = received {
                self.server_saw = Some(error.reason().map_or(u32::MAX, u32::from));
            }
        }
    }

    fn check(&self, number: usize) {
        self.request_received.check(&self.request_sent, number);
        self.response_received.check(&self.response_sent, number);
        let is_final = self.response_received.head.is_some();
        check_interim(&self.interim_received, &self.interim_sent, is_final, number);
        assert_eq!(self.slot, None, "{number} is open");
        let is_received = self.request_received.head.is_some();
        if self.is_unprocessed {
            assert!(!is_received, "{number} was processed");
            return;
        }
        if self.client_reset.is_some() {
            return;
        }
        if let Some(code) = self.client_saw {
            let is_refused = code == ErrorCode::REFUSED_STREAM.0 && !is_received;
            assert!(
                is_refused || self.server_reset == Some(code),
                "{number}: {code}"
            );
            return;
        }
        // A reset after a complete response is not reported.
        assert!(self.response_received.ends, "the response of {number}");
        if self.server_reset.is_none() && !self.is_early {
            assert_eq!(self.server_saw, None, "{number} was reset");
            assert!(self.request_received.ends, "the request of {number}");
        }
    }
}

fn pick<'a>(streams: &'a mut [Stream], script: &mut Script<'_>) -> Option<&'a mut Stream> {
    pick_numbered(streams, script).map(|(_, stream)| stream)
}

/// Returns the stream that the script names.
fn pick_numbered<'a>(
    streams: &'a mut [Stream],
    script: &mut Script<'_>,
) -> Option<(usize, &'a mut Stream)> {
    let number = script.byte() % streams.len().max(1);
    streams.get_mut(number).map(|stream| (number, stream))
}
