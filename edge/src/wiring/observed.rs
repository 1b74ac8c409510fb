//! Starts the collection of samples and events, as far as anything shows them.

use crate::config::{Part, Plan, Unusable};
use crate::sys::Clock;
use crate::telemetry::{Notices, Observed, UrlMask, installed_notices};

/// Starts the collection. Nothing is sampled if there is neither an admin address nor a file of events.
pub(super) fn start(plan: &Plan, clock: &Clock) -> anyhow::Result<Observed> {
    let notices = installed_notices().cloned();
    let notices = notices.unwrap_or_else(|| Notices::new(clock.clone()));
    notices.set_mask(mask(plan));
    let observed = Observed::new(clock.clone(), notices);
    let file = plan.admin_events.as_deref();
    if plan.admin.is_some() || file.is_some() {
        observed.start(file).map_err(|error| {
            let file = file.map_or_else(String::new, |path| format!(" to {}", path.display()));
            Unusable::new(Part::Events, &format!("can't write events{file}"), &error)
        })?;
    }
    Ok(observed)
}

/// Returns the rules by which secrets in URLs are masked: the usual names of parameters, and those of signed URLs.
pub(super) fn mask(plan: &Plan) -> UrlMask {
    let routes = plan.sites.iter().flat_map(|site| &site.routes);
    let gates = routes.filter_map(|route| route.gate.as_ref()?.signed_urls.as_ref());
    UrlMask::new(gates.map(|signed| &*signed.names.signature))
}
