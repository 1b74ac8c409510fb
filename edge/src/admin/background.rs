//! The thread on which answers are made that take long, so that they delay no other request.

use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Longest time that a request waits until others have been answered, and until it is answered itself.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Seconds after which a client may try again.
const AGAIN_S: &str = "5";

/// Makes one long answer at a time. Clones share the limit.
#[derive(Clone)]
pub(super) struct Background {
    turn: Arc<Semaphore>,
    wait: Duration,
}

impl Default for Background {
    fn default() -> Background {
        Background::waiting(WAIT_MAX)
    }
}

impl Background {
    fn waiting(wait: Duration) -> Background {
        Background {
            turn: Arc::new(Semaphore::new(1)),
            wait,
        }
    }

    /// Makes an answer on another thread. An error is the response to the client: there are too many such requests, or the
    /// answer takes too long (503).
    pub(super) async fn run<T: Send + 'static>(
        &self,
        answer: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Response> {
        let turn = timeout(self.wait, self.turn.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            return Err(busy());
        };
        // The turn ends with the work, since a late answer still uses the thread.
        let made = tokio::task::spawn_blocking(move || {
            let answer = answer();
            drop(turn);
            answer
        });
        match timeout(self.wait, made).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => {
                let text =
                    "Sluice could not make the answer because of a bug; please report this\n";
                Err((StatusCode::INTERNAL_SERVER_ERROR, text).into_response())
            }
            Err(_) => Err(busy()),
        }
    }
}

fn busy() -> Response {
    let text = "other requests for explanations or histories take long\n(try again later)\n";
    let headers = [(RETRY_AFTER, AGAIN_S)];
    (StatusCode::SERVICE_UNAVAILABLE, headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_answer_holds_up_others_for_a_bounded_time() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let background = Background::waiting(Duration::from_millis(1));
        let refused = |answer: Result<(), Response>| {
            answer.expect_err("too long").status() == StatusCode::SERVICE_UNAVAILABLE
        };
        runtime.expect("a runtime").block_on(async move {
            let long = move || ended.recv().expect("the end");
            assert!(refused(background.run(long).await));
            assert!(refused(background.run(|| ()).await));
            end.send(()).expect("the thread waits");
            let patient = Background {
                wait: WAIT_MAX,
                ..background
            };
            assert_eq!(patient.run(|| 1).await.expect("an answer"), 1);
        });
    }
}
