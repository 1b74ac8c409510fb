//! The options of `sluice serve` without a file, and the text of the equivalent file.

use std::fmt::Write;

use super::loading::{Loaded, parse_here};
use super::report::Report;

/// Values from the command line. They have the form of values in the file and are checked there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Origin servers, at least one if there is no folder.
    pub origins: Vec<String>,
    /// A folder of files, in place of origins.
    pub files: Option<String>,
    /// Addresses to listen on.
    pub listen: Vec<String>,
    /// The admin address, or `false` for none.
    pub admin: Option<String>,
    /// Size of the cache in memory, or of the memory for files.
    pub memory: Option<String>,
    /// Volumes, each as `PATH:SIZE`, or the path of a block device.
    pub volumes: Vec<String>,
    /// How objects are distributed over the volumes.
    pub placement: Option<String>,
    /// How missing bytes are fetched.
    pub fill: Option<String>,
    /// Block size.
    pub slice: Option<String>,
    /// Worker threads.
    pub workers: Option<u64>,
    /// The access log's path, or `-`.
    pub access_log: Option<String>,
}

impl Options {
    /// The text of the equivalent file.
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

    /// One route with files.
    fn files_text(&self, root: &str, mut line: impl FnMut(String)) {
        line("[[site]]\n[[site.route]]\n[site.route.files]".to_owned());
        line(format!("root = {}", quoted(root)));
        if let Some(memory) = &self.memory {
            line(format!("memory = {}", quoted(memory)));
        }
    }

    /// One route with a cache and origins.
    fn cache_text(&self, mut line: impl FnMut(String)) {
        for (name, volume) in volume_names().zip(&self.volumes) {
            // The size follows the last colon; the path of a device has none.
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

    /// The plan for these options.
    ///
    /// # Errors
    /// The report on the equivalent file.
    pub fn load(&self) -> Result<Loaded, Report> {
        parse_here("options", &self.to_text())
    }
}

/// Names for volumes without one.
fn volume_names() -> impl Iterator<Item = String> {
    (1..).map(|n: usize| format!("volume{n}"))
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
