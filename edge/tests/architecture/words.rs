//! Finds paragraphs of comments and documents that begin without naming their subject.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Beginnings of sentences that do not name their subject.
const UNCLEAR: [&str; 5] = ["It ", "What ", "Who ", "That ", "So much "];

/// Returns findings about folders whose number of unclear paragraphs differs from the number in the
/// list of exceptions. `files` has names and texts of Rust files and documents.
pub fn beginnings(files: &[(String, String)], exceptions: &[(&str, usize)]) -> Vec<String> {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    found.extend(exceptions.iter().map(|(folder, _)| (*folder, Vec::new())));
    for (file, text) in files {
        let paragraphs = match file.ends_with(".rs") {
            true => of_comments(text),
            false => of_document(text),
        };
        let unclear = paragraphs.iter().filter(|(_, text)| is_unclear(text));
        let listed = unclear.map(|(line, text)| format!("{file}:{line}: {text}"));
        found.entry(folder(file)).or_default().extend(listed);
    }
    let findings = found.iter().filter_map(|(folder, unclear)| {
        let listed = exceptions.iter().find(|(of, _)| of == folder);
        let allowed = listed.map_or(0, |(_, most)| *most);
        finding(folder, unclear, allowed)
    });
    findings.collect()
}

fn finding(folder: &str, unclear: &[String], allowed: usize) -> Option<String> {
    let count = unclear.len();
    match count.cmp(&allowed) {
        Ordering::Equal => None,
        Ordering::Less => Some(format!(
            "`{folder}`: {count} paragraphs begin without naming their subject, fewer than the \
             {allowed} in the list of exceptions: lower that number"
        )),
        Ordering::Greater => Some(format!(
            "`{folder}`: {count} paragraphs begin without naming their subject, more than the list \
             of exceptions permits:\n{}",
            unclear.join("\n")
        )),
    }
}

/// Returns the folder whose paragraphs are counted together: `edge/src/cache` for that part,
/// otherwise the first folder of the path.
fn folder(file: &str) -> &str {
    let depth = if file.starts_with("edge/src/") { 3 } else { 1 };
    let mut ends = file.match_indices('/').map(|(at, _)| at);
    let end = ends.nth(depth - 1).or_else(|| file.rfind('/'));
    end.map_or(".", |end| &file[..end])
}

fn is_unclear(paragraph: &str) -> bool {
    UNCLEAR.iter().any(|start| paragraph.starts_with(start))
}

/// Returns the first line of each paragraph in comments, with its number. Comments after code on
/// the same line are left out.
fn of_comments(text: &str) -> Vec<(usize, &str)> {
    let mut first = Vec::new();
    let mut before = None;
    for (n, line) in text.lines().enumerate() {
        let comment = comment(line);
        if let Some((kind, text)) = comment
            && before.is_none_or(|(of, before): (&str, &str)| of != kind || before.is_empty())
        {
            first.push((n + 1, text));
        }
        before = comment;
    }
    first
}

/// Returns the kind of a comment (`//`, `///` or `//!`) and its text; `None` if the line is no
/// comment.
fn comment(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let kind = ["///", "//!", "//"]
        .into_iter()
        .find(|kind| line.starts_with(kind))?;
    Some((kind, line[kind.len()..].trim()))
}

/// Returns the first line of each paragraph, list item and table cell of a document, with its
/// number. Code examples are left out.
fn of_document(text: &str) -> Vec<(usize, &str)> {
    let mut first = Vec::new();
    let (mut code, mut blank) = (false, true);
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("```") {
            code = !code;
        } else if code {
        } else if line.starts_with('|') {
            first.extend(line.split('|').map(|cell| (n + 1, cell.trim())));
        } else if let Some(item) = line.strip_prefix("- ") {
            first.push((n + 1, item));
        } else if blank {
            first.push((n + 1, line));
        }
        blank = line.is_empty();
    }
    first
}
