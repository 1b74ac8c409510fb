//! The scopes of the history and the sizes of their rings.

use super::ring::RingSize;

/// Number of rings of a member.
pub const RINGS: usize = 3;

/// The rings of scopes that are read once per second: an hour, a day and a week.
const FINE: [RingSize; RINGS] = [ring(1, 3_600), ring(10, 8_640), ring(60, 10_080)];
/// The rings of scopes that are read every ten seconds: an hour, six hours and a week.
const COARSE: [RingSize; RINGS] = [ring(10, 360), ring(60, 360), ring(600, 1_008)];

const fn ring(step_s: u32, points: u32) -> RingSize {
    RingSize { step_s, points }
}

/// A kind of thing whose members have a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The sum over all workers. The only member has an empty name.
    Edge,
    /// The named reasons.
    Reason,
    /// The workers.
    Worker,
    /// The sites.
    Site,
    /// The caches.
    Cache,
    /// The volumes.
    Volume,
    /// The upstreams.
    Upstream,
    /// The servers of upstreams.
    Server,
    /// The routes.
    Route,
}

impl Scope {
    /// All scopes. If memory does not suffice for all members, the first ones have a history.
    pub const ALL: [Scope; 9] = [
        Scope::Edge,
        Scope::Reason,
        Scope::Worker,
        Scope::Site,
        Scope::Cache,
        Scope::Volume,
        Scope::Upstream,
        Scope::Server,
        Scope::Route,
    ];

    /// Returns the name in requests and responses.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Edge => "edge",
            Scope::Reason => "reason",
            Scope::Worker => "worker",
            Scope::Site => "site",
            Scope::Cache => "cache",
            Scope::Volume => "volume",
            Scope::Upstream => "upstream",
            Scope::Server => "server",
            Scope::Route => "route",
        }
    }

    /// Returns the scope with this name.
    pub fn by_name(name: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.name() == name)
    }

    /// Returns the sizes of the rings, the finest first. Each step is a multiple of the one before.
    pub fn rings(self) -> [RingSize; RINGS] {
        match self {
            Scope::Edge | Scope::Reason | Scope::Worker => FINE,
            _ => COARSE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_reach_further_the_coarser_they_are() {
        for scope in Scope::ALL {
            let rings = scope.rings();
            for pair in rings.windows(2) {
                assert_eq!(pair[1].step_s % pair[0].step_s, 0);
                assert!(pair[0].span_s() < pair[1].span_s());
            }
            assert_eq!(rings[2].span_s(), 7 * 24 * 3600);
            assert_eq!(Scope::by_name(scope.name()), Some(scope));
        }
        assert_eq!(Scope::by_name("process"), None);
    }
}
