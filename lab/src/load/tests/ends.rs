//! Tests of the end of a load: the time to which rates refer, and requests that are late, unfinished or never sent.

use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::origin::Latch;

fn held(latch: &Latch) -> Origin {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    origin.serve("/held", Resource::offset(100).hold_head(latch));
    origin
}

fn seconds(target: SocketAddr, path: &str, connections: usize, seconds: f64) -> LoadPlan {
    LoadPlan {
        requests: None,
        seconds: Some(seconds),
        ..plan(target, path, connections, 0)
    }
}

#[test]
fn responses_after_the_planned_end_are_late_and_not_part_of_the_rate() {
    for streams in [None, Some(1)] {
        let latch = Latch::closed();
        let origin = held(&latch);
        let result = thread::scope(|scope| {
            let load = scope.spawn(|| {
                run(LoadPlan {
                    streams,
                    ..seconds(origin.addr(), "/held", 3, 2.0)
                })
            });
            assert!(latch.wait_held(3, PATIENCE));
            // Released only after the planned end.
            thread::sleep(Duration::from_millis(2200));
            latch.release();
            load.join().expect("no panic").expect("a result")
        });
        assert_eq!((result.requests, result.bytes), (3, 300), "{result:?}");
        assert_eq!((result.late, result.late_bytes), (3, 300));
        assert_eq!((result.seconds, result.rate()), (2.0, 0.0));
        assert_eq!(result.byte_rate(), 0.0);
        assert_eq!((result.unfinished, result.unsent), (0, 0));
        assert!(result.latency.min_us >= 200_000.0, "{result:?}");
    }
}

#[test]
fn rates_refer_to_the_planned_duration() {
    let floor = floor(100);
    // The requests are due at 0 and 100 ms, and have responses long before the end.
    one_of_many(|| {
        let result = run(LoadPlan {
            rate: Some(10.0),
            ..seconds(floor.addr(), "/", 1, 0.2)
        })
        .expect("a result");
        assert_eq!((result.requests, result.seconds), (2, 0.2));
        let rates = (result.rate(), result.byte_rate());
        match result.late {
            0 => assert_eq!(rates, (10.0, 1000.0)),
            late => return Err(format!("{late} late")),
        }
        Ok(())
    });
    // A load that has sent all its requests ends with the last response.
    let result = run(LoadPlan {
        requests: Some(5),
        ..seconds(floor.addr(), "/", 1, 600.0)
    })
    .expect("a result");
    assert_eq!(result.requests, 5);
    assert!(result.seconds > 0.0 && result.seconds < 60.0, "{result:?}");
}

#[test]
fn an_interrupted_load_counts_unfinished_and_unsent_requests() {
    for streams in [None, Some(1)] {
        let latch = Latch::closed();
        let origin = held(&latch);
        let live = Live::new().expect("bounds");
        let result = thread::scope(|scope| {
            let plan = LoadPlan {
                streams,
                rate: Some(1000.0),
                timeout_seconds: 600.0,
                ..seconds(origin.addr(), "/held", 2, 600.0)
            };
            let live = &live;
            let load = scope.spawn(move || run_on_threads(&plan, 2, false, live));
            assert!(latch.wait_held(2, PATIENCE));
            thread::sleep(Duration::from_millis(20));
            live.stop();
            load.join().expect("no panic").expect("a result")
        });
        assert_eq!((result.requests, result.errors.total()), (0, 0));
        assert_eq!(result.unfinished, 2);
        // Both threads end within the wait of one, so the number of due requests is only known roughly.
        let due = (result.seconds * 1000.0).ceil() as u64;
        assert!(result.unsent <= due - 2, "{result:?}");
        // The thread that ends last counts half of them by itself.
        assert!(2 * (result.unsent + 100) >= due, "{result:?}");
        assert!(result.unsent >= 10 && result.seconds < 60.0, "{result:?}");
        latch.release();
    }
}

