//! Finds circles of imports between the files of one part.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::Source;

/// For each file of a part, by module: the other files of the part that it names.
type Graph<'a> = BTreeMap<&'a [String], BTreeSet<&'a [String]>>;

/// Returns findings about parts whose circles of imports differ from the list of exceptions. The list
/// has the number of files in each circle of a part, the largest first.
pub fn circles(sources: &[Source], exceptions: &[(&str, &[usize])]) -> Vec<String> {
    let mut findings = Vec::new();
    for (part, graph) in &graphs(sources) {
        let mut circles = circles_of(graph);
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        let allowed = exceptions.iter().find(|(of, _)| of == part);
        let allowed = allowed.map_or(&[][..], |(_, sizes)| sizes);
        for (n, circle) in circles.iter().enumerate() {
            let most = allowed.get(n).copied().unwrap_or(0);
            if circle.len() > most {
                findings.push(format!(
                    "`{part}`: {} files import one another, at most {most} may: {} ({})",
                    circle.len(),
                    path(&shortest(graph, circle)),
                    names(circle),
                ));
            }
        }
        let sizes: Vec<usize> = circles.iter().map(BTreeSet::len).collect();
        let is_less = |(n, most): (usize, &usize)| sizes.get(n).is_none_or(|size| size < most);
        if allowed.iter().enumerate().any(is_less) {
            findings.push(format!(
                "`{part}`: the circles are {sizes:?}, but the list says {allowed:?}"
            ));
        }
    }
    findings
}

/// Returns the graph of the imports inside each part.
fn graphs(sources: &[Source]) -> BTreeMap<&str, Graph<'_>> {
    let modules: BTreeSet<&[String]> = sources.iter().map(|s| s.module.as_slice()).collect();
    let mut graphs: BTreeMap<&str, Graph<'_>> = BTreeMap::new();
    for Source { module, facts, .. } in sources {
        let Some(part) = module.first() else { continue };
        let named = graphs.entry(part).or_default().entry(module).or_default();
        for path in &facts.paths {
            let Some((root, inside)) = path.path.split_first() else {
                continue;
            };
            if root != "crate" || inside.first() != Some(part) {
                continue;
            }
            let file = (1..=inside.len())
                .rev()
                .find_map(|length| modules.get(&inside[..length]));
            named.extend(file.filter(|file| **file != module.as_slice()));
        }
    }
    graphs
}

/// Returns the circles of a graph: sets of at least two files in which each file imports every
/// other, directly or through other files.
fn circles_of<'a>(graph: &Graph<'a>) -> Vec<BTreeSet<&'a [String]>> {
    let reached: BTreeMap<_, _> = graph
        .keys()
        .map(|from| (*from, reach(graph, from)))
        .collect();
    let mut circles: Vec<BTreeSet<&[String]>> = Vec::new();
    for (from, to) in &reached {
        if !to.contains(from) || circles.iter().any(|circle| circle.contains(from)) {
            continue;
        }
        let back = |other: &&&[String]| reached.get(**other).is_some_and(|to| to.contains(from));
        circles.push(to.iter().filter(back).copied().collect());
    }
    circles
}

/// Returns all files that a file imports, directly or through other files. The file itself is
/// included only if it is in a circle.
fn reach<'a>(graph: &Graph<'a>, from: &[String]) -> BTreeSet<&'a [String]> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&[String]> = graph[from].iter().copied().collect();
    while let Some(file) = next.pop() {
        if reached.insert(file) {
            next.extend(graph.get(file).into_iter().flatten());
        }
    }
    reached
}

/// Returns a shortest circle of imports through any of these files.
fn shortest<'a>(graph: &Graph<'a>, circle: &BTreeSet<&'a [String]>) -> Vec<&'a [String]> {
    let from_each = circle.iter().filter_map(|start| {
        let mut paths = vec![vec![*start]];
        let mut seen = BTreeSet::new();
        while !paths.is_empty() {
            let mut longer = Vec::new();
            for path in &paths {
                for next in path
                    .last()
                    .and_then(|last| graph.get(last))
                    .into_iter()
                    .flatten()
                {
                    let path = [path.as_slice(), &[*next]].concat();
                    if next == start {
                        return Some(path);
                    }
                    if seen.insert(*next) {
                        longer.push(path);
                    }
                }
            }
            paths = longer;
        }
        None
    });
    from_each.min_by_key(Vec::len).unwrap_or_default()
}

fn path(files: &[&[String]]) -> String {
    let names: Vec<_> = files.iter().map(|module| module.join("::")).collect();
    names.join(" -> ")
}

fn names(files: &BTreeSet<&[String]>) -> String {
    let names: Vec<_> = files.iter().map(|module| module.join("::")).collect();
    names.join(", ")
}
