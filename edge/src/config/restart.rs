//! Names the changed keys of a configuration that a reload can't apply.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::report::{Problem, Report};

/// Longest earlier value that is shown, in bytes.
const SHOWN_MAX: usize = 60;

/// A key of the file.
struct Entry<'a> {
    /// The header of the key's section, as in `[server]`; empty at the top of the file.
    section: String,
    /// Number of the section among those with the same header.
    index: usize,
    key: &'a str,
    /// The value as it was written.
    value: &'a str,
    span: std::ops::Range<usize>,
}

impl Entry<'_> {
    fn is(&self, other: &Entry<'_>) -> bool {
        (&self.section, self.index, self.key) == (&other.section, other.index, other.key)
    }

    fn name(&self) -> String {
        match self.section.is_empty() {
            true => format!("`{}`", self.key),
            false => format!("`{}` in {}", self.key, self.section),
        }
    }
}

/// Returns a report with each key that differs between the texts of two usable configurations and
/// belongs to one of the settings `settings`, as `changes` names them. `now` is a report on the new
/// text.
pub fn restart(before: &str, now: &Report, settings: &[String]) -> Report {
    let (old, new) = (Entries::of(before), Entries::of(&now.text));
    let (old, new) = (old.all(), new.all());
    let mut report = Report::new(now.name.clone(), now.text.clone());
    for setting in settings {
        let of_setting = |entry: &&Entry<'_>| belongs(entry, setting);
        let found = report.problems.len();
        for entry in new.iter().filter(of_setting) {
            let earlier = old.iter().find(|earlier| earlier.is(entry));
            if earlier.is_none_or(|earlier| earlier.value != entry.value) {
                let problem = Problem::error(format!("{} needs a restart", entry.name()));
                let was = earlier.map_or("not set before".to_owned(), |earlier| was(earlier.value));
                report
                    .problems
                    .push(problem.at(entry.span.clone()).label(was));
            }
        }
        for entry in old.iter().filter(of_setting) {
            if !new.iter().any(|later| later.is(entry)) {
                let title = format!("{} was removed, which needs a restart", entry.name());
                report.problems.push(Problem::error(title));
            }
        }
        if report.problems.len() == found {
            let title = format!("this change needs a restart: {setting}");
            report.problems.push(Problem::error(title));
        }
    }
    if let Some(last) = report.problems.last_mut() {
        last.help = Some("restart Sluice, or undo this; nothing of the file is in use".to_owned());
    }
    report
}

fn was(value: &str) -> String {
    let line = value.lines().next().unwrap_or_default();
    match line.len() <= SHOWN_MAX && line.len() == value.len() {
        true => format!("before: {value}"),
        false => "before: another value".to_owned(),
    }
}

/// Whether a key belongs to a setting that `changes` names.
fn belongs(entry: &Entry<'_>, setting: &str) -> bool {
    let key = entry.key;
    match (setting, entry.section.as_str()) {
        ("workers", "[server]") => key == "workers",
        ("user and sandbox", "[server]") => matches!(key, "user" | "sandbox"),
        ("listeners", "") => key == "listen",
        ("listeners", "[[listener]]") => key != "protocols",
        ("admin address", "[admin]") => key == "address",
        ("file of events", "[admin]") => key == "events",
        ("program for DNS", "[tls.acme]") => matches!(key, "dns" | "challenge"),
        ("folder of certificates", "[tls.acme]") => matches!(key, "state" | "ca"),
        ("log level", "[log]") => key == "level",
        ("log of messages", "[log]") => key == "error",
        (volume, section) => volume
            .strip_prefix("volume ")
            .is_some_and(|name| section == format!("[volume.{name}]") && key != "overwrite"),
    }
}

/// The entries of a file that a restart may concern.
struct Entries<'a> {
    text: &'a str,
    tree: Option<Spanned<DeTable<'a>>>,
}

impl<'a> Entries<'a> {
    fn of(text: &'a str) -> Entries<'a> {
        let tree = DeTable::parse(text).ok();
        Entries { text, tree }
    }

    fn all(&self) -> Vec<Entry<'_>> {
        let mut all = Vec::new();
        for (name, value) in self.tree.iter().flat_map(|tree| tree.get_ref().iter()) {
            let name = name.get_ref();
            match value.get_ref() {
                DeValue::Table(table) if name == "volume" => {
                    for (volume, keys) in table.iter() {
                        let section = format!("[volume.{}]", volume.get_ref());
                        self.section(&section, 0, keys, &mut all);
                    }
                }
                DeValue::Table(table) if name == "tls" => {
                    if let Some(keys) = table.get("acme") {
                        self.section("[tls.acme]", 0, keys, &mut all);
                    }
                }
                DeValue::Table(_) => self.section(&format!("[{name}]"), 0, value, &mut all),
                DeValue::Array(list) if name == "listener" => {
                    for (index, keys) in list.iter().enumerate() {
                        self.section("[[listener]]", index, keys, &mut all);
                    }
                }
                _ => all.push(self.entry("", 0, name, value)),
            }
        }
        all
    }

    /// Adds the keys of one section.
    fn section<'s>(
        &'s self,
        section: &str,
        index: usize,
        keys: &'s Spanned<DeValue<'a>>,
        all: &mut Vec<Entry<'s>>,
    ) {
        for (key, value) in keys
            .get_ref()
            .as_table()
            .into_iter()
            .flat_map(DeTable::iter)
        {
            all.push(self.entry(section, index, key.get_ref(), value));
        }
    }

    fn entry<'s>(
        &'s self,
        section: &str,
        index: usize,
        key: &'s str,
        value: &Spanned<DeValue<'a>>,
    ) -> Entry<'s> {
        let span = value.span();
        Entry {
            section: section.to_owned(),
            index,
            key,
            value: self.text.get(span.clone()).unwrap_or_default(),
            span,
        }
    }
}
