//! Tests of servers that accept no connections.

use super::*;

// An attempt that began before a server came back may time out long after another one succeeded.
#[test]
fn a_late_failure_to_connect_does_not_undo_a_newer_success() {
    let testing = Testing::new(Options::new(vec![server(refusing())]));
    let server = testing.state.servers()[0].clone();
    server.note_connect(Err(Reason::ConnectTimeout), 10);
    assert!(server.is_down());
    server.note_connect(Ok(()), 20);
    let started = server.condition().seen().starting_since_us;
    for began_us in [11, 19] {
        server.note_connect(Err(Reason::ConnectTimeout), began_us);
        assert!(!server.is_down());
        assert_eq!(server.trials().failed_since(11), None);
    }
    server.note_connect(Ok(()), 18);
    server.note_connect(Err(Reason::ConnectTimeout), 19);
    assert!(!server.is_down());
    assert_eq!(server.condition().seen().starting_since_us, started);
    server.note_connect(Err(Reason::ConnectFailed), 20);
    assert!(server.is_down());
}

// No failure precedes the success.
#[test]
fn a_slow_failure_to_connect_does_not_take_down_a_server_that_accepts_connections() {
    let testing = Testing::new(Options::new(vec![server(refusing())]));
    let server = testing.state.servers()[0].clone();
    server.note_connect(Ok(()), 20);
    server.note_connect(Err(Reason::ConnectTimeout), 19);
    assert!(!server.is_down());
}
