//! Our server against the client of the h2 crate.

use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::Bytes;
use h2::client::{Connection, ResponseFuture, SendRequest};
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, StatusCode, Version};
use sluice::test_rigs::http2::ErrorCode;
use sluice::test_rigs::http2::request::Request as Received;
use sluice::test_rigs::http2::server::{Event, Options, Server};

use super::{
    Lines, Message, OPERATIONS, ROUNDS, STREAMS, Script, Transport, check_interim, content,
    context, encode, of_fields, of_map, receive, release, sorted, to_map, with_one_cookie,
};

/// Methods of requests. Those with CONNECT are extended by a protocol (RFC 8441).
const METHODS: [&str; 5] = ["GET", "POST", "HEAD", "PUT", "CONNECT"];
const STATUSES: [u16; 6] = [200, 404, 206, 503, 204, 304];

/// Runs a connection with the input as its script.
pub fn run(data: &[u8]) {
    let mut script = Script::new(data);
    let Some(mut run) = Run::new(&mut script) else {
        return;
    };
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
    /// Whether the request is an extended CONNECT.
    is_tunnel: bool,
    /// The client's ends.
    response: Option<ResponseFuture>,
    upload: Option<SendStream<Bytes>>,
    download: Option<RecvStream>,
    unreleased: usize,
    /// The server's slot, the content of the request that it has not consumed, the content of the response that it has
    /// not sent, and whether the response ends after it.
    slot: Option<usize>,
    held: u32,
    pending: usize,
    is_last: bool,
    request_sent: Message,
    request_received: Message,
    response_sent: Message,
    response_received: Message,
    /// Fields of the interim heads (103).
    interim_sent: Vec<Lines>,
    interim_received: Vec<Lines>,
    /// Whether the response ended before the request.
    is_early: bool,
    /// The codes with which each side has reset the stream, and those that the other side has received.
    client_reset: Option<u32>,
    server_reset: Option<u32>,
    client_saw: Option<u32>,
    server_saw: Option<u32>,
    /// Whether the client knows that the request was not processed, because of GOAWAY.
    is_unprocessed: bool,
}

struct Run {
    transport: Transport,
    requests: SendRequest<Bytes>,
    connection: Option<Connection<Transport, Bytes>>,
    server: Server,
    now_ms: u64,
    input: Vec<u8>,
    out: Vec<u8>,
    request: Received,
    streams: Vec<Stream>,
    refused: usize,
}

impl Run {
    fn new(script: &mut Script<'_>) -> Option<Run> {
        let mut options = Options::default();
        options.limits.streams = 1 + script.byte() as u32 % 8;
        options.extended_connect = true;
        options.limits.header_list = 128 << 10;
        options.limits.block.bytes = 256 << 10;
        options.limits.block.continuations = 32;
        let mut out = Vec::new();
        let server = Server::new(options, 0, &mut out);
        let transport = Transport::default();
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(script.length() as u32);
        builder.max_frame_size((16 << 10) + script.length() as u32);
        builder.header_table_size(script.length() as u32);
        if script.flag() {
            builder.initial_connection_window_size(script.length() as u32 + 65_535);
        }
        let handshake = pin!(builder.handshake(transport.clone()));
        let Poll::Ready(connected) = handshake.poll(&mut context()) else {
            panic!("the preface is not sent");
        };
        let (requests, connection) = connected.expect("a connection");
        Some(Run {
            transport,
            requests,
            connection: Some(connection),
            server,
            now_ms: 0,
            input: Vec::new(),
            out,
            request: Received::default(),
            streams: Vec::new(),
            refused: 0,
        })
    }

