//! A front of a test origin that speaks HTTP/2, and passes each request on to the origin over HTTP/1.1.
//!
//! Some paths are answered by the front itself: `/echo` returns the content of the request, as it arrives if it is chunked,
//! and then its trailers; `/fill/N` returns N bytes that depend on their offsets; the stream of `/reset` is reset.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use bytes::{Buf, Bytes, BytesMut};
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::spawn_local;

type Error = Box<dyn std::error::Error>;

/// The behaviour of a front.
#[derive(Clone, Copy, Debug)]
pub struct Http2Options {
    /// Most streams of a connection at a time.
    pub streams: u32,
    /// Requests of a connection before its end is announced with GOAWAY. 0: no limit.
    pub requests: u64,
    /// The first of every so many requests of the front is refused with REFUSED_STREAM. 0: none.
    pub refuse_every: u64,
    /// Number of connections that answer nothing, not even a PING, before others do.
    pub stalls: u64,
}

impl Default for Http2Options {
    fn default() -> Http2Options {
        Http2Options {
            streams: 100,
            requests: 0,
            refuse_every: 0,
            stalls: 0,
        }
    }
}

/// A front that speaks HTTP/2 in clear text, by prior knowledge. Accepts connections until it is dropped.
pub struct Http2Front {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    origin: SocketAddr,
    options: Http2Options,
    connections: AtomicU64,
    requests: AtomicU64,
    refused: AtomicU64,
    stop: Notify,
}

impl Http2Front {
    /// Starts a front of the origin with this address.
    pub fn start(origin: SocketAddr, options: Http2Options) -> Http2Front {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket option");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            origin,
            options,
            connections: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            stop: Notify::new(),
        });
        let own = shared.clone();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(Default::default())
                .expect("a runtime");
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, own.clone()) => {}
                    () = own.stop.notified() => {}
                }
            });
        });
        Http2Front { address, shared }
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL as a server of an upstream.
    pub fn url(&self) -> String {
        format!("h2c://{}", self.address)
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that were refused.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Http2Front {
    fn drop(&mut self) {
        self.shared.stop.notify_one();
    }
}

async fn accept(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        spawn_local(async move {
            // Clients that leave are no errors of the front.
            let _ = serve(stream, shared).await;
        });
    }
}

/// Serves a connection.
async fn serve(stream: TcpStream, shared: Arc<Shared>) -> Result<(), Error> {
    let _ = stream.set_nodelay(true);
    let options = shared.options;
    if shared.connections.fetch_add(1, Ordering::Relaxed) < options.stalls {
        // Nothing is read, so not even the acknowledgement of a PING is sent.
        std::future::pending::<()>().await;
    }
    let mut connection = server::Builder::new()
        .max_concurrent_streams(options.streams)
        .initial_window_size(64 << 10)
        .initial_connection_window_size(1 << 20)
        .handshake::<_, Bytes>(stream)
        .await?;
    let mut requests = 0;
    while let Some(accepted) = connection.accept().await {
        let (request, mut respond) = accepted?;
        requests += 1;
        if options.requests > 0 && requests == options.requests {
            connection.graceful_shutdown();
        }
        let number = shared.requests.fetch_add(1, Ordering::Relaxed);
        if options.refuse_every > 0 && number.is_multiple_of(options.refuse_every) {
            shared.refused.fetch_add(1, Ordering::Relaxed);
            respond.send_reset(Reason::REFUSED_STREAM);
            continue;
        }
        let shared = shared.clone();
        spawn_local(async move {
            let _ = answer(request, respond, &shared).await;
        });
    }
    Ok(())
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    shared: &Shared,
) -> Result<(), Error> {
    let path = request.uri().path().to_owned();
    if path.ends_with("/echo") {
        return echo(request, respond).await;
    }
    if path.ends_with("/reset") {
        respond.send_reset(Reason::INTERNAL_ERROR);
        return Ok(());
    }
    if let Some((_, length)) = path.split_once("/fill/") {
        let length: u64 = length.parse()?;
        let head = Response::builder().header("content-length", length);
        let mut stream = respond.send_response(head.body(())?, false)?;
        let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        send(&mut stream, Bytes::from(bytes), true).await?;
        return Ok(());
    }
    forward(request, respond, shared).await
}

