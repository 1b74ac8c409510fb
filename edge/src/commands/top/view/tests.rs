//! Tests of the frames of `sluice top`, drawn on a terminal in memory.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};

use super::*;
use crate::commands::top::model::{Action, Answer, Listed};
use crate::commands::top::text::text;

const NOW_US: u64 = 100_000_000;

/// Returns a status in which counters have risen for this many seconds.
fn status(seconds: u64) -> Value {
    let mib = 1u64 << 20;
    let worker = json!({
        "connections_now": 6, "requests_now": 2, "requests": 700 * seconds, "cpu_ms": 430 * seconds, "cache_hits": 600 * seconds,
        "cache_misses": 100 * seconds, "client_bytes_out": 50 * mib * seconds, "upstream_bytes_in": mib * seconds,
    });
    let times = json!({ "p50_us": 1_800, "p95_us": 9_000, "p99_us": 23_000, "max_us": 80_000 });
    let server = |address: &str, state: &str, rate: u64| {
        json!({
            "address": address, "name": address, "state": state, "requests": rate * seconds, "reuses": rate * seconds,
            "failures": 3, "busy": 4, "idle": 5, "bytes_in": rate * 1000 * seconds, "header_duration": times, "tcp_rtt": times,
        })
    };
    let mut down = server("10.0.0.3:9000", "ejected", 0);
    down["why"] = json!("5 of 5 requests failed\u{1b}[2J");
    down["backup"] = json!(true);
    json!({
        "version": "1.2.3", "pid": 7, "uptime_s": 3600 + seconds, "reload": { "generation": 2 },
        "counters": {
            "connections_now": 12, "http2_connections_now": 3, "requests_now": 4, "requests": 1400 * seconds,
            "responses_2xx": 1380 * seconds, "responses_3xx": 5 * seconds, "responses_4xx": 14 * seconds, "responses_5xx": seconds,
            "cache_hits": 1200 * seconds, "cache_misses": 200 * seconds, "upstream_requests": 205 * seconds,
            "client_bytes_out": 100 * mib * seconds, "upstream_bytes_in": 2 * mib * seconds,
        },
        "workers": [worker, worker],
        "recent": { "seconds": 10.0, "hit_ratio": 0.857, "byte_hit_ratio": 0.98, "request_duration": times },
        "caches": {
            "pages": { "objects": 1200, "bytes": 80 * mib, "limit": 256 * mib, "flights": 1, "evicted": 0 },
            "video": { "objects": 98_765, "bytes": 8180 * mib, "limit": 8192 * mib, "flights": 22, "evicted": 30 * seconds, "evicted_age_seconds": 5400 },
        },
        "volumes": [
            { "name": "disk1", "state": "up", "size": 500 * 1024 * mib, "written_bytes": 20 * mib * seconds, "reads": 150 * seconds,
              "read_ms": 300 * seconds, "read_bytes": 30 * mib * seconds, "write_ms": 200 * seconds },
            { "name": "disk2", "state": "out", "why": "the disk has failed 3 times", "errors": 3 },
        ],
        "upstreams": {
            "origin": { "servers": [server("10.0.0.1:9000", "up", 120), server("10.0.0.2:9000", "drain", 80), down] },
            "\u{1b}]0;evil\u{7}": { "servers": [server("[2001:db8::1]:80", "up", 5)] },
        },
    })
}

fn answer(seconds: u64) -> Answer {
    let url = |path: &str, requests: u64| {
        json!({ "url": format!("https://cdn.example.com{path}"), "requests": requests, "misses": requests / 10,
                "bytes": requests * 1_000_000, "latency_ms": 3.5 })
    };
    let hostile = format!("/\u{1b}[31m\u{202e}{}", "x".repeat(300));
    let top =
        json!({ "urls": [url("/video/a.mp4", 3000), url("/index.html", 1200), url(&hostile, 7)] });
    let route = |name: &str, requests: f64| {
        json!({ "member": name, "requests": requests, "hits": requests / 2.0, "misses": requests / 2.0, "validated": null, "responses_5xx": 0.0,
                "body_bytes": 1e6 * requests, "upstream_bytes": 2e5 * requests, "request_duration_p99": 0.023 })
    };
    let history = json!({ "members": [route("cdn.example.com /video/*", 1000.0), route("cdn.example.com everything", 400.0)] });
    let listed = |list| match seconds {
        0 => Listed::Read(list),
        _ => Listed::Unread,
    };
    Answer {
        read_us: None,
        status: status(seconds),
        routes: listed(history),
        urls: listed(top),
    }
}