    fn operate(&mut self, operation: u8, script: &mut Script<'_>) {
        match operation % 20 {
            0 | 1 => self.begin(script),
            2 | 3 => self.upload(script),
            4 => self.end_upload(script),
            5 => self.reset_by_client(script),
            6 => {
                if let Some(stream) = pick(&mut self.streams, script)
                    && let Some(download) = &mut stream.download
                {
                    release(download, &mut stream.unreleased, script.length());
                }
            }
            7 => {
                let size = script.length() as u32;
                if let Some(connection) = &mut self.connection {
                    match script.flag() {
                        // Refused if settings are on their way.
                        true => drop(connection.set_initial_window_size(size)),
                        false => connection.set_target_window_size(size + 65_535),
                    }
                }
            }
            8 | 9 => {
                self.transport.collect(&mut self.input, script.length());
                self.take();
            }
            10 | 11 => self.transport.deliver(&mut self.out, script.length()),
            12 | 13 => self.respond(script),
            14 => {
                if let Some(stream) = pick(&mut self.streams, script)
                    && stream.slot.is_some()
                    && stream.response_sent.head.is_some()
                    && !stream.is_last
                {
                    stream.more(script.content(), script.flag());
                }
            }
            15 => self.reset_by_server(script),
            16 => self.consume(script),
            17 => self.interim(script),
            _ => self.pass_time(script),
        }
    }

    fn begin(&mut self, script: &mut Script<'_>) {
        let ready = self.requests.poll_ready(&mut context());
        let number = self.streams.len();
        if !matches!(ready, Poll::Ready(Ok(()))) || number == STREAMS {
            return;
        }
        let method = METHODS[script.byte() % METHODS.len()];
        let is_tunnel = method == "CONNECT";
        if is_tunnel && !self.requests.is_extended_connect_protocol_enabled() {
            return;
        }
        let mut lines = script.lines();
        let ends = script.flag();
        let whole = (!ends && !is_tunnel && script.flag()).then(|| script.content());
        if let Some(length) = whole {
            lines.push(("content-length".to_owned(), length.to_string()));
        }
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://a/{number}"))
            .version(Version::HTTP_2)
            .body(())
            .expect("a request");
        *request.headers_mut() = to_map(&lines);
        if is_tunnel {
            let protocol = Protocol::from_static("websocket");
            request.extensions_mut().insert(protocol);
        }
        let Ok((response, mut upload)) = self.requests.send_request(request, ends) else {
            return;
        };
        lines.push(("host".to_owned(), "a".to_owned()));
        let mut sent = Message {
            head: Some(with_one_cookie(&lines)),
            ends,
            ..Message::default()
        };
        if let Some(length) = whole {
            let sending = upload.send_data(content(number, 0, length).into(), true);
            sending.expect("an open stream");
            (sent.length, sent.ends) = (length as u64, true);
        }
        self.streams.push(Stream {
            head_only: method == "HEAD",
            is_tunnel,
            response: Some(response),
            upload: Some(upload),
            request_sent: sent,
            ..Stream::default()
        });
    }

    fn upload(&mut self, script: &mut Script<'_>) {
        let Some((number, stream)) = pick_numbered(&mut self.streams, script) else {
            return;
        };
        let (length, ends) = (script.content(), script.flag());
        let sent = &mut stream.request_sent;
        if let Some(upload) = &mut stream.upload
            && !sent.ends
        {
            let part = content(number, sent.length, length);
            if upload.send_data(part.into(), ends).is_ok() {
                sent.length += length as u64;
                sent.ends = ends;
            }
        }
    }

    fn end_upload(&mut self, script: &mut Script<'_>) {
        let Some(stream) = pick(&mut self.streams, script) else {
            return;
        };
        let lines = script.trailers();
        if let Some(upload) = &mut stream.upload
            && !stream.request_sent.ends
            && upload.send_trailers(to_map(&lines)).is_ok()
        {
            stream.request_sent.ends = true;
            stream.request_sent.trailers = Some(sorted(lines));
        }
    }

