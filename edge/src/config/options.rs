//! Options alone, without a file: the text of the file they stand for.

use std::fmt::Write;

use super::{Loaded, Report, parse_here};

/// What can be said on a command line. Values are as they would stand in a file, and are checked there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Origin servers, at least one if there is no folder.
    pub origins: Vec<String>,
    /// A folder of files, in place of origins.
    pub files: Option<String>,
    /// Where requests are taken.
    pub listen: Vec<String>,
    /// The admin address, or `false` for none.
    pub admin: Option<String>,
    /// Memory for what is cached, or for files.
    pub memory: Option<String>,
    /// Volumes, each as `PATH:SIZE`, or the path of a block device.
    pub volumes: Vec<String>,
    /// How objects are spread over them.
    pub placement: Option<String>,
    /// How missing bytes are fetched.
    pub fill: Option<String>,
    /// What is fetched with one request.
    pub slice: Option<String>,
    /// Worker threads.
    pub workers: Option<u64>,
    /// The access log's path, or `-`.
    pub access_log: Option<String>,
}

impl Options {
    /// The file that means the same.
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

    /// A folder on all paths.
    fn files_text(&self, root: &str, mut line: impl FnMut(String)) {
        line("[[site]]\n[[site.route]]\n[site.route.files]".to_owned());
        line(format!("root = {}", quoted(root)));
        if let Some(memory) = &self.memory {
            line(format!("memory = {}", quoted(memory)));
        }
    }

    /// Origins behind a cache on all paths.
    fn cache_text(&self, mut line: impl FnMut(String)) {
        for (name, volume) in volume_names().zip(&self.volumes) {
            // What stands behind the last colon is a size, but in the path of a device.
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

    /// The plan they make.
    ///
    /// # Errors
    /// The report on the file they stand for.
    pub fn load(&self) -> Result<Loaded, Report> {
        parse_here("options", &self.to_text())
    }
}

/// What volumes are called that have no name.
fn volume_names() -> impl Iterator<Item = String> {
    (1..).map(|n: usize| format!("volume{n}"))
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
