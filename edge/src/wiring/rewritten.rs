//! URLs as caches know them: after the `rewrite` of their routes.

use super::snapshot::Snapshot;
use crate::http::purge::Purge;
use crate::http::url::Url;

impl Snapshot {
    /// Returns the URL under which the responses to requests for this URL are stored, if the route
    /// of the URL rewrites it.
    pub(super) fn rewritten(&self, url: &Url) -> Option<Url> {
        let mut target = url.path.clone();
        if let Some(query) = &url.query {
            target = format!("{target}?{query}");
        }
        let index = *self
            .router
            .find(&url.authority.to_ascii_lowercase(), &target)?;
        let mut routes = self.plan.sites.iter().flat_map(|site| &site.routes);
        let rewrite = routes.nth(index)?.proxied()?.rewrite.as_ref()?;
        let target = rewrite.apply(&target).ok()??;
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
            None => (target, None),
        };
        Some(Url {
            scheme: url.scheme,
            authority: url.authority.clone(),
            path,
            query,
        })
    }

    /// Returns these purges, and for each URL that a route rewrites also the purge of the rewritten
    /// URL.
    pub(super) fn with_rewritten(&self, purges: &[Purge]) -> Vec<Purge> {
        let mut all = Vec::with_capacity(purges.len());
        for purge in purges {
            all.push(purge.clone());
            if let Purge::Url(text) = purge
                && let Ok(url) = Url::parse(text)
                && let Some(url) = self.rewritten(&url)
            {
                all.push(Purge::Url(url.to_string()));
            }
        }
        all
    }
}
