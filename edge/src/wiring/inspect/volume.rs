//! Collects the state of a volume for the admin API.

use crate::admin::{VolumeState, VolumeUse};
use crate::config::Plan;
use crate::volume::{State, Volume};
use crate::wiring::numbers::with_load;

/// Returns the state of one volume.
pub(super) fn volume_state(name: &str, volume: &Volume, plan: &Plan) -> VolumeState {
    let options = plan.volumes.get(name);
    let path = options.map(|options| options.path.display().to_string());
    let uses = |names: &[String]| names.iter().any(|its| its == name);
    let caches = plan
        .caches
        .iter()
        .filter(|(_, cache)| uses(&cache.disk_tier.volumes));
    let status = volume.status();
    let (state, why, loaded) = described(&status.state);
    VolumeState {
        name: name.to_owned(),
        path: path.unwrap_or_default(),
        state,
        why,
        loaded,
        numbers: match options {
            Some(options) => with_load(status.numbers, &options.path),
            None => status.numbers,
        },
        caches: caches.map(|(name, _)| name.clone()).collect(),
    }
}

/// Returns how the volume is used, the reason why the volume is out of use, and the fraction of its index
/// that has been read.
fn described(state: &State) -> (VolumeUse, Option<String>, f64) {
    match state {
        State::Up => (VolumeUse::Up, None, 1.0),
        State::Loading(thousandths) => (VolumeUse::Loading, None, f64::from(*thousandths) / 1000.0),
        State::Out(why) => (VolumeUse::Out, Some(why.clone()), 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_described() {
        assert_eq!(described(&State::Up), (VolumeUse::Up, None, 1.0));
        assert_eq!(
            described(&State::Loading(430)),
            (VolumeUse::Loading, None, 0.43)
        );
        let why = "Input/output error (os error 5)".to_owned();
        let out = described(&State::Out(why.clone()));
        assert_eq!(out, (VolumeUse::Out, Some(why), 0.0));
    }
}