    fn reset_by_client(&mut self, script: &mut Script<'_>) {
        let Some(stream) = pick(&mut self.streams, script) else {
            return;
        };
        let code = 1 + script.byte() as u32 % 13;
        if let Some(upload) = &mut stream.upload
            && stream.client_reset.is_none()
        {
            upload.send_reset(Reason::from(code));
            stream.client_reset = Some(code);
        }
    }

    fn respond(&mut self, script: &mut Script<'_>) {
        let Some(stream) = pick(&mut self.streams, script) else {
            return;
        };
        let Some(slot) = stream.slot.filter(|_| stream.response_sent.head.is_none()) else {
            return;
        };
        let status = STATUSES[script.byte() % STATUSES.len()];
        let mut lines = script.lines();
        let is_empty = stream.head_only || matches!(status, 204 | 304);
        let ends = is_empty || script.flag();
        if stream.head_only {
            lines.push(("content-length".to_owned(), "5".to_owned()));
        } else if !ends && script.flag() {
            let length = script.content();
            lines.push(("content-length".to_owned(), length.to_string()));
            stream.more(length, true);
        }
        self.head(slot, status, lines, ends);
    }

    fn interim(&mut self, script: &mut Script<'_>) {
        let Some(stream) = pick(&mut self.streams, script) else {
            return;
        };
        let lines = script.lines();
        let Some(slot) = stream.slot.filter(|_| stream.response_sent.head.is_none()) else {
            return;
        };
        self.server
            .head(slot, false, &mut self.out, |encoder, out| {
                encoder.status(out, 103);
                encode(encoder, out, &lines);
            });
        stream.interim_sent.push(sorted(lines));
    }

    /// Sends the head of a response.
    fn head(&mut self, slot: usize, status: u16, mut lines: Lines, ends: bool) {
        self.server.head(slot, ends, &mut self.out, |encoder, out| {
            encoder.status(out, status);
            encode(encoder, out, &lines);
        });
        let stream = self.at(slot);
        lines.push((":status".to_owned(), status.to_string()));
        stream.response_sent.head = Some(sorted(lines));
        if ends {
            stream.end_response();
        }
    }

    fn reset_by_server(&mut self, script: &mut Script<'_>) {
        let Some(stream) = pick(&mut self.streams, script) else {
            return;
        };
        let code = 1 + script.byte() as u32 % 13;
        if let Some(slot) = stream.slot.take() {
            stream.server_reset = Some(code);
            self.server.reset(slot, ErrorCode(code), &mut self.out);
        }
    }

    fn consume(&mut self, script: &mut Script<'_>) {
        let Some(stream) = pick(&mut self.streams, script) else {
            return;
        };
        let length = (script.length() as u32).min(stream.held);
        if let Some(slot) = stream.slot {
            stream.held -= length;
            match script.flag() {
                true => self.server.consume(slot, length, &mut self.out),
                false => self.server.release(slot, length, &mut self.out),
            }
        }
    }

    fn pass_time(&mut self, script: &mut Script<'_>) {
        match script.byte() {
            255 => self.server.begin_shutdown(&mut self.out),
            tenths => {
                self.now_ms += 100 * tenths as u64;
                self.server.set_now(self.now_ms);
                self.server.end_lingering(&mut self.out);
            }
        }
    }

    /// Returns the stream in a slot of the server.
    fn at(&mut self, slot: usize) -> &mut Stream {
        let found = self.streams.iter_mut().find(|it| it.slot == Some(slot));
        found.expect("a stream in this slot")
    }

