//! The query of a page's URL.

use std::error::Error;
use std::fmt::Display;

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query};
use hyper::StatusCode;
use hyper::http::request::Parts;
use serde::de::DeserializeOwned;

use super::purge::Refusal;

/// The parameters of a page.
pub(super) trait Parameters: DeserializeOwned {
    /// How to write a request for the page.
    const USAGE: &str;

    /// Refuses a request with parameters that can't be used.
    fn refuse(why: impl Display) -> Refusal {
        Refusal {
            status: StatusCode::BAD_REQUEST.as_u16(),
            why: format!("{why}\n(write {})", Self::USAGE),
        }
    }
}

/// The parameters of a request, from the query of its URL.
pub(super) struct PageQuery<T>(pub T);

impl<T: Parameters, S: Sync> FromRequestParts<S> for PageQuery<T> {
    type Rejection = Refusal;

    /// # Errors
    ///
    /// A parameter is unknown, missing, twice or malformed.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<PageQuery<T>, Refusal> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(parameters)) => Ok(PageQuery(parameters)),
            Err(rejection) => Err(T::refuse(reason(&rejection))),
        }
    }
}

/// Returns the reason in the words of the parser, without axum's words about it.
fn reason(rejection: &QueryRejection) -> String {
    let mut error: &dyn Error = rejection;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
