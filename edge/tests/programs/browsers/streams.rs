//! Tests of browsers with WebSocket and with EventSource, through which messages pass one by one.

use sluice_lab::origin::{Framing, Latch, Outcome, Resource};

use super::websocket_server::WebSocketServer;
use super::{Browser, logged, serve_page};
use crate::harness::{SOON, Setup, origin};

const WEBSOCKET: &str = include_str!("../pages/websocket.html");
const EVENTS: &str = include_str!("../pages/events.html");

/// Talks through a WebSocket over HTTP/2 with TLS, or over HTTP/1.1 in clear text.
fn talk(browser: Browser, encrypted: bool) {
    if !browser.is_installed_with(&[]) {
        return;
    }
    let origin = origin();
    serve_page(&origin, WEBSOCKET);
    let server = WebSocketServer::start();
    let setup = Setup::cached(&origin).logged("json");
    let (setup, version) = match encrypted {
        true => (setup.encrypted(), "HTTP/2.0"),
        false => (setup.in_clear_text(), "HTTP/1.1"),
    };
    let route = format!(
        "[[site]]\n[[site.route]]\npath = \"/socket\"\nproxy = \"{}\"\n",
        server.url()
    );
    let edge = Setup::of_text(setup.text().replacen("[[site]]\n", &route, 1)).start();
    let visit = browser.open(&edge, "/page");
    // 105 messages have come back, and the server has returned the client's code and reason.
    assert_eq!(visit.report(&origin), "105_echo_4321_done_true");
    assert_eq!(logged(&edge, "/socket", 1)[0]["version"], version);
    assert_eq!(server.connections(), 1);
}

#[test]
fn chromium_talks_through_a_websocket_over_http2() {
    talk(Browser::Chromium, true);
}

#[test]
fn chromium_talks_through_a_websocket_over_http1() {
    talk(Browser::Chromium, false);
}

#[test]
fn firefox_talks_through_a_websocket_over_http2() {
    talk(Browser::Firefox, true);
}

/// Receives events. The origin sends each of them only after the page has reported the one before.
fn receive_events(browser: Browser) {
    if !browser.is_installed_with(&[]) {
        return;
    }
    let origin = origin();
    serve_page(&origin, EVENTS);
    let words = ["one", "two", "three", "four"];
    let content: String = words.map(|word| format!("data: {word}\n\n")).concat();
    let latch = Latch::closed();
    let events = Resource::bytes(content.clone())
        .header("Content-Type", "text/event-stream")
        .cache_control("no-store")
        .framing(Framing::Chunked(1000))
        .hold_body(&latch);
    origin.serve("/pass/events", events);
    let edge = Setup::cached(&origin).encrypted().logged("json").start();
    let visit = browser.open(&edge, "/page");
    for (index, word) in words[..3].iter().enumerate() {
        let end = content.find(word).expect("a word") + word.len() + 2;
        latch.advance_to(end as u64);
        let reports = visit.reports(&origin, index + 1);
        assert_eq!(reports, words[..=index]);
    }
    // The page leaves, which ends the request to the origin.
    let has_ended = |record: &sluice_lab::origin::Record| {
        let mut requests = record.of("/pass/events");
        requests.all(|seen| seen.outcome == Outcome::Aborted)
    };
    assert!(origin.wait_for(has_ended, SOON));
    assert_eq!(logged(&edge, "/pass/events", 1)[0]["version"], "HTTP/2.0");
}

#[test]
fn chromium_receives_events_over_http2() {
    receive_events(Browser::Chromium);
}

#[test]
fn firefox_receives_events_over_http2() {
    receive_events(Browser::Firefox);
}
