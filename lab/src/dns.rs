//! A small name server for tests: UDP and TCP, one question per message (RFC 1035).

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const TYPE_SRV: u16 = 33;
/// Codes of responses (RFC 1035 4.1.1).
const SERVER_FAILURE: u8 = 2;
const NAME_ERROR: u8 = 3;
const HEADER: usize = 12;
/// Most attempts to find a port that is free for UDP and TCP.
const ATTEMPTS: usize = 20;
/// Longest time without a question on a connection.
const IDLE: Duration = Duration::from_secs(30);

/// A server of a service (RFC 2782).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The lowest number is preferred.
    pub priority: u16,
    /// Share of the requests among servers of the same priority.
    pub weight: u16,
    /// The server's port.
    pub port: u16,
    /// The server's host name.
    pub host: String,
}

/// How a name server treats questions about IPv6 addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ipv6 {
    /// Like other questions.
    #[default]
    Answered,
    /// All of them get a failure as the answer.
    Failing,
    /// None of them gets an answer.
    Ignored,
}

/// The answers of a name server.
#[derive(Debug, Default)]
struct Answers {
    addresses: HashMap<String, Vec<IpAddr>>,
    services: HashMap<String, Vec<Service>>,
    ttl_s: u32,
    fails: bool,
    /// Hosts about which all questions fail.
    failing_hosts: HashSet<String>,
    ipv6: Ipv6,
    is_silent: bool,
    questions: HashMap<String, usize>,
}

#[derive(Default)]
struct Shared {
    answers: Mutex<Answers>,
    stopped: AtomicBool,
}

/// A name server on loopback, which answers until it is dropped.
pub struct NameServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl NameServer {
    /// Starts a name server without names. Answers have a TTL of one second.
    pub fn start() -> io::Result<NameServer> {
        let (socket, listener) = bind()?;
        let address = socket.local_addr()?;
        let shared = Arc::<Shared>::default();
        shared.answers.lock().ttl_s = 1;
        let serving = shared.clone();
        thread::spawn(move || serve(&socket, &serving));
        let serving = shared.clone();
        thread::spawn(move || accept(&listener, &serving));
        Ok(NameServer { address, shared })
    }

    /// Returns the address of the name server.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Sets the addresses of a host. Without addresses, the name does not exist.
    pub fn set(&self, host: &str, addresses: &[IpAddr]) {
        let mut answers = self.shared.answers.lock();
        match addresses {
            [] => answers.addresses.remove(host),
            some => answers.addresses.insert(host.to_owned(), some.to_vec()),
        };
    }

    /// Sets the servers of a service.
    pub fn set_service(&self, name: &str, servers: &[Service]) {
        let mut answers = self.shared.answers.lock();
        answers.services.insert(name.to_owned(), servers.to_vec());
    }

    /// Makes the server answer all questions with a failure.
    pub fn fail(&self, fails: bool) {
        self.shared.answers.lock().fails = fails;
    }

    /// Makes the server answer all questions about a host with a failure.
    pub fn fail_host(&self, host: &str, fails: bool) {
        let mut answers = self.shared.answers.lock();
        match fails {
            true => answers.failing_hosts.insert(host.to_owned()),
            false => answers.failing_hosts.remove(host),
        };
    }

    /// Sets how questions about IPv6 addresses are treated.
    pub fn set_ipv6(&self, ipv6: Ipv6) {
        self.shared.answers.lock().ipv6 = ipv6;
    }

    /// Sets the time for which answers may be used, in seconds.
    pub fn set_ttl(&self, ttl_s: u32) {
        self.shared.answers.lock().ttl_s = ttl_s;
    }

    /// Makes the server answer no questions.
    pub fn silence(&self, is_silent: bool) {
        self.shared.answers.lock().is_silent = is_silent;
    }

    /// Returns the number of questions about a name so far.
    pub fn questions(&self, name: &str) -> usize {
        let answers = self.shared.answers.lock();
        answers.questions.get(name).copied().unwrap_or(0)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // Wakes the threads.
        let _ = TcpStream::connect(self.address);
        if let Ok(socket) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
            let _ = socket.send_to(&[], self.address);
        }
    }
}

