//! Tests of the emulator with real network namespaces, and of the relay.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::flow::{Flow, SMALLEST, round_trips, send_flow};
use super::*;
use crate::noise;

/// Starts an emulator. Returns `None` after a message if the machine does not permit it; the test is then skipped, which
/// is an error in CI.
fn start(profile: &str) -> Option<Wan> {
    match Wan::start(&profile.parse().expect("a profile"), 1) {
        Ok(wan) => Some(wan),
        Err(error) => {
            let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
            assert!(!ci, "{error:#}");
            eprintln!("skipped: {error:#}");
            None
        }
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[test]
fn a_round_trip_takes_the_time_of_the_profile() {
    let Some(wan) = start("delay=80ms") else {
        return;
    };
    let wait = Duration::from_secs(5);
    let times = round_trips(wan.near(), wan.far(), 100, wait);
    let mut times = times.expect("round trips");
    times.sort_unstable();
    eprintln!(
        "{:.2} to {:.2} ms, median {:.2} ms",
        ms(times[0]),
        ms(times[times.len() - 1]),
        ms(times[times.len() / 2])
    );
    assert_eq!(times.len(), 100);
    assert!(times[0] >= Duration::from_millis(80), "{:?}", times[0]);
    // The machine may be busy, so the upper bound is generous.
    assert!(times[0] < Duration::from_millis(130), "{:?}", times[0]);
}

#[test]
fn packets_are_lost_and_counted_and_never_reordered() {
    let Some(wan) = start("delay=20ms,jitter=10ms,loss=10%") else {
        return;
    };
    let flow = Flow {
        size: SMALLEST,
        pace: 5000.0,
        packets: 10_000,
        wait: Duration::from_secs(2),
    };
    let arrived = send_flow(wan.far(), wan.near(), flow).expect("a flow");
    let (down, up) = (wan.down(), wan.up());
    eprintln!("{arrived:?}\n{down:?}");
    assert_eq!(arrived.sent, 10_000);
    assert_eq!(arrived.reordered, 0);
    // Each packet is counted once. The receiver may miss packets only if it gets no core for very long.
    assert_eq!(down.packets, down.delivered + down.lost);
    assert!(arrived.received <= down.delivered);
    let share = down.lost as f64 / down.packets as f64;
    assert!((0.08..0.12).contains(&share), "{share}");
    assert_eq!((up.packets, down.dropped, down.queue_full), (0, 0, 0));
}

#[test]
fn the_rate_is_not_exceeded() {
    let Some(wan) = start("rate=8Mbit,queue=50") else {
        return;
    };
    let flow = Flow {
        size: MTU,
        pace: 1000.0,
        packets: 1000,
        wait: Duration::from_secs(1),
    };
    let began = Instant::now();
    let arrived = send_flow(wan.near(), wan.far(), flow).expect("a flow");
    let (took, up) = (began.elapsed(), wan.up());
    eprintln!("{:?} bit/s in {took:?}, {up:?}", arrived.rate());
    assert!(arrived.received > 50);
    let least = transmission(MTU, 8_000_000) * (up.delivered as u32);
    assert!(took >= least, "{took:?} for {} packets", up.delivered);
    // If the machine is busy, packets may enter the link more slowly than its rate.
    assert_eq!(up.packets, up.delivered + up.queue_full);
}

#[test]
fn programs_and_connections_use_the_link() {
    let Some(wan) = start("delay=20ms,loss=1%,rate=100Mbit") else {
        return;
    };
    let address = wan.far().address();
    let listener = wan.far().run(|| TcpListener::bind((address, 0)));
    let listener = listener.expect("the namespace").expect("a listener");
    let target = listener.local_addr().expect("an address");
    let began = Instant::now();
    let client = wan.near().run(|| TcpStream::connect(target));
    let mut client = client.expect("the namespace").expect("a connection");
    assert!(began.elapsed() >= Duration::from_millis(20));
    let (mut server, peer) = listener.accept().expect("a connection");
    assert_eq!(peer.ip(), wan.near().address());
    let mut sent = vec![0; 300_000];
    noise::fill(1, 0, 0, &mut sent);
    let sending = thread::spawn(move || server.write_all(&sent));
    let mut received = Vec::new();
    client.read_to_end(&mut received).expect("all bytes");
    sending.join().expect("no panic").expect("sent");
    assert_eq!(received.len(), 300_000);
    assert_eq!(noise::verify(1, 0, 0, &received), Ok(()));

    // A process sees only its end, and clients may have many addresses.
    let output = wan
        .near()
        .run(|| Command::new("ip").args(["-o", "link"]).output());
    let output = output.expect("the namespace").expect("ip is installed");
    let devices = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        devices.contains("wan0") && devices.contains("mtu 1500"),
        "{devices}"
    );
    assert!(!devices.contains("eth0"), "{devices}");
    let other = wan.near().run(|| UdpSocket::bind("10.1.200.7:0"));
    assert!(other.expect("the namespace").is_ok());
}

#[test]
fn nothing_is_left_of_an_emulator_even_after_a_panic() {
    let Some(wan) = start("delay=1ms") else {
        return;
    };
    let devices = || {
        Command::new("ip")
            .args(["-o", "link"])
            .output()
            .expect("ip")
            .stdout
    };
    assert!(!String::from_utf8_lossy(&devices()).contains("wan0"));
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wan.near().run(|| panic!("a failing experiment"))
    }));
    assert!(panic.is_err());
    // The socket keeps the namespace, but not the device.
    let address = wan.near().address();
    let socket = wan.near().run(|| UdpSocket::bind((address, 0)));
    let socket = socket.expect("the namespace").expect("a socket");
    let far = wan.far().address();
    socket.send_to(b"hello", (far, 9)).expect("a route");
    drop(wan);
    assert!(socket.send_to(b"hello", (far, 9)).is_err());
}

