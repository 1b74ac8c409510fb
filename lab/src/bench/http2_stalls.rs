//! The row of the bench for a connection with HTTP/2 of which half of the streams stall: throughput of the others.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use anyhow::Context as _;

use super::contest::Contender;
use super::http2::Servers;
use super::table::{Row, Unit};
use super::{Bench, median};
use crate::client;
use crate::process::pin_to_core;
use crate::raw_http2::{Frames, code, flag, get, kind, setting};
use crate::raw_tls;

/// Length of the object that all streams request.
const LENGTH: u64 = 16 << 20;
/// Number of streams that are read, and of those that stall.
const EACH: u32 = 50;
/// Window of a stream at first, which the streams that stall fill.
const WINDOW: u32 = 65_535;
/// Further window of streams that are read, and of the connection: no limit.
const OPEN: u32 = (1 << 30) - 1;
/// Bytes after which the connection's window is opened by as many.
const STEP: u32 = 1 << 24;
/// Bytes of a frame's header.
const HEADER: usize = 9;

/// Measures the throughput of 50 streams beside 50 that stall, as a share of their throughput alone.
pub(super) fn stalls(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let servers = Servers::start(bench, None, LENGTH)?;
    let mut row = Row::new(
        "HTTP/2, 100 streams of which 50 stall: throughput of the others",
        Unit::Factor,
    );
    for one in &servers.contenders {
        match (share(bench, one), one.column.is_sluice()) {
            (Ok(share), true) => row.sluice = Some(share),
            (Ok(share), false) => {
                row.nginx = Some(row.nginx.map_or(share, |other| other.max(share)));
            }
            (Err(error), true) => return Err(error),
            // nginx 1.22 may take 50 large responses for a flood, and closes the connection.
            (Err(error), false) => row = row.note(&format!("{}: {error:#}", one.label)),
        }
    }
    Ok(vec![row.goal_least(0.95)])
}

/// Measures one server: the throughput beside streams that stall, as a share of that alone.
fn share(bench: &Bench<'_>, one: &Contender) -> anyhow::Result<f64> {
    let address = one.server.address();
    let path = format!("/offset/{LENGTH}");
    let reply = client::get(address, &path, &[])?;
    reply.verify_whole(LENGTH).map_err(anyhow::Error::msg)?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..bench.options.rounds.max(1) {
        alone.push(apart(bench, address, 0)?);
        beside.push(apart(bench, address, EACH)?);
    }
    let alone = median(alone).context("at least one round")?;
    let beside = median(beside).context("at least one round")?;
    let share = beside / alone;
    let mib = f64::from(1 << 20);
    let (alone, beside) = (alone / mib, beside / mib);
    eprintln!(
        "  {}: {share:.3} ({beside:.0} of {alone:.0} MiB/s)",
        one.label
    );
    Ok(share)
}

/// Measures on a thread of its own, because pinning a thread can't be undone.
fn apart(bench: &Bench<'_>, address: SocketAddr, stalled: u32) -> anyhow::Result<f64> {
    let core = bench.options.load_core;
    let measured = std::thread::scope(|scope| {
        let measure = || {
            pin_to_core(core)?;
            throughput(address, stalled)
        };
        scope.spawn(measure).join()
    });
    measured.map_err(|_| anyhow::anyhow!("the client panicked"))?
}

/// Reads `EACH` streams beside others that stall. Returns their bytes per second.
fn throughput(address: SocketAddr, stalled: u32) -> anyhow::Result<f64> {
    let mut socket = raw_tls::connect(address, None)?;
    let (host, path) = (address.to_string(), format!("/offset/{LENGTH}"));
    let request = get(&host, &path);
    let mut frames = Frames::new();
    frames
        .preface()
        .settings(&[(setting::INITIAL_WINDOW_SIZE, WINDOW)])
        .window_update(0, OPEN);
    // The streams that stall come first, so that they are in the way of the others.
    for number in 0..stalled {
        frames.headers(2 * number + 1, &request, true);
    }
    let first = 2 * stalled + 1;
    for number in 0..EACH {
        let stream = first + 2 * number;
        frames
            .headers(stream, &request, true)
            .window_update(stream, OPEN);
    }
    let began = Instant::now();
    socket.write_all(frames.bytes())?;
    let bytes = Reading::new(socket, first).run()?;
    Ok(bytes as f64 / began.elapsed().as_secs_f64())
}

/// A connection whose frames are read without being copied.
struct Reading {
    socket: TcpStream,
    /// The first stream that does not stall.
    first: u32,
    /// Bytes received that the connection's window does not know.
    consumed: u32,
    /// Bytes of streams that do not stall.
    received: u64,
    ended: u32,
}

impl Reading {
    fn new(socket: TcpStream, first: u32) -> Reading {
        Reading {
            socket,
            first,
            consumed: 0,
            received: 0,
            ended: 0,
        }
    }

    /// Reads until all streams that don't stall have ended. Returns their bytes.
    fn run(mut self) -> anyhow::Result<u64> {
        let mut buffer = vec![0; 1 << 20];
        let mut filled = 0;
        // Bytes of the current frame's content that have not arrived.
        let mut rest = 0;
        while self.ended < EACH {
            let count = self.socket.read(&mut buffer[filled..])?;
            anyhow::ensure!(count > 0, "the server has closed the connection");
            filled += count;
            let mut at = 0;
            loop {
                let skipped = rest.min(filled - at);
                at += skipped;
                rest -= skipped;
                let Some(header) = buffer[at..filled].first_chunk::<HEADER>() else {
                    break;
                };
                rest = self.frame(*header)?;
                at += HEADER;
            }
            buffer.copy_within(at..filled, 0);
            filled -= at;
        }
        let expected = u64::from(EACH) * LENGTH;
        anyhow::ensure!(self.received == expected, "{} bytes", self.received);
        Ok(self.received)
    }

    /// Handles the header of a frame. Returns the length of its payload.
    fn frame(&mut self, header: [u8; HEADER]) -> anyhow::Result<usize> {
        let [a, b, c, kind, flags, stream @ ..] = header;
        let length = u32::from_be_bytes([0, a, b, c]);
        let stream = u32::from_be_bytes(stream);
        let is_read = stream >= self.first;
        match kind {
            kind::DATA => {
                self.consumed += length;
                if is_read {
                    self.received += u64::from(length);
                }
            }
            kind::RST_STREAM | kind::GOAWAY => {
                anyhow::bail!("the server has ended stream {stream} (frame {kind})");
            }
            kind::SETTINGS if flags & flag::ACK == 0 => {
                self.socket
                    .write_all(Frames::new().settings_ack().bytes())?;
            }
            _ => {}
        }
        let ends = matches!(kind, kind::DATA | kind::HEADERS) && flags & flag::END_STREAM != 0;
        let is_last = ends && is_read && self.ended + 1 == EACH;
        self.ended += u32::from(ends && is_read);
        if self.consumed >= STEP {
            let mut frames = Frames::new();
            self.socket
                .write_all(frames.window_update(0, self.consumed).bytes())?;
            self.consumed = 0;
        }
        if is_last {
            // The other streams are given up, so that the server is free for the next measurement.
            let mut frames = Frames::new();
            for number in 0..self.first / 2 {
                frames.reset(2 * number + 1, code::CANCEL);
            }
            self.socket.write_all(frames.bytes())?;
        }
        Ok(length as usize)
    }
}
