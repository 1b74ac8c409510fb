//! Certificates that handshakes ask for: the permission, and the names that are forgotten.

use http::Uri;

use super::http_client::DirectoryClient;
use super::options::OnDemand;
use super::state::State;

/// Most certificates that handshakes may ask for.
pub const CERTIFICATES_MAX: usize = 10_000;
/// Time in seconds after which the permission to renew a certificate is asked for again, after a refusal and after no
/// answer.
const ASK_AGAIN_AFTER_S: i64 = 24 * 3600;
const NO_ANSWER_AGAIN_AFTER_S: i64 = 5 * 60;
/// Time in seconds after the last attempt after which a name without a valid certificate is forgotten.
const FORGET_AFTER_S: i64 = 7 * 24 * 3600;

/// The reason why a certificate may not be obtained.
pub struct Denied {
    /// Description.
    pub cause: String,
    /// Time in seconds after which the permission to renew a certificate is asked for again.
    pub again_after_s: i64,
}

impl Denied {
    /// The list does not name it.
    pub fn by_list(name: &str) -> Denied {
        Denied {
            cause: format!("`allow` does not name {name}"),
            again_after_s: ASK_AGAIN_AFTER_S,
        }
    }

    fn without_answer(cause: String) -> Denied {
        Denied {
            cause,
            again_after_s: NO_ANSWER_AGAIN_AFTER_S,
        }
    }
}

/// Asks the configured URL whether a certificate may be obtained for a name: with the query `domain=NAME`, to which 200
/// is the permission.
///
/// # Errors
///
/// The name may have none, or there was no answer.
pub async fn permit(
    options: &OnDemand,
    client: &DirectoryClient,
    name: &str,
) -> Result<(), Denied> {
    let Some(url) = &options.ask else {
        return Ok(());
    };
    let separator = if url.contains('?') { '&' } else { '?' };
    let uri = format!("{url}{separator}domain={name}").parse::<Uri>();
    let uri = uri.map_err(|why| Denied::without_answer(format!("{url} can't be asked: {why}")))?;
    let status = client.status(uri).await.map_err(Denied::without_answer)?;
    let cause = format!("{url} has answered {} for {name}", status.as_u16());
    match status.as_u16() {
        200 => Ok(()),
        500.. => Err(Denied::without_answer(cause)),
        _ => Err(Denied {
            cause,
            again_after_s: ASK_AGAIN_AFTER_S,
        }),
    }
}

/// Whether a name for which a handshake asked is forgotten.
pub fn is_forgotten(state: &State, now_unix_s: i64) -> bool {
    let is_valid = state
        .not_after_unix_s
        .is_some_and(|until| now_unix_s <= until);
    let last_unix_s = state.last_attempt_unix_s.unwrap_or(0);
    state.is_on_demand
        && !is_valid
        && !state.is_busy
        && !state.is_demanded
        && now_unix_s.saturating_sub(last_unix_s) > FORGET_AFTER_S
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_valid_certificate_are_forgotten_after_a_week() {
        let now_unix_s = 100 * FORGET_AFTER_S;
        let used = State {
            is_on_demand: true,
            last_attempt_unix_s: Some(now_unix_s - FORGET_AFTER_S - 1),
            ..State::default()
        };
        let is_forgotten = |state: State| is_forgotten(&state, now_unix_s);
        assert!(is_forgotten(used.clone()));
        let changes: [fn(&mut State); 4] = [
            |state| state.is_on_demand = false,
            |state| state.is_demanded = true,
            |state| state.not_after_unix_s = Some(i64::MAX),
            |state| state.last_attempt_unix_s = state.last_attempt_unix_s.map(|at| at + 1),
        ];
        for change in changes {
            let mut state = used.clone();
            change(&mut state);
            assert!(!is_forgotten(state));
        }
    }
}