    /// Handles the frames of the client that have arrived.
    fn take(&mut self) {
        loop {
            let taken =
                self.server
                    .take(&self.input, self.now_ms, &mut self.request, &mut self.out);
            let (used, event) = taken.expect("no error of the connection");
            match event {
                Some(Event::Request {
                    slot,
                    ends,
                    is_over,
                }) => {
                    assert!(!is_over);
                    let path = String::from_utf8_lossy(&self.request.path).into_owned();
                    let number: usize = path[1..].parse().expect("a number");
                    let stream = &mut self.streams[number];
                    assert!(stream.slot.is_none() && stream.request_received.head.is_none());
                    let is_tunnel = self.request.protocol == b"websocket";
                    assert_eq!(is_tunnel, stream.is_tunnel);
                    stream.slot = Some(slot);
                    stream.request_received.head = Some(of_fields(&self.request.fields));
                    stream.request_received.ends = ends;
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
                    stream.request_received.receive(number, content);
                    stream.request_received.ends = ends;
                    stream.held += content.len() as u32;
                }
                Some(Event::Trailers { slot, fields }) => {
                    let received = &mut self.at(slot).request_received;
                    received.trailers = Some(of_fields(&fields));
                    received.ends = true;
                }
                Some(Event::Cancelled {
                    slot,
                    code,
                    violation,
                }) => {
                    assert_eq!(violation, None);
                    let stream = self.at(slot);
                    stream.server_saw = Some(code.0);
                    stream.slot = None;
                }
                Some(Event::Refused {
                    code, violation, ..
                }) => {
                    assert_eq!(code, ErrorCode::REFUSED_STREAM, "{violation}");
                    self.refused += 1;
                }
                None => {}
            }
            if used == 0 {
                return;
            }
            self.input.drain(..used);
        }
    }

    /// Sends content and ends of responses, as far as the windows permit.
    fn pump(&mut self) {
        for stream in &mut self.streams {
            if let Some(slot) = stream.slot
                && stream.response_sent.head.is_some()
            {
                self.server.set_content(slot, stream.pending > 0);
            }
        }
        while let Some((slot, most)) = self.server.next() {
            let found = self.streams.iter_mut().enumerate();
            let (number, stream) = { found }
                .find(|(_, it)| it.slot == Some(slot))
                .expect("a stream in this slot");
            let length = stream.pending.min(most as usize);
            stream.pending -= length;
            let ends = stream.is_last && stream.pending == 0;
            self.server.data(slot, length as u32, ends, &mut self.out);
            let sent = &mut stream.response_sent;
            self.out.extend(content(number, sent.length, length));
            sent.length += length as u64;
            self.server.set_content(slot, stream.pending > 0);
            if ends {
                stream.end_response();
                self.server.end(slot, &mut self.out);
            }
        }
        for stream in &mut self.streams {
            let Some(slot) = stream.slot else { continue };
            if stream.response_sent.head.is_none() || !stream.is_last || stream.pending > 0 {
                continue;
            }
            // Ends without content are trailers or an empty frame.
            if stream.response_sent.length % 2 == 1 {
                let lines = vec![("x-sum".to_owned(), "1".to_owned())];
                let trailers = lines.clone();
                self.server.trailers(slot, &mut self.out, |encoder, out| {
                    encode(encoder, out, &lines);
                });
                stream.response_sent.trailers = Some(trailers);
                stream.end_response();
            } else {
                self.server.data(slot, 0, true, &mut self.out);
                stream.end_response();
                self.server.end(slot, &mut self.out);
            }
        }
    }

    /// Lets both sides do what they can do without further bytes.
    fn drive(&mut self) {
        self.pump();
        for _ in 0..2 {
            if let Some(connection) = &mut self.connection
                && let Poll::Ready(end) = Pin::new(connection).poll(&mut context())
            {
                end.expect("no error of the connection");
                self.connection = None;
                self.transport.leave();
            }
            for (number, stream) in self.streams.iter_mut().enumerate() {
                stream.receive_response(number);
            }
        }
        assert!(self.server.memory() < 1 << 20);
    }

