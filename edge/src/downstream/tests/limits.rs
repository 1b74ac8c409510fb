//! Tests of the limits of size, time and rate.

use super::*;

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\n";

#[test]
fn an_incomplete_head_gets_408_and_a_silent_connection_just_closes() {
    on_worker(async {
        let bench = Bench::new(|_| ok("x;"));
        let mut slow = bench.client();
        slow.send("GET / HT").await;
        let mut silent = bench.client();
        let mut idle = bench.client();
        idle.send(GET).await;
        idle.until("x;").await;
        tokio::task::yield_now().await;
        bench.advance_s(11);
        let answer = slow.rest().await;
        assert!(
            answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"),
            "{answer}"
        );
        assert_eq!(silent.rest().await, "");
        drop(slow);
        bench.until(|bench| bench.worker.connections() == 1).await;
        bench.advance_s(6);
        assert_eq!(idle.rest().await, "");
    });
}

#[test]
fn a_slow_head_is_timed_from_its_first_byte() {
    on_worker(async {
        let bench = Bench::new(|_| ok("x;"));
        let mut client = bench.client();
        for byte in "GET / HTTP".bytes() {
            client.send([byte]).await;
            tokio::task::yield_now().await;
            bench.advance_s(2);
            // Timeouts are noticed by the sweep, which reads the clock once per tick, so the test
            // waits for one tick.
            tokio::time::sleep(super::super::deadlines::TICK).await;
        }
        assert!(client.rest().await.starts_with("HTTP/1.1 408 "));
    });
}

#[test]
fn an_upload_that_stalls_or_is_too_slow_gets_408() {
    on_worker(async {
        let bench = Bench::new(echo);
        let mut stalled = bench.client();
        stalled
            .send(format!("{POST}Content-Length: 5\r\n\r\nhel"))
            .await;
        tokio::task::yield_now().await;
        bench.advance_s(12);
        let answer = stalled.rest().await;
        assert!(answer.contains("408 request-body-timeout\n"), "{answer}");
        let mut trickle = bench.client();
        trickle
            .send(format!("{POST}Content-Length: 500\r\n\r\n"))
            .await;
        let mut sent = 0;
        while bench.worker.connections() > 0 && sent < 20 {
            trickle.send("x").await;
            sent += 1;
            tokio::task::yield_now().await;
            bench.advance_s(3);
            tokio::time::sleep(super::super::deadlines::TICK).await;
            if trickle.got_something() {
                break;
            }
        }
        assert!(
            (3..=6).contains(&sent),
            "cut after the grace of 10 s: {sent}"
        );
        assert!(trickle.rest().await.contains("408 request-body-timeout\n"));
    });
}

#[test]
fn bodies_over_the_limit_get_413_declared_or_not() {
    on_worker(async {
        let options = Options {
            body: 10,
            ..Options::default()
        };
        let bench = Bench::with(options, echo);
        let mut declared = bench.client();
        declared
            .send(format!("{POST}Content-Length: 11\r\n\r\n"))
            .await;
        assert!(declared.rest().await.starts_with("HTTP/1.1 413 "));
        // The declared length is checked before Expect, which is invalid here.
        let mut expecting = bench.client();
        expecting
            .send(format!("{POST}Content-Length: 11\r\nExpect: more\r\n\r\n"))
            .await;
        assert!(expecting.rest().await.starts_with("HTTP/1.1 413 "));
        let mut chunked = bench.client();
        chunked
            .send(format!(
                "{POST}Transfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n6\r\nabcdef\r\n"
            ))
            .await;
        assert!(chunked.rest().await.starts_with("HTTP/1.1 413 "));
        let mut exact = bench.client();
        exact
            .send(format!("{POST}Content-Length: 10\r\n\r\n0123456789"))
            .await;
        exact.until("POST / 0123456789").await;
    });
}

#[test]
fn a_client_that_stops_reading_is_cut() {
    on_worker(async {
        let bench = Bench::new(|_| ok(vec![b'x'; 100_000]));
        let mut client = bench.client_with_room(1000);
        client.send(GET).await;
        client.until("\r\n\r\n").await;
        tokio::task::yield_now().await;
        bench.advance_s(11);
        bench.until(|bench| bench.worker.connections() == 0).await;
        assert!(client.read().await.is_err(), "reset, and nothing kept");
        assert_eq!(bench.counters.client_timeouts.get(), 1);
        assert_eq!(bench.counters.responses_cut.get(), 1);
    });
}

#[test]
fn a_client_that_only_stops_sending_gets_its_response_if_half_close_is_set() {
    on_worker(async {
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let wait = std::cell::RefCell::new(Some(wait));
        let bench = Bench::new(move |request| match wait.borrow_mut().take() {
            None => echo(request),
            Some(mut wait) => {
                let mut response = Response::new(200);
                response.body = Body::stream(Frames(move |cx: &mut Context<'_>| {
                    std::pin::Pin::new(&mut wait).poll(cx).map(|_| None)
                }));
                Answer::Ready(Ok(response))
            }
        });
        let mut client = bench.half_closing_client();
        client.send(GET.repeat(3)).await;
        client.socket.shutdown_write();
        client.until("\r\n\r\n").await;
        go.send(()).expect("the body is still wanted");
        client.until("0\r\n\r\n").await;
        let rest = client.rest().await;
        assert_eq!(rest.matches("HTTP/1.1 200").count(), 2, "{rest}");
    });
}

#[test]
fn a_request_is_abandoned_when_its_client_resets_or_stops_sending() {
    for resets in [false, true] {
        on_worker(async move {
            let (dropped, gone) = tokio::sync::oneshot::channel::<()>();
            let dropped = std::cell::RefCell::new(Some(dropped));
            let bench = Bench::new(move |_| {
                let dropped = dropped.borrow_mut().take();
                Answer::later(async move {
                    let _dropped = dropped;
                    std::future::pending().await
                })
            });
            let mut client = bench.client();
            client.send(GET).await;
            tokio::task::yield_now().await;
            if resets {
                client.socket.reset_on_drop();
                drop(client);
            } else {
                client.socket.shutdown_write();
            }
            assert!(gone.await.is_err(), "the future was dropped");
            bench.until(|bench| bench.worker.connections() == 0).await;
        });
    }
}

impl Client {
    /// Whether any byte of a response has arrived.
    fn got_something(&mut self) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut buf = [0; 1024];
        if let Poll::Ready(Ok(n)) = self.socket.poll_read(&mut cx, &mut buf) {
            self.got.extend_from_slice(&buf[..n]);
        }
        !self.got.is_empty()
    }
}