/// Binds a port for UDP and TCP.
fn bind() -> io::Result<(UdpSocket, TcpListener)> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        match TcpListener::bind(socket.local_addr()?) {
            Ok(listener) => return Ok((socket, listener)),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
}

fn serve(socket: &UdpSocket, shared: &Shared) {
    let mut message = [0; 4096];
    while let Ok((n, client)) = socket.recv_from(&mut message) {
        if shared.stopped.load(Ordering::Relaxed) {
            return;
        }
        if let Some(response) = shared.respond(&message[..n]) {
            let _ = socket.send_to(&response, client);
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept() {
        if shared.stopped.load(Ordering::Relaxed) {
            return;
        }
        let shared = shared.clone();
        // Ends with the connection.
        thread::spawn(move || converse(stream, &shared));
    }
}

/// Answers the questions on a connection, each of which begins with its length (RFC 1035 4.2.2).
fn converse(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut message)?;
        let Some(response) = shared.respond(&message) else {
            continue;
        };
        let length = u16::try_from(response.len()).map_err(io::Error::other)?;
        stream.write_all(&length.to_be_bytes())?;
        stream.write_all(&response)?;
    }
}

impl Shared {
    /// Returns the response to a message; `None` if it gets none.
    fn respond(&self, message: &[u8]) -> Option<Vec<u8>> {
        let (name, kind, end) = question(message)?;
        let mut answers = self.answers.lock();
        *answers.questions.entry(name.clone()).or_default() += 1;
        let is_ignored = kind == TYPE_AAAA && answers.ipv6 == Ipv6::Ignored;
        if answers.is_silent || is_ignored {
            return None;
        }
        Some(respond(&answers, &message[..end], &name, kind))
    }
}

/// Returns the name and the type of a message's question, and where the question ends.
fn question(message: &[u8]) -> Option<(String, u16, usize)> {
    let mut at = HEADER;
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        let label = message.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += length;
    }
    let kind = message.get(at..at + 2)?;
    let end = at + 4;
    message.get(..end)?;
    Some((
        labels.join("."),
        u16::from_be_bytes([kind[0], kind[1]]),
        end,
    ))
}

/// Returns the response to a question, which is the end of `message`.
fn respond(answers: &Answers, message: &[u8], name: &str, kind: u16) -> Vec<u8> {
    let mut records = Vec::new();
    for address in answers.addresses.get(name).into_iter().flatten() {
        match (address, kind) {
            (IpAddr::V4(ip), TYPE_A) => records.push(ip.octets().to_vec()),
            (IpAddr::V6(ip), TYPE_AAAA) => records.push(ip.octets().to_vec()),
            _ => {}
        }
    }
    if kind == TYPE_SRV {
        records.extend(
            answers
                .services
                .get(name)
                .into_iter()
                .flatten()
                .map(service),
        );
    }
    let exists = answers.addresses.contains_key(name) || answers.services.contains_key(name);
    let fails = answers.fails
        || answers.failing_hosts.contains(name)
        || (kind == TYPE_AAAA && answers.ipv6 == Ipv6::Failing);
    let code = match (fails, exists) {
        (true, _) => SERVER_FAILURE,
        (false, true) => 0,
        (false, false) => NAME_ERROR,
    };
    if fails {
        records.clear();
    }
    let mut response = message.to_vec();
    // A response, authoritative, with recursion.
    response[2] = 0x85;
    response[3] = 0x80 | code;
    // One question, the records, no others.
    response[4..HEADER].copy_from_slice(&[0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
    for data in records {
        // A pointer to the name of the question, and the class IN.
        response.extend([0xc0, HEADER as u8]);
        response.extend(kind.to_be_bytes());
        response.extend([0, 1]);
        response.extend(answers.ttl_s.to_be_bytes());
        response.extend((data.len() as u16).to_be_bytes());
        response.extend(data);
    }
    response
}

fn service(service: &Service) -> Vec<u8> {
    let mut data = Vec::new();
    for number in [service.priority, service.weight, service.port] {
        data.extend(number.to_be_bytes());
    }
    for label in service.host.split('.') {
        data.push(label.len() as u8);
        data.extend(label.as_bytes());
    }
    data.push(0);
    data
}
