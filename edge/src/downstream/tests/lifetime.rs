//! Tests of draining, and of replacing the handlers and limits.

use std::time::Duration;

use super::*;

#[test]
fn a_drain_closes_idle_connections_and_lets_requests_finish() {
    on_worker(async {
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let wait = std::cell::RefCell::new(Some(wait));
        let bench = Bench::new(move |request| match request.head.path() {
            "/slow" => {
                let wait = wait.borrow_mut().take().expect("asked once");
                Answer::later(async move {
                    let _ = wait.await;
                    Ok(Response::text(200, "slow;"))
                })
            }
            _ => ok("x;"),
        });
        let mut idle = bench.client();
        idle.send(GET).await;
        idle.until("x;").await;
        let mut busy = bench.client();
        busy.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let mut asking = bench.client();
        tokio::task::yield_now().await;
        asking.send(GET).await;
        let mut drained = std::pin::pin!(bench.worker.drain(Duration::from_secs(30)));
        let begun = poll_fn(|cx| Poll::Ready(drained.as_mut().poll(cx)));
        assert!(begun.await.is_pending());
        assert_eq!(idle.rest().await, "");
        assert!(
            asking.rest().await.contains("connection: close\r\n"),
            "asked in time"
        );
        go.send(()).expect("still served");
        let answer = busy.rest().await;
        assert!(
            answer.contains("connection: close\r\n") && answer.ends_with("slow;"),
            "{answer}"
        );
        drop((idle, asking, busy));
        drained.await;
        assert_eq!(bench.worker.connections(), 0);
    });
}

#[test]
fn a_drain_cuts_requests_that_take_too_long() {
    on_worker(async {
        let bench = Bench::new(|_| Answer::later(std::future::pending()));
        let mut client = bench.client();
        client.send(GET).await;
        tokio::task::yield_now().await;
        let worker = bench.worker.clone();
        let drained = tokio::task::spawn_local(async move {
            worker.drain(Duration::from_secs(30)).await;
        });
        tokio::task::yield_now().await;
        bench.advance_s(31);
        drained.await.expect("drained");
        assert!(client.read().await.is_err(), "reset");
        assert_eq!(bench.counters.requests_now.get(), 0);
    });
}

#[test]
fn the_next_request_of_a_connection_sees_a_new_handler() {
    on_worker(async {
        let bench = Bench::new(|_| ok("old;"));
        let mut client = bench.client();
        client.send(GET).await;
        client.until("old;").await;
        bench
            .worker
            .serve(serving(Options::default(), |_| ok("new;")));
        client.send(GET).await;
        client.until("new;").await;
    });
}

#[test]
fn an_idle_connection_is_small() {
    let connection = size_of::<super::super::http1::Http1>();
    assert!(connection <= 256, "{connection} bytes");
}

// The timer of a worker without requests is paused. Memory that is freed meanwhile is given back, too: idle
// connections to origins free theirs some time after the last request.
#[test]
fn an_idle_worker_gives_back_memory_that_is_freed_later() {
    on_worker(async {
        let bench = Bench::new(|_| ok("x;"));
        let mut client = bench.client();
        client.send(GET).await;
        client.until("x;").await;
        bench.until(|bench| bench.worker.is_paused()).await;
        let before = GIVEN_BACK.get();
        assert!(before > 0);
        bench.memory_freed.notify_one();
        bench.until(|_| GIVEN_BACK.get() == before + 1).await;
        bench.until(|bench| bench.worker.is_paused()).await;
    });
}

// The timer of a worker without requests is paused. A worker that needs room makes it run again.
#[test]
fn an_idle_worker_makes_room_for_the_connections_of_another_one() {
    on_worker(async {
        let balance = ConnectionBalance::new(2);
        let bench = Bench::of(balance.clone(), Options::default(), |_| ok("x;"));
        let mut idle = bench.client();
        idle.send(GET).await;
        idle.until("x;").await;
        bench.until(|bench| bench.worker.is_paused()).await;
        balance.want_room(1);
        assert_eq!(idle.rest().await, "");
        assert_eq!(balance.wanted_room(), 0);
    });
}
