//! Tests of the times at which requests are sent, by one thread and by several.

use std::time::{Duration, Instant};

use super::*;

#[test]
fn requests_are_not_delayed_to_whole_milliseconds() {
    let floor = floor(10);
    // A request is due each third of a millisecond, so waits of whole milliseconds delay two of three requests.
    one_of_many(|| {
        let result = run(LoadPlan {
            rate: Some(3000.0),
            ..plan(floor.addr(), "/", 4, 60)
        })
        .expect("a result");
        assert_eq!(result.requests, 60);
        match result.latency.p90_us < 300.0 {
            true => Ok(()),
            false => Err(format!("{:?}", result.latency)),
        }
    });
}

#[test]
fn threads_take_turns_in_place_of_sending_at_the_same_times() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let live = Live::new().expect("bounds");
    one_of_many(|| {
        origin.reset_record();
        let result = run_on_threads(
            &LoadPlan {
                rate: Some(200.0),
                ..plan(origin.addr(), "/offset/1", 4, 40)
            },
            4,
            false,
            &live,
        )
        .expect("a result");
        assert_eq!((result.requests, result.connects), (40, 4));
        let mut times: Vec<Instant> = origin.requests().iter().map(|seen| seen.at).collect();
        times.sort_unstable();
        let mut gaps: Vec<Duration> = times.windows(2).map(|two| two[1] - two[0]).collect();
        gaps.sort_unstable();
        // Requests of four threads at the same times have three small gaps for each large one.
        match gaps[gaps.len() / 2] > Duration::from_millis(3) {
            true => Ok(()),
            false => Err(format!("{gaps:?}")),
        }
    });
}

#[test]
fn the_windows_of_threads_have_all_requests_of_a_rising_rate() {
    let floor = floor(10);
    let live = Live::new().expect("bounds");
    let rising = LoadPlan {
        connections: 8,
        rate: Some(100.0),
        rising_to: Some(900.0),
        seconds: Some(0.8),
        window_seconds: Some(0.2),
        ..LoadPlan::new(floor.addr(), "/")
    };
    let result = run_on_threads(&rising, 3, false, &live).expect("a result");
    assert_eq!((result.requests, result.errors.total()), (400, 0));
    let offered: Vec<u64> = result.windows.iter().map(|one| one.offered).collect();
    assert_eq!(offered, [40, 80, 120, 160]);
    assert!(result.windows.iter().all(|one| one.answered == one.offered));
}

#[test]
fn a_thread_that_fails_ends_the_others() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    origin.serve("/held", Resource::bytes("x").fault(Fault::NeverAnswer));
    let line = |target: &str| Replayed {
        target: target.to_owned(),
        at: 0.0,
        range: None,
    };
    // One thread has the lines with even numbers, and the other thread those with odd numbers.
    let lines = (0..20).map(|number| line(["/missing", "/held"][number % 2]));
    let live = Live::new().expect("bounds");
    let began = Instant::now();
    let failed = run_on_threads(
        &LoadPlan {
            choice: Choice::Replay(lines.collect()),
            consecutive_errors_max: Some(5),
            timeout_seconds: 600.0,
            requests: None,
            ..plan(origin.addr(), "/", 2, 0)
        },
        2,
        false,
        &live,
    );
    let error = failed.expect_err("one thread has only errors").to_string();
    assert!(error.contains("5 consecutive errors"), "{error}");
    assert!(began.elapsed() < PATIENCE);
}
