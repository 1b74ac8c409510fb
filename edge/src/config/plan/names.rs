//! Names of sites and routes, under which their numbers are shown and live on over reloads.

use std::collections::HashMap;
use std::sync::Arc;

use super::Plan;
use crate::route::Matcher;

impl Plan {
    /// Returns the name of each site: its first host, or `*` if the site is for any host. Names that occur again end in
    /// ` #2` and so on.
    pub fn site_names(&self) -> Vec<Arc<str>> {
        let hosts = self.sites.iter().map(|site| site.hosts.first());
        unique(hosts.map(|host| host.map_or("*", String::as_str).to_owned()))
    }

    /// Returns the name of each route, in the order of the file: the name of its site and its condition, as in `a.example
    /// /video/*`. Names that occur again end in ` #2` and so on.
    pub fn route_names(&self) -> Vec<Arc<str>> {
        let sites = self.sites.iter().zip(self.site_names());
        let names = sites.flat_map(|(site, name)| {
            let routes = site.routes.iter();
            routes.map(move |route| match route.matcher == Matcher::any() {
                true => format!("{name} *"),
                false => format!("{name} {}", route.matcher),
            })
        });
        unique(names)
    }
}

/// Returns these names, with numbers added to those that occur again.
fn unique(names: impl Iterator<Item = String>) -> Vec<Arc<str>> {
    let mut counts: HashMap<String, u32> = HashMap::new();
    let numbered = names.map(|name| {
        let mut count = counts.get(&name).copied().unwrap_or(0) + 1;
        let mut numbered = match count {
            1 => name.clone(),
            _ => format!("{name} #{count}"),
        };
        // A configured name may itself end in a number.
        while count > 1 && counts.contains_key(&numbered) {
            count += 1;
            numbered = format!("{name} #{count}");
        }
        counts.insert(name, count);
        counts.entry(numbered.clone()).or_insert(1);
        numbered.into()
    });
    numbered.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn names_are_unique() {
        let names = ["a", "b", "a", "a #2", "a", "a"].map(str::to_owned);
        let names = unique(names.into_iter());
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        assert_eq!(names, ["a", "b", "a #2", "a #2 #2", "a #3", "a #4"]);
    }

    #[test]
    fn routes_are_named_by_site_and_condition() {
        let text = "[[site]]\nhosts = [\"a.example\", \"b.example\"]\n\
            [[site.route]]\npath = \"/x/*\"\nrespond = \"x\"\n[[site.route]]\nrespond = \"x\"\n\
            [[site]]\n[[site.route]]\npath = \"/x\"\nquery = \"q\"\nrespond = \"x\"\n";
        let plan = config::parse("test.toml", text).expect("a plan").plan;
        let sites: Vec<String> = plan
            .site_names()
            .iter()
            .map(|name| name.to_string())
            .collect();
        assert_eq!(sites, ["a.example", "*"]);
        let routes: Vec<String> = plan
            .route_names()
            .iter()
            .map(|name| name.to_string())
            .collect();
        assert_eq!(
            routes,
            [
                "a.example /x/*",
                "a.example *",
                "* /x with a query that matches q"
            ]
        );
    }
}
