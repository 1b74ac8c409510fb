//! Sluice's figures beside those of each rival, and whether a difference is more than noise.

use serde::{Deserialize, Serialize};

use super::ServerReport;
use crate::spread::{Spread, within_noise};

/// Sluice's figure beside that of a rival.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The compared figure, as one of the names in [`FIGURES`].
    pub figure: String,
    /// Name of the rival.
    pub rival: String,
    /// Sluice's median divided by the rival's.
    pub ratio: f64,
    /// Whether the difference is within the noise of the measurement (see [`within_noise`]).
    pub within_noise: bool,
}

/// A way to find a figure among a server's results.
type Pick = fn(&ServerReport) -> Option<&Spread>;

/// The compared figures: name, and place in a server's results.
pub const FIGURES: [(&str, Pick); 9] = [
    ("keepalive_rate", |one| one.keepalive.rate.as_ref()),
    ("keepalive_cpu_us", |one| one.keepalive.cpu_us.as_ref()),
    ("close_rate", |one| one.close.rate.as_ref()),
    ("close_cpu_us", |one| one.close.cpu_us.as_ref()),
    ("held", |one| one.rising.held.as_ref()),
    ("mean_us", |one| one.rising.mean_us.as_ref()),
    ("open_bytes", |one| one.connections.open_bytes.as_ref()),
    ("bytes_each", |one| one.connections.bytes_each.as_ref()),
    ("p99_us", |one| one.connections.p99_us.as_ref()),
];

/// Compares the first server with each of the others. Figures that were not measured for both, and those that are 0 for
/// the rival, are left out.
pub(super) fn compare(servers: &[ServerReport]) -> Vec<Comparison> {
    let Some((own, rivals)) = servers.split_first() else {
        return Vec::new();
    };
    let pairs = rivals
        .iter()
        .flat_map(|rival| FIGURES.iter().map(move |figure| (rival, figure)));
    pairs
        .filter_map(|(rival, (figure, pick))| {
            let (mine, theirs) = pick(own).zip(pick(rival))?;
            let ratio = mine.median / theirs.median;
            ratio.is_finite().then(|| Comparison {
                figure: (*figure).to_owned(),
                rival: rival.name.clone(),
                ratio,
                within_noise: within_noise(mine, theirs),
            })
        })
        .collect()
}
