//! A client of HTTP/2, made of the h2 crate, which shares no code with Sluice.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::harness::SOON;

/// A connection, which a thread serves until it is dropped.
pub struct Http2Client {
    runtime: Handle,
    _running: oneshot::Sender<()>,
    requests: SendRequest<Bytes>,
    end: tokio::task::JoinHandle<Result<(), h2::Error>>,
    scheme: &'static str,
}

/// A request whose response has not been received completely.
pub struct Running {
    response: ResponseFuture,
    content: SendStream<Bytes>,
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub trailers: Option<HeaderMap>,
}

impl Answer {
    /// Returns the value of a header, empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().expect("text"))
    }
}

/// Windows in bytes, so that a response that is not read holds up no other one.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;

impl Http2Client {
    /// Connects in clear text, and sends these bytes before the preface.
    pub fn connect_after(address: SocketAddr, first: &[u8]) -> Http2Client {
        Http2Client::over("http", async {
            let mut stream = TcpStream::connect(address).await.expect("a listener");
            stream.write_all(first).await.expect("sent");
            stream
        })
    }

    /// Connects in clear text.
    pub fn connect(address: SocketAddr) -> Http2Client {
        Http2Client::connect_after(address, b"")
    }

    /// Connects to a Unix socket.
    pub fn connect_unix(path: &Path) -> Http2Client {
        Http2Client::over("http", async {
            UnixStream::connect(path).await.expect("a listener")
        })
    }

    /// Connects over TLS, and sends this name of a host (SNI).
    pub fn connect_tls(address: SocketAddr, name: &str, mut config: ClientConfig) -> Http2Client {
        config.alpn_protocols = vec![b"h2".to_vec()];
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        Http2Client::over("https", async {
            let stream = TcpStream::connect(address).await.expect("a listener");
            connector.connect(name, stream).await.expect("a handshake")
        })
    }

    fn over<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        scheme: &'static str,
        stream: impl Future<Output = T>,
    ) -> Http2Client {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().expect("a runtime");
        let (requests, end) = runtime.block_on(async {
            let mut client = h2::client::Builder::new();
            client.initial_window_size(STREAM_WINDOW);
            client.initial_connection_window_size(CONNECTION_WINDOW);
            let connected = client.handshake(stream.await).await;
            let (requests, connection) = connected.expect("sent");
            (requests, tokio::spawn(connection))
        });
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel();
        std::thread::spawn(move || runtime.block_on(ended));
        Http2Client {
            runtime: handle,
            _running: running,
            requests,
            end,
            scheme,
        }
    }

    /// Begins a request. `ends`: it has no content.
    pub fn begin(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        ends: bool,
    ) -> Running {
        let mut host = "a";
        let mut request = Request::builder().method(method);
        for (name, value) in headers {
            match *name {
                "host" => host = value,
                _ => request = request.header(*name, *value),
            }
        }
        let uri = format!("{}://{host}{target}", self.scheme);
        let request = request.uri(uri).body(()).expect("a request");
        let requests = self.requests.clone();
        let (response, content) = self.runtime.block_on(async {
            let ready = timeout(SOON, requests.ready()).await.expect("in time");
            let mut ready = ready.expect("room for a request");
            ready.send_request(request, ends).expect("a request")
        });
        Running { response, content }
    }

    /// Sends content of a request, and then its trailers if there are some.
    pub fn send(&self, running: &mut Running, mut content: Bytes, trailers: Option<HeaderMap>) {
        let stream = &mut running.content;
        let sent = async {
            while !content.is_empty() {
                stream.reserve_capacity(content.len());
                let room = poll_fn(|cx| stream.poll_capacity(cx)).await;
                // A stream that was reset has no room. The response has the error.
                let Some(Ok(room)) = room else { return };
                let part = content.split_to(room.min(content.len()));
                let ends = content.is_empty() && trailers.is_none();
                let _ = stream.send_data(part, ends);
            }
            if let Some(trailers) = trailers {
                let _ = stream.send_trailers(trailers);
            }
        };
        let sent = self.runtime.block_on(async { timeout(SOON, sent).await });
        sent.expect("in time");
    }

    /// Waits for the head of a response. Returns it without content, and the content that follows.
    pub fn head(&self, running: Running) -> Result<(Answer, RecvStream), h2::Error> {
        let response = async { timeout(SOON, running.response).await };
        let response = self.runtime.block_on(response).expect("in time")?;
        let (head, content) = response.into_parts();
        let answer = Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: Vec::new(),
            trailers: None,
        };
        Ok((answer, content))
    }

    /// Receives a response to its end.
    pub fn finish(&self, running: Running) -> Result<Answer, h2::Error> {
        let (mut answer, mut content) = self.head(running)?;
        self.rest(&mut answer, &mut content)?;
        Ok(answer)
    }

    /// Receives the rest of a response.
    pub fn rest(&self, answer: &mut Answer, content: &mut RecvStream) -> Result<(), h2::Error> {
        let rest = async {
            while let Some(part) = content.data().await {
                let part = part?;
                let _ = content.flow_control().release_capacity(part.len());
                answer.body.extend_from_slice(&part);
            }
            answer.trailers = content.trailers().await?;
            Ok(())
        };
        let rest = self.runtime.block_on(async { timeout(SOON, rest).await });
        rest.expect("in time")
    }

    /// Sends a request without content, and receives the response.
    pub fn ask(&mut self, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
        let running = self.begin(method, target, headers, true);
        self.finish(running).expect("a response")
    }

    /// Sends a GET, and receives the response.
    pub fn get(&mut self, target: &str, headers: &[(&str, &str)]) -> Answer {
        self.ask("GET", target, headers)
    }

    /// Waits until the server has closed the connection.
    pub fn wait_closed(self) {
        let end = async { timeout(SOON, self.end).await };
        let end = self.runtime.block_on(end).expect("in time");
        end.expect("no panic").expect("an orderly end");
    }
}