    /// Completes all messages.
    fn settle(&mut self) {
        for stream in &mut self.streams {
            if let Some(upload) = &mut stream.upload
                && !stream.request_sent.ends
                && upload.send_data(Bytes::new(), true).is_ok()
            {
                stream.request_sent.ends = true;
            }
        }
        let (mut idle, mut is_open) = (0, false);
        for _ in 0..ROUNDS {
            if let Some(connection) = &mut self.connection
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
            for number in 0..self.streams.len() {
                let stream = &mut self.streams[number];
                if let Some(download) = &mut stream.download {
                    release(download, &mut stream.unreleased, usize::MAX);
                }
                let Some(slot) = stream.slot else { continue };
                stream.is_last = true;
                self.server.consume(slot, stream.held, &mut self.out);
                stream.held = 0;
                if stream.response_sent.head.is_none() {
                    let ends = stream.head_only;
                    self.head(slot, 200, Vec::new(), ends);
                }
            }
            if self.server.is_done() && self.out.is_empty() {
                self.transport.close();
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
        assert_eq!(self.server.open_streams(), 0);
        let mut refused = 0;
        for (number, stream) in self.streams.iter().enumerate() {
            let refusal = Some(Reason::REFUSED_STREAM.into());
            let is_refused = stream.client_reset.is_none()
                && stream.request_received.head.is_none()
                && stream.client_saw == refusal;
            refused += usize::from(is_refused);
            stream.check(number, is_refused);
        }
        assert!(refused <= self.refused);
    }
}

impl Stream {
    /// Adds content to the response.
    fn more(&mut self, length: usize, is_last: bool) {
        if !self.head_only {
            self.pending += length;
            self.is_last = is_last;
        }
    }

    fn end_response(&mut self) {
        self.response_sent.ends = true;
        self.is_early = !self.request_received.ends;
        self.slot = None;
        self.held = 0;
    }

    fn receive_response(&mut self, number: usize) {
        if self.client_saw.is_some() || self.is_unprocessed {
            return;
        }
        let received = self.receive_parts(number);
        if let Err(error) = received {
            match error.reason() {
                Some(code) if !error.is_go_away() => self.client_saw = Some(code.into()),
                _ => self.is_unprocessed = true,
            }
        }
    }

    fn receive_parts(&mut self, number: usize) -> Result<(), h2::Error> {
        if let Some(response) = &mut self.response {
            while let Poll::Ready(Some(interim)) = response.poll_informational(&mut context()) {
                let interim = interim?;
                assert_eq!(interim.status(), StatusCode::EARLY_HINTS);
                self.interim_received.push(of_map(interim.headers()));
            }
        }
        if let Some(response) = &mut self.response
            && let Poll::Ready(response) = Pin::new(response).poll(&mut context())
        {
            self.response = None;
            let (head, download) = response?.into_parts();
            let mut lines = of_map(&head.headers);
            lines.push((":status".to_owned(), head.status.as_str().to_owned()));
            self.response_received.head = Some(sorted(lines));
            self.download = Some(download);
        }
        match &mut self.download {
            Some(download) => receive(
                download,
                &mut self.response_received,
                number,
                &mut self.unreleased,
            ),
            None => Ok(()),
        }
    }

    fn check(&self, number: usize, is_refused: bool) {
        self.request_received.check(&self.request_sent, number);
        self.response_received.check(&self.response_sent, number);
        let is_final = self.response_received.head.is_some();
        check_interim(&self.interim_received, &self.interim_sent, is_final, number);
        assert_eq!(self.slot, None, "{number} is open");
        if let Some(code) = self.server_saw {
            assert_eq!(Some(code), self.client_reset, "the reset of {number}");
        }
        if self.is_unprocessed {
            assert_eq!(self.request_received, Message::default());
        }
        if is_refused || self.is_unprocessed || self.client_reset.is_some() {
            return;
        }
        if self.server_reset.is_some() {
            let is_complete = self.response_received.ends;
            assert!(is_complete || self.client_saw == self.server_reset);
            return;
        }
        assert_eq!(self.client_saw, None, "{number} was reset");
        assert!(self.response_received.ends, "the response of {number}");
        let is_received = self.request_received.ends || self.is_early;
        assert!(is_received, "the request of {number}");
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
