//! Sluice's figures divided by those of rivals in the same run. A machine that is slower for a while changes both, so the
//! ratio has less noise than each of them.

use std::collections::{HashMap, HashSet};

use super::figures::{Figures, Path};
use crate::spread::Spread;

/// Begin of the names of Sluice's servers.
const OWN: &str = "Sluice";
/// Begin of the name of the row without a cache.
const ORIGIN: &str = "origin";

/// Sluice's figure divided by that of a rival.
pub(super) struct Relative {
    /// Name of Sluice's figure.
    pub(super) own: Path,
    /// Name of the rival's figure.
    pub(super) rival: Path,
    /// Name of the ratio.
    pub(super) path: Path,
    /// The ratio.
    pub(super) ratio: Spread,
}

/// The place of a name's part, and the other parts.
type Hole = (usize, Path);

/// Returns the ratios of all figures of Sluice that a rival has, too.
pub(super) fn relative(figures: &Figures) -> Vec<Relative> {
    let own: Vec<(usize, &Path, &Spread)> = figures
        .all
        .iter()
        .filter_map(|(path, spread)| Some((own_place(path)?, path, spread)))
        .collect();
    let wanted: HashSet<Hole> = own
        .iter()
        .map(|(place, path, _)| hole(path, *place))
        .collect();
    let mut rivals: HashMap<Hole, Vec<(&str, &Spread)>> = HashMap::new();
    for (path, spread) in figures
        .all
        .iter()
        .filter(|(path, _)| own_place(path).is_none())
    {
        for (place, name) in path.iter().enumerate() {
            let hole = hole(path, place);
            if wanted.contains(&hole) && !name.starts_with(ORIGIN) {
                rivals.entry(hole).or_default().push((name, spread));
            }
        }
    }
    let mut found = Vec::new();
    for (place, path, spread) in own {
        let name = &path[place];
        for (rival, theirs) in rivals.get(&hole(path, place)).into_iter().flatten() {
            if let Some(ratio) = quotient(spread, theirs).filter(|_| is_alike(name, rival)) {
                let named = |name: String| {
                    let mut named = path.clone();
                    named[place] = name;
                    named
                };
                found.push(Relative {
                    own: path.clone(),
                    rival: named((*rival).to_owned()),
                    path: named(format!("{name} / {rival}")),
                    ratio,
                });
            }
        }
    }
    found
}

fn own_place(path: &Path) -> Option<usize> {
    path.iter().position(|name| name.starts_with(OWN))
}

fn hole(path: &Path, place: usize) -> Hole {
    let mut others = path.clone();
    others.remove(place);
    (place, others)
}

/// Whether a rival's row has the same settings as one of Sluice: their names end alike, as in `Sluice whole` and `nginx
/// whole`. Sluice's mode `auto` stands beside `slice`, which it replaces.
fn is_alike(own: &str, rival: &str) -> bool {
    let settings = own.strip_prefix(OWN).unwrap_or_default();
    let rival = rival.strip_suffix(", threads").unwrap_or(rival);
    let ends = |settings: &str| rival.len() > settings.len() && rival.ends_with(settings);
    ends(settings) || (settings == " auto" && ends(" slice"))
}

/// Divides round by round if both have the same number of rounds, which took turns; otherwise the medians.
fn quotient(own: &Spread, rival: &Spread) -> Option<Spread> {
    let pairs = || own.rounds.iter().zip(&rival.rounds);
    let by_round = match own.rounds.len() == rival.rounds.len() {
        true => Spread::of(pairs().map(|(own, rival)| own / rival).collect()),
        false => None,
    };
    by_round.or_else(|| Spread::of(vec![own.median / rival.median]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_with_the_same_settings_are_divided_round_by_round() {
        let row = |name: &str, rounds: [f64; 2]| {
            let cold = Spread::of(rounds.to_vec()).expect("finite");
            json!({ "name": name, "cold": cold })
        };
        let report = json!({ "rows": [
            row("origin", [1.0, 1.0]),
            row("Sluice auto", [4.0, 9.0]),
            row("Sluice whole", [6.0, 6.0]),
            row("nginx slice", [2.0, 3.0]),
            row("nginx whole", [3.0, 0.0]),
        ] });
        let found = relative(&Figures::of(&report));
        let rivals: Vec<String> = found.iter().map(|one| one.rival.join(": ")).collect();
        assert_eq!(rivals, ["nginx slice: cold", "nginx whole: cold"]);
        let found: Vec<(String, &[f64])> = found
            .iter()
            .map(|one| (one.path.join(": "), &one.ratio.rounds[..]))
            .collect();
        // A division by zero is replaced by that of the medians.
        assert_eq!(
            found,
            [
                (
                    "Sluice auto / nginx slice: cold".to_owned(),
                    &[2.0, 3.0][..]
                ),
                ("Sluice whole / nginx whole: cold".to_owned(), &[4.0]),
            ]
        );
    }

    #[test]
    fn names_of_rivals_may_have_further_settings() {
        for (own, rival, expected) in [
            ("Sluice", "h2o", true),
            ("Sluice", "rival", true),
            ("Sluice, A", "nginx, A", true),
            ("Sluice, A", "nginx, B", false),
            ("Sluice single", "nginx single, threads", true),
            ("Sluice lock", "nginx slice", false),
        ] {
            assert_eq!(is_alike(own, rival), expected, "{own} {rival}");
        }
    }
}
