//! The measurements of the WAN emulator and of its fallback.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::flow::{Flow, HEADERS, PROBE, SMALLEST, round_trips, send_flow};
use super::link::{LinkSettings, transmission};
use super::namespace::{End, MTU};
use super::report::{Figure, Report, round_trip_figures};
use super::{Network, Options, Relay, Wan};

/// Largest rate in bits per second that is measured. A faster link is measured with packets at this rate.
const RATE_MAX: u64 = 100_000_000;

/// Packets that measure a rate arrive this many times faster than the link can send them.
const EXCESS: f64 = 1.2;

/// Smallest number of packets that measure a rate.
const RATE_PACKETS_MIN: f64 = 100.0;

/// Packets per second that measure loss.
const LOSS_PACE: f64 = 20_000.0;

/// Longest duration in seconds of a flow. On slow links, fewer packets are sent.
const FLOW_SECONDS_MAX: f64 = 60.0;

/// Time for which measurements wait for the last packets, in addition to the delay of the link.
const GRACE: Duration = Duration::from_millis(500);

/// Longest wait of a relay's clients and servers.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Measures the emulator.
pub(super) fn namespaces(options: &Options, progress: &dyn Fn(&str)) -> anyhow::Result<Report> {
    let wan = Wan::start(&options.profile, options.seed)?;
    let mut report = Report::new(options, Network::Namespaces);
    let (up, down) = (options.profile.up_link(), options.profile.down_link());
    progress(&format!("{} round trips", options.round_trips));
    let wait = options.profile.delay + options.profile.jitter + GRACE;
    let times = round_trips(wan.near(), wan.far(), options.round_trips, wait)?;
    let own = own_time(&up) + own_time(&down);
    report.figures = round_trip_figures(&options.profile, own, times);
    let (near, far) = (wan.near(), wan.far());
    progress("rate, down");
    report.figures.push(rate(DOWN, far, near, &down, options)?);
    progress("rate, up");
    report.figures.push(rate(UP, near, far, &up, options)?);
    for (names, from, to, link) in [(DOWN, far, near, &down), (UP, near, far, &up)] {
        let flow = loss_flow(link, options);
        progress(&format!("{} packets, {}", flow.packets, names.direction));
        if flow.packets < options.packets {
            let (direction, packets) = (names.direction, flow.packets);
            let note = format!("{direction}: the link is too slow for more than {packets} packets");
            report.notes.push(note);
        }
        let queue_full = queue_full(&wan, names);
        let arrived = send_flow(from, to, flow)?;
        let queue_full = self::queue_full(&wan, names) - queue_full;
        report.figures.push(loss(
            names,
            arrived.sent - queue_full,
            arrived.received,
            link,
        ));
        let reordered = arrived.reordered as f64;
        let reordered = Figure::new(
            names.reordered,
            names.reordered_what,
            "packets",
            Some(reordered),
        );
        report.figures.push(reordered.wanted(0.0, 0.0));
    }
    report.down = Some(wan.down());
    report.up = Some(wan.up());
    Ok(report)
}

/// The names of the figures of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Names {
    direction: &'static str,
    rate: &'static str,
    rate_what: &'static str,
    loss: &'static str,
    loss_what: &'static str,
    reordered: &'static str,
    reordered_what: &'static str,
}

const DOWN: Names = Names {
    direction: "down",
    rate: "rate_down",
    rate_what: "rate, down",
    loss: "loss_down",
    loss_what: "loss, down",
    reordered: "reordered_down",
    reordered_what: "reordered, down",
};

const UP: Names = Names {
    direction: "up",
    rate: "rate_up",
    rate_what: "rate, up",
    loss: "loss_up",
    loss_what: "loss, up",
    reordered: "reordered_up",
    reordered_what: "reordered, up",
};

/// Returns the number of packets that the queue of this direction has dropped so far.
fn queue_full(wan: &Wan, names: Names) -> u64 {
    match names == UP {
        true => wan.up().queue_full,
        false => wan.down().queue_full,
    }
}

/// Returns the time that the link needs to transmit a packet of the round trips.
fn own_time(link: &LinkSettings) -> Duration {
    link.rate
        .map_or(Duration::ZERO, |rate| transmission(PROBE, rate))
}

/// Measures the rate of a direction with more packets than the link can send.
fn rate(
    names: Names,
    from: &End,
    to: &End,
    link: &LinkSettings,
    options: &Options,
) -> anyhow::Result<Figure> {
    let wanted = link.rate.filter(|rate| *rate <= RATE_MAX);
    let pace = wanted.unwrap_or(RATE_MAX) as f64 * EXCESS / (8.0 * MTU as f64);
    let seconds = options
        .seconds
        .max(RATE_PACKETS_MIN / pace)
        .min(FLOW_SECONDS_MAX);
    let queue = wanted.map_or(Duration::ZERO, |rate| {
        transmission(MTU * link.queue as usize, rate)
    });
    let flow = Flow {
        size: MTU,
        pace,
        packets: (seconds * pace).max(2.0) as u64,
        wait: (link.delay + link.jitter + queue).min(TIMEOUT) + GRACE,
    };
    let arrived = send_flow(from, to, flow)?;
    let measured = arrived.rate().map(|rate| rate / 1e6);
    let figure = Figure::new(names.rate, names.rate_what, "Mbit/s", measured);
    // Random loss comes after the bottleneck.
    let arriving = wanted.map(|rate| (rate as f64 * (1.0 - link.loss)) as u64);
    Ok(rate_wanted(figure, arriving))
}

