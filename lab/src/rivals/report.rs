//! The report of `sluice lab rivals`: which servers are installed, and how to install the others.

use serde::Serialize;

use super::{PROGRAMS, Program, Task};
use crate::bench::plain;

/// One server of another project.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// Name of the server.
    pub name: &'static str,
    /// Tasks that the server can have in the lab.
    pub tasks: &'static [Task],
    /// Debian package with the program.
    pub package: &'static str,
    /// Version of the installed program; `None` if the program is missing or prints none.
    pub version: Option<String>,
    /// Path of the installed program; `None` if it is missing.
    pub path: Option<String>,
}

impl Entry {
    fn of(program: &Program) -> Entry {
        let path = program.find().ok();
        let version = path.is_some().then(|| program.version().ok());
        Entry {
            name: program.name,
            tasks: program.tasks,
            package: program.package,
            version: version.flatten(),
            path: path.map(|path| path.display().to_string()),
        }
    }

    fn cells(&self) -> Vec<String> {
        let tasks = self.tasks.iter().map(|task| match task {
            Task::Cache => "cache",
            Task::Static => "static",
            Task::Proxy => "proxy",
        });
        let version = match (&self.version, &self.path) {
            (Some(version), _) => version,
            (None, Some(_)) => "unknown",
            (None, None) => "-",
        };
        let path = self.path.as_deref().unwrap_or("not installed");
        vec![
            self.name.to_owned(),
            tasks.collect::<Vec<_>>().join(", "),
            version.to_owned(),
            path.to_owned(),
        ]
    }
}

/// The servers of other projects on this machine.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// All servers that the lab can start.
    pub rivals: Vec<Entry>,
    /// Command that installs the missing ones on Debian; `None` if none is missing.
    pub install: Option<String>,
    /// Command that ends the services that then start; `None` if none starts.
    pub disable: Option<String>,
}

const TITLES: [(&str, &str); 4] = [("", ""), ("tasks", ""), ("version", ""), ("path", "")];

const LEGEND: &str = "
cache   proxy with a cache
static  server of static files
proxy   proxy without a cache
";

impl Report {
    /// Searches this machine for all servers.
    pub fn search() -> Report {
        Report::of(PROGRAMS.iter().map(|program| Entry::of(program)).collect())
    }

    fn of(rivals: Vec<Entry>) -> Report {
        let missing = |program: &&&Program| {
            let mut missing = rivals.iter().filter(|entry| entry.path.is_none());
            missing.any(|entry| entry.name == program.name)
        };
        let missing: Vec<_> = PROGRAMS.iter().filter(missing).collect();
        let packages: Vec<_> = missing.iter().map(|program| program.package).collect();
        let services: Vec<_> = missing
            .iter()
            .filter_map(|program| program.service)
            .collect();
        let command = |command: &str, names: &[&str]| {
            (!names.is_empty()).then(|| format!("{command} {}", names.join(" ")))
        };
        Report {
            install: command("apt-get install --no-install-recommends", &packages),
            disable: command("systemctl disable --now", &services),
            rivals,
        }
    }

    /// Renders the table and the commands for missing servers.
    pub fn render(&self) -> String {
        let rows: Vec<_> = self.rivals.iter().map(Entry::cells).collect();
        let mut text = plain(&TITLES, &rows);
        text.push_str(LEGEND);
        if let Some(install) = &self.install {
            text.push_str(&format!(
                "\nTo install the missing servers on Debian:\n  {install}\n"
            ));
        }
        if let Some(disable) = &self.disable {
            text.push_str(&format!(
                "Debian then also starts them as services, which the lab does not need. To end these:\n  {disable}\n"
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_a_command_for_missing_servers_only() {
        let entries = |missing: &[&str]| {
            let entry = |program: &&Program| {
                let path = (!missing.contains(&program.name)).then(|| "/bin/server".to_owned());
                Entry {
                    version: path.is_some().then(|| "1.2".to_owned()),
                    path,
                    ..Entry::of(program)
                }
            };
            PROGRAMS.iter().map(entry).collect()
        };
        let report = Report::of(entries(&["Apache", "Squid"]));
        let text = report.render();
        let install = "apt-get install --no-install-recommends apache2-bin squid\n";
        assert!(text.contains(install), "{text}");
        assert!(text.contains("systemctl disable --now squid\n"), "{text}");
        assert!(text.contains("not installed"), "{text}");

        let report = Report::of(entries(&["Apache"]));
        assert_eq!(report.disable, None);

        // No blank line between titles and rows.
        let table: Vec<&str> = text.lines().take(1 + 1 + PROGRAMS.len()).collect();
        assert!(table.iter().all(|line| !line.is_empty()), "{text}");

        let report = Report::of(entries(&[]));
        assert_eq!((&report.install, &report.disable), (&None, &None));
        let text = report.render();
        assert!(text.contains("cache, static, proxy"), "{text}");
        assert!(!text.contains("install"), "{text}");
    }
}
