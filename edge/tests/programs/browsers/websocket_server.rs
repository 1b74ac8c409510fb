//! A server of WebSockets over HTTP/1.1, which sends each message back (RFC 6455). Each connection has a thread.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The bytes that prove to a client that the server speaks WebSocket (RFC 6455 1.3).
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A running server, which accepts connections until it is dropped.
pub struct WebSocketServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    connections: AtomicU64,
    stopped: AtomicBool,
}

impl WebSocketServer {
    /// Starts a server on a free port.
    pub fn start() -> WebSocketServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let accepting = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.stopped.load(Ordering::Relaxed) {
                    return;
                }
                accepting.connections.fetch_add(1, Ordering::Relaxed);
                // An error ends the connection, which its client sees.
                thread::spawn(move || serve(&stream));
            }
        });
        WebSocketServer { address, shared }
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for WebSocketServer {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

/// Answers a handshake, and sends frames back until one closes the WebSocket.
fn serve(stream: &TcpStream) -> io::Result<()> {
    let (mut input, mut output) = (BufReader::new(stream), stream);
    let mut key = None;
    loop {
        let mut line = String::new();
        if input.read_line(&mut line)? <= 2 {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("sec-websocket-key")
        {
            key = Some(value.trim().to_owned());
        }
    }
    let key = key.ok_or(io::ErrorKind::InvalidData)?;
    let proof = digest(&SHA1_FOR_LEGACY_USE_ONLY, (key + MAGIC).as_bytes());
    let proof = STANDARD.encode(proof);
    write!(
        output,
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {proof}\r\nSec-WebSocket-Protocol: echo\r\n\r\n"
    )?;
    loop {
        let (first, content) = read_frame(&mut input)?;
        let first = match first & 0xF {
            PING => first & 0xF0 | PONG,
            _ => first,
        };
        write_frame(&mut output, first, &content)?;
        if first & 0xF == CLOSE {
            return Ok(());
        }
    }
}

/// Reads a client's frame. Returns its first byte and its content, which is not masked any more (RFC 6455 5.2).
fn read_frame(input: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let [first, length] = read(input)?;
    // The frames of clients are masked.
    if length & 0x80 == 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let length = match length & 0x7F {
        126 => u64::from(u16::from_be_bytes(read(input)?)),
        127 => u64::from_be_bytes(read(input)?),
        length => u64::from(length),
    };
    let mask: [u8; 4] = read(input)?;
    let mut content = Vec::new();
    input.take(length).read_to_end(&mut content)?;
    if content.len() as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    for (byte, mask) in content.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
    Ok((first, content))
}

fn read<const N: usize>(input: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn write_frame(output: &mut impl Write, first: u8, content: &[u8]) -> io::Result<()> {
    let mut frame = vec![first];
    match content.len() {
        length @ ..126 => frame.push(length as u8),
        length @ 126..=0xFFFF => {
            frame.push(126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            frame.push(127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(content);
    output.write_all(&frame)
}
