//! Tests of connections over HTTP/1.1 whose events arrive in an order that only the test decides.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::net::sockopt;

use super::*;
use crate::load::LoadTls;
use crate::load::free::Free;
use crate::load::state::LoadState;

const PATIENCE: Duration = Duration::from_secs(60);

/// One connection of a load without its event loop.
struct Rig {
    connections: Http1,
    load: Load<'static>,
    buffer: Vec<u8>,
}

impl Rig {
    fn new(plan: LoadPlan) -> Rig {
        let turn = Turn::new(0, 1);
        Rig {
            connections: Http1::new(&plan, turn).expect("a valid plan"),
            load: Load {
                free: Free::new(1, false),
                state: LoadState::new(plan, turn, None).expect("a valid plan"),
                epoll: epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll set"),
                unread: Vec::new(),
            },
            buffer: vec![0; 1 << 16],
        }
    }

    /// Begins a request, for which the place has to be free.
    fn begin(&mut self) {
        let due = self.load.state.due(Instant::now()).expect("a request");
        let place = self.load.free.take().expect("a free place");
        self.connections.begin(&mut self.load, place, due);
    }

    /// Waits for events, which are not handled.
    fn wait(&self) -> Vec<epoll::Event> {
        let mut events = Vec::with_capacity(4);
        let limit = Timespec::try_from(PATIENCE).expect("a time");
        let room = spare_capacity(&mut events);
        epoll::wait(&self.load.epoll, room, Some(&limit)).expect("events");
        assert!(!events.is_empty(), "no event");
        events
    }

    /// Handles events until no request is in progress.
    fn finish(&mut self) {
        while !self.load.free.are_all_back() {
            for event in self.wait() {
                let (number, flags) = (event.data.u64(), event.flags);
                let Rig {
                    connections,
                    load,
                    buffer,
                } = self;
                connections.event(load, number, flags, buffer);
            }
        }
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

fn answer(mut stream: &TcpStream) {
    let mut request = [0; 1000];
    assert!(stream.read(&mut request).expect("a request") > 0);
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    stream.write_all(response).expect("an open connection");
}

#[test]
fn a_request_on_a_connection_that_was_reset_while_idle_is_sent_again() {
    let (listener, address) = listen();
    let plan = LoadPlan {
        requests: Some(2),
        ..LoadPlan::new(address, "/")
    };
    let mut rig = Rig::new(plan);
    rig.begin();
    let (first, _) = listener.accept().expect("a connection");
    answer(&first);
    rig.finish();
    sockopt::set_socket_linger(first.as_fd(), Some(Duration::ZERO)).expect("an open socket");
    drop(first);
    // The reset has arrived, but the load has not seen it when it sends the next request.
    let flags = rig.wait()[0].flags;
    assert!(flags.contains(epoll::EventFlags::ERR), "{flags:?}");
    rig.begin();
    let state = rig.connections.slots[0].state;
    assert!(
        rig.connections.slots[0].busy(),
        "the request is lost: {state:?}"
    );
    let (second, _) = listener.accept().expect("another connection");
    answer(&second);
    rig.finish();
    let counts = &rig.load.state.counts;
    assert_eq!((counts.done, counts.errors.total()), (2, 0));
    assert_eq!((counts.connects, counts.sent_again), (2, 1));
}

#[test]
fn events_of_an_earlier_socket_do_not_end_a_connection() {
    // The handshake of TLS keeps the connection in the state in which it is being made.
    let (listener, address) = listen();
    let tls = LoadTls {
        authority: "".into(),
        name: "127.0.0.1".to_owned(),
        group: None,
        resumed: false,
    };
    let mut rig = Rig::new(LoadPlan {
        requests: Some(1),
        tls: Some(tls),
        ..LoadPlan::new(address, "/")
    });
    rig.begin();
    rig.connections.slots[0].state = State::Connecting;
    let old = epoll::EventFlags::IN | epoll::EventFlags::ERR | epoll::EventFlags::HUP;
    let Rig {
        connections,
        load,
        buffer,
    } = &mut rig;
    connections.event(load, 0, old, buffer);
    assert_eq!(load.state.counts.errors.total(), 0);
    assert!(!load.free.are_all_back(), "the request is in progress");
    drop(listener);
}