/// Returns a model after 90 answers, of which some are missing.
fn model() -> Model {
    let begin_us = NOW_US - 90_000_000;
    let mut model = Model::new("127.0.0.1:9901".to_owned(), begin_us, answer(0));
    for second in (1..=90).filter(|second| !(40..50).contains(second)) {
        // Traffic that goes up and down.
        let mut answer = answer(second);
        let counters = &mut answer.status["counters"];
        let wave = if second % 10 < 5 { 300 } else { 0 };
        counters["requests"] = json!(1400 * second + wave);
        model.answered(begin_us + second * 1_000_000, answer);
    }
    model
}

fn frame(model: &Model, width: u16, height: u16, now_us: u64, in_colour: bool) -> TestBackend {
    let mut terminal =
        Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
    let theme = Theme { in_colour };
    terminal
        .draw(|frame| draw(frame, model, now_us, theme))
        .expect("a terminal in memory can be drawn on");
    terminal.backend().clone()
}

fn shown(model: &Model, width: u16, height: u16) -> String {
    frame(model, width, height, NOW_US, false).to_string()
}

#[test]
fn a_wide_screen_shows_everything() {
    insta::assert_snapshot!("wide", shown(&model(), 160, 40));
}

#[test]
fn a_small_screen_shows_the_table_with_the_focus() {
    let mut model = model();
    insta::assert_snapshot!("small", shown(&model, 80, 24));
    model.act(Action::NextPane);
    insta::assert_snapshot!("small_workers", shown(&model, 80, 24));
}

#[test]
fn rows_are_sorted_and_scrolled() {
    let mut model = model();
    for _ in 0..4 {
        model.act(Action::NextColumn);
    }
    model.act(Action::Reverse);
    model.act(Action::Down);
    insta::assert_snapshot!("sorted", shown(&model, 120, 30));
}

#[test]
fn help_and_a_lost_server_are_shown() {
    let mut model = model();
    model.act(Action::Help);
    model.failed(
        NOW_US,
        "no Sluice answers at 127.0.0.1:9901: refused".to_owned(),
    );
    let lost = frame(&model, 100, 30, NOW_US + 2_000_000, false);
    insta::assert_snapshot!("lost", lost.to_string());
    model.act(Action::Back);
    assert!(!shown(&model, 100, 30).contains("previous table"));
}

#[test]
fn a_server_without_anything_is_shown() {
    let status = json!({ "pid": 1, "counters": {} });
    let answer = Answer {
        read_us: None,
        status,
        urls: Listed::Unknown,
        routes: Listed::Unknown,
    };
    let mut model = Model::new("127.0.0.1:1".to_owned(), 0, answer);
    for action in [
        Action::NextPane,
        Action::NextColumn,
        Action::Last,
        Action::Pane(2),
    ] {
        model.act(action);
        assert!(shown(&model, 80, 24).contains("3:servers 0"));
    }
}

#[test]
fn colours_are_used_only_if_wanted() {
    use ratatui::style::Color;
    let has_colour = |in_colour| {
        let frame = frame(&model(), 160, 40, NOW_US, in_colour);
        let cells = frame.buffer().content();
        cells
            .iter()
            .any(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset))
    };
    assert!(has_colour(true));
    assert!(!has_colour(false));
}

#[test]
fn no_size_fails_and_no_text_controls_the_terminal() {
    let mut model = model();
    for (width, height) in [
        (1, 1),
        (3, 2),
        (10, 5),
        (23, 9),
        (40, 12),
        (79, 18),
        (300, 100),
    ] {
        for _ in 0..2 {
            let shown = shown(&model, width, height);
            let is_clean = |c: char| c == '\n' || !(c.is_control() || c == '\u{202e}');
            assert!(shown.chars().all(is_clean), "{width}x{height}: {shown}");
            model.act(Action::Help);
        }
    }
}

#[test]
fn a_snapshot_is_printed_as_text() {
    insta::assert_snapshot!("text", text(&model()));
}