/// Returns the content of a request, then its trailers.
async fn echo(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Result<(), Error> {
    let mut stream = respond.send_response(Response::new(()), false)?;
    // A client that sends a body of known length reads no response before.
    let gathers = request.headers().contains_key("content-length");
    let (mut body, mut gathered) = (request.into_body(), BytesMut::new());
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        match gathers {
            true => gathered.extend_from_slice(&part),
            false => send(&mut stream, part, false).await?,
        }
    }
    send(&mut stream, gathered.freeze(), false).await?;
    let mut trailers = body.trailers().await?.unwrap_or_default();
    trailers.insert("grpc-status", "0".parse()?);
    stream.send_trailers(trailers)?;
    Ok(())
}

/// Sends content as the windows permit.
async fn send(stream: &mut SendStream<Bytes>, mut part: Bytes, ends: bool) -> Result<(), Error> {
    while !part.is_empty() {
        stream.reserve_capacity(part.len());
        let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        let room = room.ok_or("a closed stream")??;
        let now = part.split_to(room.min(part.len()));
        let is_last = ends && part.is_empty();
        stream.send_data(now, is_last)?;
    }
    Ok(())
}

/// Passes a request on to the origin, on a connection of its own.
async fn forward(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    shared: &Shared,
) -> Result<(), Error> {
    let mut origin = TcpStream::connect(shared.origin).await?;
    let (parts, mut body) = request.into_parts();
    let target = parts
        .uri
        .path_and_query()
        .map_or("/", |target| target.as_str());
    let authority = parts
        .uri
        .authority()
        .map_or("", |authority| authority.as_str());
    let mut head = format!(
        "{} {target} HTTP/1.1\r\nhost: {authority}\r\n",
        parts.method
    )
    .into_bytes();
    for (name, value) in &parts.headers {
        if name != "te" {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
    }
    let is_chunked = !body.is_end_stream() && !parts.headers.contains_key("content-length");
    if is_chunked {
        head.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    head.extend_from_slice(b"connection: close\r\n\r\n");
    origin.write_all(&head).await?;
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        if is_chunked {
            let size = format!("{:x}\r\n", part.len());
            origin.write_all(size.as_bytes()).await?;
        }
        origin.write_all(&part).await?;
        if is_chunked {
            origin.write_all(b"\r\n").await?;
        }
    }
    if is_chunked {
        origin.write_all(b"0\r\n\r\n").await?;
    }
    let mut input = BytesMut::new();
    let head = loop {
        if let Some(head) = parse(&mut input)? {
            // Interim heads are dropped.
            if head.status().as_u16() >= 200 {
                break head;
            }
        } else if origin.read_buf(&mut input).await? == 0 {
            respond.send_reset(Reason::INTERNAL_ERROR);
            return Ok(());
        }
    };
    respond_with(head, input, origin, respond, &parts.method).await
}

/// Takes the head of a response out of the input, if it is complete.
fn parse(input: &mut BytesMut) -> Result<Option<Response<()>>, Error> {
    let mut lines = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut lines);
    let httparse::Status::Complete(length) = head.parse(input)? else {
        return Ok(None);
    };
    let mut response = Response::builder().status(head.code.unwrap_or(500));
    for line in head.headers {
        let name = line.name.to_ascii_lowercase();
        if !["connection", "keep-alive", "transfer-encoding"].contains(&&*name) {
            response = response.header(name, line.value);
        }
    }
    let response = response.body(())?;
    input.advance(length);
    Ok(Some(response))
}

async fn respond_with(
    head: Response<()>,
    mut input: BytesMut,
    mut origin: TcpStream,
    mut respond: SendResponse<Bytes>,
    method: &http::Method,
) -> Result<(), Error> {
    let length = |headers: &HeaderMap| -> Option<u64> {
        headers.get("content-length")?.to_str().ok()?.parse().ok()
    };
    let mut left = length(head.headers());
    let is_empty = method == "HEAD" || matches!(head.status().as_u16(), 204 | 304);
    if is_empty || left == Some(0) {
        respond.send_response(head, true)?;
        return Ok(());
    }
    let mut stream = respond.send_response(head, false)?;
    loop {
        let part = input.split().freeze();
        if let Some(left) = &mut left {
            *left = left.saturating_sub(part.len() as u64);
        }
        let ends = left == Some(0);
        send(&mut stream, part, ends).await?;
        if ends {
            return Ok(());
        }
        if origin.read_buf(&mut input).await? == 0 {
            match left {
                // The origin has not sent the whole body.
                Some(_) => stream.send_reset(Reason::INTERNAL_ERROR),
                None => stream.send_data(Bytes::new(), true)?,
            }
            return Ok(());
        }
    }
}
