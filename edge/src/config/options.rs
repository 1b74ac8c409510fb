//! The options of `sluice serve` without a file, which are translated into the text of a
//! configuration file.

use std::fmt::Write;

use super::loading::{Loaded, parse_here};
use super::report::Report;

/// Values of command line options. They have the same form as values in the file and are checked in
/// the same way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// URLs of origin servers, at least one if there is no folder.
    pub origins: Vec<String>,
    /// A folder of files, in place of origins.
    pub files: Option<String>,
    /// Addresses to listen on for clients.
    pub listen: Vec<String>,
    /// Admin address, or `false` for none.
    pub admin: Option<String>,
    /// Size of the cache in memory, or of the memory for files.
    pub memory: Option<String>,
    /// Volumes, each as `PATH:SIZE`, or the path of a block device.
    pub volumes: Vec<String>,
    /// Placement of objects on several volumes.
    pub placement: Option<String>,
    /// Fill mode, which determines how missing bytes are fetched.
    pub fill: Option<String>,
    /// Size of the blocks in which parts of a file are fetched.
    pub slice: Option<String>,
    /// Number of worker threads.
    pub workers: Option<u64>,
    /// Path of the access log, or `-` for standard output.
    pub access_log: Option<String>,
}

impl Options {
    /// Returns the text of the configuration file that is equivalent to these options.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        // Writing to a String can't fail.
        let mut line = |text: String| _ = writeln!(out, "{text}");
        if let Some(workers) = self.workers {
            line(format!("[server]\nworkers = {workers}"));
        }
        for address in &self.listen {
            line(format!("[[listener]]\naddress = {}", quoted(address)));
        }
        if let Some(address) = &self.admin {
            let value = match address.as_str() {
                "false" => address.clone(),
                address => quoted(address),
            };
            line(format!("[admin]\naddress = {value}"));
        }
        if let Some(path) = &self.access_log {
            line(format!("[log]\naccess = {}", quoted(path)));
        }
        match &self.files {
            Some(root) => self.files_text(root, line),
            None => self.cache_text(line),
        }
        out
    }

    /// Writes a site with one route that serves files.
    fn files_text(&self, root: &str, mut line: impl FnMut(String)) {
        line("[[site]]\n[[site.route]]\n[site.route.files]".to_owned());
        line(format!("root = {}", quoted(root)));
        if let Some(memory) = &self.memory {
            line(format!("memory = {}", quoted(memory)));
        }
    }

    /// Writes volumes, a cache, an upstream, and a site with one route that uses them.
    fn cache_text(&self, mut line: impl FnMut(String)) {
        for (name, volume) in volume_names().zip(&self.volumes) {
            // The size follows the last colon. A block device has no size, so its path has no
            // colon.
            let (path, size) = volume
                .rsplit_once(':')
                .map_or((&**volume, None), |(path, size)| (path, Some(size)));
            line(format!("[volume.{name}]\npath = {}", quoted(path)));
            if let Some(size) = size {
                line(format!("size = {}", quoted(size)));
            }
        }
        line("[cache.memory]".to_owned());
        if !self.volumes.is_empty() {
            let names: Vec<String> = volume_names()
                .take(self.volumes.len())
                .map(|n| quoted(&n))
                .collect();
            line(format!("volumes = [{}]", names.join(", ")));
        }
        let cache = [
            ("placement", &self.placement),
            ("memory", &self.memory),
            ("fill", &self.fill),
            ("slice", &self.slice),
        ];
        for (key, value) in cache {
            if let Some(value) = value {
                line(format!("{key} = {}", quoted(value)));
            }
        }
        let servers: Vec<String> = self.origins.iter().map(|o| quoted(o)).collect();
        line(format!(
            "[upstream.origin]\nservers = [{}]",
            servers.join(", ")
        ));
        line("[[site]]\n[[site.route]]\nproxy = \"origin\"\ncache = \"memory\"".to_owned());
    }

    /// Returns the plan for these options.
    ///
    /// # Errors
    ///
    /// A report on the equivalent configuration file.
    pub fn load(&self) -> Result<Loaded, Report> {
        parse_here("options", &self.to_text())
    }
}

/// Returns names for volumes, which have none on the command line.
fn volume_names() -> impl Iterator<Item = String> {
    (1..).map(|n: usize| format!("volume{n}"))
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
