//! Certificates that handshakes ask for: the permission, and the names that are forgotten.

use http::Uri;

use super::failure::Failure;
use super::http_client::DirectoryClient;
use super::options::OnDemand;
use super::state::State;

/// Most certificates that handshakes may ask for.
pub const CERTIFICATES_MAX: usize = 10_000;
/// Time in seconds after which the permission to renew a certificate is asked for again.
pub const ASK_AGAIN_AFTER_S: i64 = 24 * 3600;
/// Time in seconds after the last attempt after which a name without a valid certificate is forgotten.
const FORGET_AFTER_S: i64 = 7 * 24 * 3600;

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
) -> Result<(), Failure> {
    let Some(url) = &options.ask else {
        return Ok(());
    };
    let separator = if url.contains('?') { '&' } else { '?' };
    let uri: Uri = format!("{url}{separator}domain={name}")
        .parse()
        .map_err(|why| Failure::new(format!("{url} can't be asked: {why}")))?;
    let status = client.status(uri).await.map_err(Failure::new)?;
    match status.as_u16() {
        200 => Ok(()),
        status => Err(Failure::new(format!(
            "{url} has answered {status} for {name}"
        ))),
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
