//! `GET` and `POST /certificates`: the certificates, and the operator's orders about those from authorities.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use hyper::header::CACHE_CONTROL;
use tokio::time::timeout;

use super::certificate_state::{CertificateOrder, Ordered};
use super::change::ChangeNote;
use super::inspect::Shared;
use super::page_query::{PageQuery, Parameters};
use super::purge::Refusal;

/// Longest time that a request waits for the result of an order, which an authority decides.
const RESULT_WITHIN: Duration = Duration::from_secs(90);

/// Waits for the result of an order, and returns the text for the operator.
async fn outcome(ordered: Ordered) -> Result<String, Refusal> {
    let Some(result) = ordered.result else {
        return Ok(ordered.text);
    };
    let refusal = |status, why: &str| Refusal {
        status,
        why: format!("{why}\n"),
    };
    match timeout(RESULT_WITHIN, result).await {
        Ok(Ok(Ok(()))) => Ok(ordered.text),
        Ok(Ok(Err(why))) => Err(refusal(502, &why)),
        Ok(Err(_)) => Err(refusal(500, "the order was not carried out")),
        Err(_) => Err(refusal(
            504,
            "the authority has not decided yet; the log will have the result",
        )),
    }
}

impl Parameters for CertificateOrder {
    const USAGE: &str =
        "/certificates?name=NAME&order=renew or /certificates?name=NAME&order=revoke&reason=REASON";
}

/// Answers `GET /certificates`.
pub(super) async fn list(State(edge): State<Shared>) -> Response {
    ([(CACHE_CONTROL, "no-store")], Json(edge.certificates())).into_response()
}

/// Answers `POST /certificates`.
pub(super) async fn order(
    State(edge): State<Shared>,
    Extension(note): Extension<ChangeNote>,
    PageQuery(order): PageQuery<CertificateOrder>,
) -> Response {
    note.describe(order.describe());
    let outcome = match edge.order_certificate(&order) {
        Ok(ordered) => outcome(ordered).await,
        Err(refusal) => Err(refusal),
    };
    match outcome {
        Ok(text) => text.into_response(),
        Err(refusal) => refusal.into_response(),
    }
}