fn rate_wanted(figure: Figure, wanted: Option<u64>) -> Figure {
    match wanted {
        Some(rate) => figure.wanted(rate as f64 / 1e6, rate as f64 / 1e6 * 0.02),
        None => figure,
    }
}

/// Returns the flow that measures the loss of a direction: small packets at half of its rate.
fn loss_flow(link: &LinkSettings, options: &Options) -> Flow {
    let possible = link.rate.map_or(f64::INFINITY, |rate| {
        rate as f64 / 2.0 / (8.0 * SMALLEST as f64)
    });
    let pace = LOSS_PACE.min(possible);
    Flow {
        size: SMALLEST,
        pace,
        packets: options.packets.min((pace * FLOW_SECONDS_MAX) as u64),
        wait: link.delay + link.jitter + GRACE,
    }
}

fn loss(names: Names, sent: u64, received: u64, link: &LinkSettings) -> Figure {
    let share = sent.saturating_sub(received) as f64 / sent.max(1) as f64;
    // At least four standard deviations, since few packets can't tell more.
    let deviation = (link.loss * (1.0 - link.loss) / sent.max(1) as f64).sqrt();
    let tolerance = (link.loss * 0.2).max(4.0 * deviation);
    Figure::new(names.loss, names.loss_what, "%", Some(share * 100.0))
        .wanted(link.loss * 100.0, tolerance * 100.0)
}

/// Measures the fallback.
pub(super) fn relay(options: &Options, progress: &dyn Fn(&str)) -> anyhow::Result<Report> {
    let mut report = Report::new(options, Network::Relay);
    let profile = &options.profile;
    progress(&format!("{} round trips", options.round_trips));
    let times = relay_round_trips(options)?;
    report.figures = round_trip_figures(profile, Duration::ZERO, times);
    for (names, link) in [(DOWN, profile.down_link()), (UP, profile.up_link())] {
        progress(names.rate_what);
        let measured = relay_rate(options, names)? / 1e6;
        let figure = Figure::new(names.rate, names.rate_what, "Mbit/s", Some(measured));
        let wanted = link.rate.filter(|rate| *rate <= RATE_MAX);
        report.figures.push(rate_wanted(figure, wanted));
    }
    for (names, link) in [(DOWN, profile.down_link()), (UP, profile.up_link())] {
        if link.loss > 0.0 {
            let figure = Figure::new(names.loss, names.loss_what, "%", None);
            report
                .figures
                .push(figure.wanted(link.loss * 100.0, link.loss * 20.0));
        }
    }
    report.notes.push(
        "fallback: bytes of TCP are delayed within this process; no packet is lost or dropped"
            .to_owned(),
    );
    Ok(report)
}

/// Starts a relay to a new listener, and returns it with both ends of one connection through it.
fn relay_connection(options: &Options) -> anyhow::Result<(Relay, TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let relay = Relay::start(&options.profile, listener.local_addr()?, options.seed)?;
    let client = TcpStream::connect(relay.addr())?;
    let (server, _) = listener.accept()?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
    }
    Ok((relay, client, server))
}

fn relay_round_trips(options: &Options) -> anyhow::Result<Vec<Duration>> {
    let (_relay, mut client, mut server) = relay_connection(options)?;
    let size = PROBE - HEADERS;
    thread::scope(|scope| {
        scope.spawn(move || -> anyhow::Result<()> {
            let mut probe = vec![0; size];
            loop {
                // Reading fails when the client has closed the connection.
                server.read_exact(&mut probe)?;
                server.write_all(&probe)?;
            }
        });
        let mut probe = vec![0; size];
        let mut times = Vec::new();
        for _ in 0..options.round_trips {
            let sent = Instant::now();
            client.write_all(&probe)?;
            client.read_exact(&mut probe).context("a round trip")?;
            times.push(sent.elapsed());
        }
        client.shutdown(Shutdown::Both)?;
        Ok(times)
    })
}

/// Returns the bits per second that arrive in one direction.
fn relay_rate(options: &Options, names: Names) -> anyhow::Result<f64> {
    let (_relay, client, server) = relay_connection(options)?;
    let (mut source, mut sink) = match names == UP {
        true => (client, server),
        false => (server, client),
    };
    let duration = Duration::from_secs_f64(options.seconds);
    thread::scope(|scope| {
        let sender = source.try_clone()?;
        scope.spawn(move || {
            let bytes = [0; 16 << 10];
            // Writing fails when the measurement ends.
            while source.write_all(&bytes).is_ok() {}
        });
        let mut buffer = [0; 16 << 10];
        anyhow::ensure!(sink.read(&mut buffer)? > 0, "the relay closed a connection");
        let (began, mut bytes) = (Instant::now(), 0);
        let took = loop {
            bytes += sink.read(&mut buffer)?;
            if began.elapsed() >= duration {
                break began.elapsed();
            }
        };
        sender.shutdown(Shutdown::Both)?;
        Ok(bytes as f64 * 8.0 / took.as_secs_f64())
    })
}
