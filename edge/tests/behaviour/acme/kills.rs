//! Tests that kill the edge at each request of an order.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::Bed;
use crate::harness::eventually;

/// The side of a request at which the edge is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The authority never sees the request.
    Before,
    /// The authority has handled the request, and the edge never sees the response.
    After,
}

/// A passage to the authority that stops at one request. The edge uses one connection for each request.
struct Passage {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: SocketAddr,
    side: Side,
    /// The number of requests until the one at which the passage stops. Less than 1: it stops at none.
    left: AtomicUsize,
    has_stopped: AtomicBool,
}

impl Passage {
    fn start(target: SocketAddr, side: Side, stop_at: usize) -> Passage {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            target,
            side,
            left: AtomicUsize::new(stop_at),
            has_stopped: AtomicBool::new(false),
        });
        let its = shared.clone();
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let shared = its.clone();
                let left = shared.left.fetch_sub(1, Ordering::SeqCst);
                thread::spawn(move || shared.pass(client, left == 1));
            }
        });
        Passage { address, shared }
    }

    fn directory(&self) -> String {
        format!("directory = \"https://{}/dir\"\n", self.address)
    }

    fn has_stopped(&self) -> bool {
        self.shared.has_stopped.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn pass(&self, mut client: TcpStream, stops: bool) -> io::Result<()> {
        if stops && self.side == Side::Before {
            self.has_stopped.store(true, Ordering::SeqCst);
            return wait_closed(&mut client);
        }
        let mut server = TcpStream::connect(self.target)?;
        let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
        let upward = thread::spawn(move || {
            let _ = io::copy(&mut from_client, &mut to_server);
            to_server.shutdown(Shutdown::Write)
        });
        match stops {
            false => {
                let _ = io::copy(&mut server, &mut client);
                let _ = client.shutdown(Shutdown::Write);
            }
            true => self.hold_response(&mut server, &mut client)?,
        }
        let _ = upward.join();
        Ok(())
    }

    /// Passes on the server's part of the handshake, and nothing after it. The authority closes the connection after its
    /// response.
    fn hold_response(&self, server: &mut TcpStream, client: &mut TcpStream) -> io::Result<()> {
        let mut is_handshake = true;
        loop {
            let mut header = [0; 5];
            if server.read_exact(&mut header).is_err() {
                break;
            }
            let mut record = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
            server.read_exact(&mut record)?;
            // The server's part ends with its Finished, the first short record that is encrypted; a ticket and the
            // response come later.
            if is_handshake {
                client.write_all(&header)?;
                client.write_all(&record)?;
                is_handshake = !is_finished(&header, &record);
            }
        }
        self.has_stopped.store(true, Ordering::SeqCst);
        wait_closed(client)
    }
}

/// Whether a record of TLS 1.3 has only a Finished with 32 or 48 bytes (RFC 8446 4.4.4): four bytes of header, one of type,
/// 16 of authentication.
fn is_finished(header: &[u8; 5], record: &[u8]) -> bool {
    header[0] == 23 && matches!(record.len(), 53 | 69)
}

fn wait_closed(client: &mut TcpStream) -> io::Result<()> {
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).map(drop)
}

/// Kills the edge at each request of its first order, and starts it again. `side` says at which side of the request.
fn kill_at_each_request(side: Side) {
    let bed = Bed::new(&[], |_| {});
    for stop_at in 1.. {
        assert!(stop_at < 40, "an order does not need so many requests");
        let name = format!("{stop_at}.example.com");
        bed.pebble.serve_names(&[&name]);
        let (before, invalid_before) = (bed.pebble.orders(), bed.pebble.invalid_orders());
        let passage = Passage::start(bed.pebble.address(), side, stop_at);
        let state = bed.folder.path().join(&name);
        let keys = format!("{}state = {state:?}\n", passage.directory());
        let edge = bed.start(&keys, &[&name]);
        let mut is_served = false;
        eventually("the order is at that request or done", || {
            is_served = bed.handshake(&name).is_ok();
            passage.has_stopped() || is_served
        });
        // The authority has an order of which the edge has not heard.
        let record = std::fs::read_to_string(state.join(format!("certificates/{name}.json")));
        let knows_order = record.is_ok_and(|record| record.contains("/my-order/"));
        let is_lost = !is_served && !knows_order && bed.pebble.orders() > before;
        // Ends the process by SIGKILL.
        drop(edge);
        let _edge = bed.start(&keys, &[&name]);
        assert_eq!(bed.wait_served(&name), "hello");
        let orders = bed.pebble.orders() - before;
        // An authority that asked while the edge was down has ended the order itself.
        let ended = bed.pebble.invalid_orders() - invalid_before;
        let expected = 1 + usize::from(is_lost) + ended;
        assert_eq!(orders, expected, "at request {stop_at}, {side:?}");
        if is_served {
            assert!(stop_at > 6, "an order has more requests");
            return;
        }
    }
}

#[test]
fn an_edge_that_is_killed_before_a_request_of_an_order_goes_on_with_the_order() {
    kill_at_each_request(Side::Before);
}

#[test]
fn an_edge_that_is_killed_after_a_request_of_an_order_goes_on_with_the_order() {
    kill_at_each_request(Side::After);
}