#[test]
fn the_forwarding_thread_sleeps_while_no_packet_is_on_its_way() {
    let Some(wan) = start("eu-uswest") else {
        return;
    };
    thread::sleep(Duration::from_millis(300));
    let before = wan.wakeups();
    thread::sleep(Duration::from_millis(700));
    // The kernel announces itself by a few IPv6 packets on each new device.
    let wakeups = wan.wakeups() - before;
    assert!(wakeups <= 20, "{wakeups}");
    // Round trips wake the thread, but it does not poll while their packets are on the way.
    let times = round_trips(wan.near(), wan.far(), 5, Duration::from_secs(5));
    assert_eq!(times.expect("round trips").len(), 5);
    let wakeups = wan.wakeups() - before;
    assert!((10..=70).contains(&wakeups), "{wakeups}");
}

#[test]
fn missing_permissions_are_explained() {
    let message = thread::spawn(|| {
        let mut sets = capabilities(None).expect("capabilities");
        sets.effective.remove(CapabilitySet::SYS_ADMIN);
        set_capabilities(None, sets).expect("giving up a capability");
        let started = Wan::start(&Profile::default(), 1).map(drop);
        format!("{:#}", started.expect_err("no permission"))
    });
    let message = message.join().expect("no panic");
    for needed in [
        "root",
        "CAP_NET_ADMIN",
        "/dev/net/tun",
        "--relay",
        "can't create a network namespace",
    ] {
        assert!(message.contains(needed), "{message}");
    }
}

fn relay_options(profile: &str) -> Options {
    Options {
        relay: true,
        round_trips: 5,
        seconds: 0.5,
        ..Options::new(profile.parse().expect("a profile"))
    }
}

#[test]
fn the_relay_delays_bytes_and_its_report_says_that_it_is_the_fallback() {
    let options = relay_options("delay=40ms,loss=1%,rate=8Mbit");
    let report = run(&options, &|_| ()).expect("a report");
    eprintln!("{}", report.render());
    assert!(report.fallback && report.network == Network::Relay);
    let measured = |key: &str| report.figure(key).and_then(|figure| figure.measured);
    assert!(measured("rtt_min") >= Some(40.0), "{report:?}");
    assert!(measured("rate_up") > Some(0.0), "{report:?}");
    assert!(measured("rate_down") > Some(0.0), "{report:?}");
    assert_eq!(measured("loss_down"), None);
}

#[test]
fn the_relay_passes_on_ends_and_closes_its_connections_when_it_is_dropped() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let target = listener.local_addr().expect("an address");
    let profile = "delay=10ms,rate=8Mbit".parse().expect("a profile");
    let relay = Relay::start(&profile, target, 1).expect("a relay");
    let began = Instant::now();
    let mut client = TcpStream::connect(relay.addr()).expect("a connection");
    let (mut server, _) = listener.accept().expect("a connection");
    assert!(began.elapsed() >= Duration::from_millis(10));
    let mut sent = vec![0; 200_000];
    noise::fill(1, 0, 0, &mut sent);
    client.write_all(&sent).expect("sent");
    client.shutdown(std::net::Shutdown::Write).expect("an end");
    let mut received = Vec::new();
    server.read_to_end(&mut received).expect("all bytes");
    assert!(received == sent);
    // Transmission takes 200 ms at this rate, and the last bytes take half a round trip.
    assert!(began.elapsed() >= Duration::from_millis(205));
    server.write_all(b"thanks").expect("sent");
    let mut thanks = [0; 6];
    client.read_exact(&mut thanks).expect("received");
    assert_eq!(&thanks, b"thanks");
    drop(relay);
    assert_eq!(client.read(&mut thanks).unwrap_or(0), 0);
}

#[test]
fn the_experiment_measures_what_the_profile_says() {
    if start("delay=1ms").is_none() {
        return;
    }
    // `SLUICE_SOAK=50` sends as many packets as the command.
    let factor = crate::soak::factor();
    let profile = "delay=80ms,loss=1%,rate=8Mbit,queue=100".parse();
    let options = Options {
        round_trips: 20 * factor.min(15),
        seconds: f64::from(factor.min(5)),
        packets: 2000 * u64::from(factor),
        ..Options::new(profile.expect("a profile"))
    };
    let report = run(&options, &|_| ()).expect("a report");
    eprintln!("{}", report.render());
    let measured = |key: &str| report.figure(key).and_then(|figure| figure.measured);
    assert!(!report.fallback && report.network == Network::Namespaces);
    // Only bounds that hold on a busy machine, too.
    assert!(measured("rtt_min") >= Some(80.0), "{report:?}");
    for direction in ["down", "up"] {
        assert!(
            measured(&format!("rate_{direction}")) > Some(0.0),
            "{report:?}"
        );
        assert_eq!(measured(&format!("reordered_{direction}")), Some(0.0));
        assert!(
            measured(&format!("loss_{direction}")) > Some(0.0),
            "{report:?}"
        );
    }
    let traffic = [report.up, report.down].map(|traffic| traffic.expect("counters"));
    for one in traffic {
        assert_eq!(one.packets, one.delivered + one.lost + one.queue_full);
        assert_eq!(one.delivered, one.late.iter().sum::<u64>());
    }
}
