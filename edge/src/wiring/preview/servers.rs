//! Describes the servers to which a request would be forwarded.

use crate::admin::{ServerState, UpstreamState};
use crate::telemetry::EffectiveState;

/// Most servers that are described. Further ones are counted.
const SERVERS_SHOWN: usize = 8;

/// Returns one line for each server: address, state and why.
pub(super) fn lines(upstream: &UpstreamState) -> Vec<String> {
    let servers = &upstream.servers;
    let mut lines: Vec<String> = servers.iter().take(SERVERS_SHOWN).map(line).collect();
    if servers.len() > SERVERS_SHOWN {
        lines.push(format!("and {} more", servers.len() - SERVERS_SHOWN));
    }
    lines
}

fn line(server: &ServerState) -> String {
    let why = server.why.as_deref();
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    format!("{} {}{why}", server.address, server.state.name())
}

/// Returns advice if no server works. `keeps_stale`: a stored response may be served stale after an error, or there is no
/// cache.
pub(super) fn advice(upstream: &UpstreamState, keeps_stale: bool) -> Option<String> {
    let works =
        |server: &ServerState| matches!(server.state, EffectiveState::Up | EffectiveState::Drain);
    if upstream.servers.iter().any(works) {
        return None;
    }
    let help = match keeps_stale {
        true => "",
        false => "; with `stale_if_error` stored responses would be served meanwhile",
    };
    Some(format!(
        "no server of the upstream works at present, so requests that need one fail{help}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(states: &[EffectiveState]) -> UpstreamState {
        let servers = states.iter().map(|state| ServerState {
            address: "127.0.0.1:1".to_owned(),
            state: *state,
            why: (*state != EffectiveState::Up).then(|| "by order".to_owned()),
            ..ServerState::default()
        });
        UpstreamState {
            servers: servers.collect(),
            ..UpstreamState::default()
        }
    }

    #[test]
    fn advice_is_given_if_no_server_works() {
        let one_works = upstream(&[EffectiveState::Down, EffectiveState::Up]);
        assert_eq!(advice(&one_works, false), None);
        let none_works = upstream(&[EffectiveState::Down, EffectiveState::Ejected]);
        let without_stale = advice(&none_works, false).expect("advice");
        assert!(without_stale.contains("stale_if_error"), "{without_stale}");
        let with_stale = advice(&none_works, true).expect("advice");
        assert!(!with_stale.contains("stale_if_error"), "{with_stale}");
    }

    #[test]
    fn the_number_of_servers_shown_is_bounded() {
        let many = upstream(&[EffectiveState::Down; SERVERS_SHOWN + 2]);
        let lines = lines(&many);
        assert_eq!(lines.len(), SERVERS_SHOWN + 1);
        assert_eq!(lines[0], "127.0.0.1:1 down: by order");
        assert_eq!(lines[SERVERS_SHOWN], "and 2 more");
    }
}
