//! The state of the upstreams in one snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;

use crate::config::Plan;
use crate::upstream::UpstreamState;

/// The state of each upstream, by name.
pub(super) type States = BTreeMap<String, Arc<UpstreamState>>;

/// Returns the state of each upstream of a plan, `before` being the earlier plan and its states.
/// Upstreams with the same options as before keep their state, and only the files of their TLS are
/// read again; if these can't be used, their earlier contents stay in use. Others keep the conditions
/// of their servers.
///
/// # Errors
///
/// A file that a new upstream needs can't be used.
pub(super) fn states(plan: &Plan, before: Option<(&Plan, &States)>) -> anyhow::Result<States> {
    let states = plan.upstreams.iter().map(|(name, options)| {
        let same = before.filter(|(plan, _)| plan.upstreams.get(name) == Some(options));
        let kept = same.and_then(|(_, states)| states.get(name));
        let old = before.and_then(|(_, states)| states.get(name));
        let state = match kept {
            Some(kept) => {
                if let Err(error) = kept.renew_tls(options) {
                    tracing::error!(upstream = %name, %error, "files of TLS can't be used; their earlier contents stay in use");
                }
                kept.clone()
            }
            None => UpstreamState::after(name, options, old.map(Arc::as_ref))
                .with_context(|| format!("TLS of upstream {name}"))?,
        };
        Ok((name.clone(), state))
    });
    states.collect()
}