#[test]
fn a_closed_loop_has_no_unsent_requests() {
    let latch = Latch::closed();
    let origin = held(&latch);
    let live = Live::new().expect("bounds");
    let result = thread::scope(|scope| {
        let load = scope.spawn(|| {
            let plan = plan(origin.addr(), "/held", 3, 100);
            run_on_threads(&plan, 1, false, &live)
        });
        assert!(latch.wait_held(3, PATIENCE));
        live.stop();
        load.join().expect("no panic").expect("a result")
    });
    assert_eq!((result.unfinished, result.unsent), (3, 0));
    latch.release();
}

#[test]
fn due_requests_of_a_saturated_server_are_unsent() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let slow = Resource::offset(100).delay_head(Duration::from_millis(20));
    origin.serve_rest(slow);
    let result = run(LoadPlan {
        rate: Some(500.0),
        window_seconds: Some(0.1),
        saturated_us: Some(1000.0),
        ..seconds(origin.addr(), "/", 1, 600.0)
    })
    .expect("a result");
    // The first window is the saturated one, unless the load was not running when that ended.
    let saturated = result.saturated_seconds.expect("saturated");
    assert!(saturated > 0.0 || result.saturated_rate.is_none());
    let end = result.seconds;
    assert!(end >= 0.2, "{result:?}");
    let due = (end * 500.0 - 1e-6).ceil() as u64;
    assert_eq!(result.unsent, due - result.requests, "{result:?}");
    assert_eq!((result.late, result.unfinished), (1, 0), "{result:?}");
}

#[test]
fn requests_in_progress_end_when_the_server_is_saturated() {
    let latch = Latch::closed();
    let origin = held(&latch);
    let live = Live::new().expect("bounds");
    let result = thread::scope(|scope| {
        let load = scope.spawn(|| {
            let plan = LoadPlan {
                rate: Some(500.0),
                window_seconds: Some(1.0),
                saturated_us: Some(1000.0),
                timeout_seconds: 600.0,
                ..seconds(origin.addr(), "/held", 4, 600.0)
            };
            run_on_threads(&plan, 2, false, &live)
        });
        assert!(latch.wait_held(4, PATIENCE));
        let until = Instant::now() + PATIENCE;
        while !live.is_saturated() {
            assert!(Instant::now() < until, "not saturated");
            thread::yield_now();
        }
        latch.release();
        load.join().expect("no panic").expect("a result")
    });
    // One thread may begin more requests before it notices what the other has found.
    assert!(result.requests >= 4, "{result:?}");
    assert_eq!((result.unfinished, result.errors.total()), (0, 0));
    // The results that nobody has read yet cover the whole load.
    let recent = live.take();
    assert_eq!(recent.requests, result.requests);
    assert!(recent.seconds >= 0.2, "{recent:?}");
}

#[test]
fn requests_that_time_out_together_are_not_sent_again() {
    // The kernel accepts connections, and nobody answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let result = run(LoadPlan {
        timeout_seconds: 0.1,
        ..http2_plan(silent.local_addr().expect("bound"), "/", 1, 4)
    })
    .expect("a result");
    assert_eq!((result.errors.timeout, result.errors.total()), (4, 4));
    assert_eq!(result.sent_again, 0);
}

#[test]
fn repeated_requests_are_counted() {
    let origin = closing_after_three();
    origin.serve(
        "/reused",
        Resource::bytes("x").fault_times(2, Fault::EndBeforeHeadOnReuse(Ending::Fin)),
    );
    let result = run(plan(origin.addr(), "/reused", 1, 10)).expect("a result");
    assert_eq!((result.requests, result.errors.total()), (10, 0));
    assert!(result.sent_again >= 2, "{result:?}");
    let refusing = Origin::start(OriginOptions::default()).expect("a free port");
    refusing.serve(
        "/x",
        Resource::bytes("x").fault_times(3, Fault::RefuseStream),
    );
    let result = run(http2_plan(refusing.addr(), "/x", 1, 10)).expect("a result");
    assert_eq!((result.requests, result.errors.total()), (10, 0));
    assert_eq!(result.sent_again, 3);
    let result = run(http2_plan(refusing.addr(), "/x", 1, 10)).expect("a result");
    assert_eq!(result.sent_again, 0);
}
