//! The memory that telemetry takes at most, apart from the history.

use crate::config::{Plan, show_size};
use crate::telemetry::{MemoryMax, counters_max, observed_max};
use crate::what_if;

const MIB: u64 = 1 << 20;

/// Returns a line about the memory of the telemetry of a plan, apart from the history.
pub fn describe(plan: &Plan) -> String {
    let parts: Vec<(&str, MemoryMax)> = parts(plan).collect();
    let listed = |memory: fn(&MemoryMax) -> u64| {
        let some = parts.iter().map(|(name, part)| (name, memory(part)));
        let some: Vec<_> = some.filter(|(_, bytes)| *bytes > 0).collect();
        let sum = some.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let shown = some
            .iter()
            .map(|(name, bytes)| format!("{name} {}", size(*bytes)));
        (sum, shown.collect::<Vec<_>>().join(", "))
    };
    let mut text = "telemetry besides the history: up to ".to_owned();
    if let (sum @ 1.., shared) = listed(|part| part.shared) {
        text += &format!("{} of memory ({shared}), and ", size(sum));
    }
    let (sum, per_worker) = listed(|part| part.per_worker);
    text + &format!("{} for each worker ({per_worker})", size(sum))
}

/// Returns the parts of the telemetry, with the memory of each.
fn parts(plan: &Plan) -> impl Iterator<Item = (&'static str, MemoryMax)> {
    let routes = plan.sites.iter().map(|site| site.routes.len()).sum();
    let servers = plan.upstreams.values().map(|one| one.servers.len()).sum();
    let is_observed = plan.admin.is_some() || plan.admin_events.is_some();
    let simulated = plan.admin.as_ref().map(|_| plan.caches.len());
    [
        Some(("histograms", counters_max(routes, servers))),
        is_observed.then(|| ("events and top URLs", observed_max())),
        simulated.map(|caches| ("what-if", what_if::memory_max(caches))),
    ]
    .into_iter()
    .flatten()
}

/// Formats a size in whole MiB, rounded up.
fn size(bytes: u64) -> String {
    show_size(bytes.next_multiple_of(MIB))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn described(admin: &str, routes: usize) -> String {
        let route =
            |n| format!("[[site.route]]\npath = \"/{n}/*\"\nproxy = \"o\"\ncache = \"main\"\n");
        let routes: String = (0..routes).map(route).collect();
        let text = format!(
            "[admin]\n{admin}[cache.main]\n[upstream.o]\nservers = [\"http://127.0.0.1:9\"]\n[[site]]\n{routes}"
        );
        describe(
            &config::parse("test.toml", &text)
                .expect("a configuration")
                .plan,
        )
    }

    #[test]
    fn the_memory_of_each_part_is_stated() {
        insta::assert_snapshot!(
            described("", 1),
            @"telemetry besides the history: up to 53 MiB of memory (events and top URLs 21 MiB, what-if 32 MiB), and 10 MiB for each worker (histograms 1 MiB, events and top URLs 9 MiB, what-if 1 MiB)"
        );
        let many = described("", 1000);
        assert!(many.contains("(histograms 90 MiB, "), "{many}");
        insta::assert_snapshot!(
            described("address = false\n", 1),
            @"telemetry besides the history: up to 1 MiB for each worker (histograms 1 MiB)"
        );
    }
}
