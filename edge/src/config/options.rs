//! The options of `sluice serve` without a file, which are translated into the text of a
//! configuration file.

use super::account::Purpose;
use super::loading::{Loaded, parse_here};
use super::report::{OptionText, Report};

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
    /// Names for which certificates are obtained.
    pub tls: Vec<String>,
    /// URL of the directory of the authority that issues them.
    pub acme_directory: Option<String>,
    /// File of the authorities by which the directory's own certificate is verified.
    pub acme_ca: Option<String>,
    /// Folder of the certificates.
    pub acme_state: Option<String>,
}

/// The text of a configuration file, and the options from which its lines were made.
#[derive(Default)]
struct Written {
    text: String,
    options: Vec<OptionText>,
}

impl Written {
    /// Adds lines that no option contains.
    fn lines(&mut self, lines: &str) {
        self.text.push_str(lines);
        self.text.push('\n');
    }

    /// Adds lines that were made from the value of an option.
    fn option(&mut self, option: &str, value: &str, key: &'static str, lines: &str) {
        let start = self.text.len();
        self.lines(lines);
        self.options.push(OptionText {
            span: start..self.text.len(),
            option: format!("{option} {value}"),
            key,
        });
    }
}

impl Options {
    /// Returns the text of the configuration file that is equivalent to these options.
    #[cfg(test)]
    pub fn to_text(&self) -> String {
        self.written().text
    }

    fn written(&self) -> Written {
        let mut out = Written::default();
        if let Some(workers) = self.workers {
            let lines = format!("[server]\nworkers = {workers}");
            out.option("--workers", &workers.to_string(), "workers", &lines);
        }
        for address in &self.listen {
            let lines = format!("[[listener]]\naddress = {}", quoted(address));
            out.option("--listen", address, "address", &lines);
        }
        if let Some(address) = &self.admin {
            let value = match address.as_str() {
                "false" => address.clone(),
                address => quoted(address),
            };
            out.option(
                "--admin",
                address,
                "address",
                &format!("[admin]\naddress = {value}"),
            );
        }
        if let Some(path) = &self.access_log {
            let lines = format!("[log]\naccess = {}", quoted(path));
            out.option("--access-log", path, "access", &lines);
        }
        self.acme_text(&mut out);
        match &self.files {
            Some(root) => self.files_text(root, &mut out),
            None => self.cache_text(&mut out),
        }
        out
    }

    /// Writes how certificates are obtained.
    fn acme_text(&self, out: &mut Written) {
        let keys = [
            ("--acme-directory", "directory", &self.acme_directory),
            ("--acme-ca", "ca", &self.acme_ca),
            ("--acme-state", "state", &self.acme_state),
        ];
        if keys.iter().any(|(.., value)| value.is_some()) {
            out.lines("[tls.acme]");
        }
        for (option, key, value) in keys {
            if let Some(value) = value {
                out.option(option, value, key, &format!("{key} = {}", quoted(value)));
            }
        }
    }

    /// Writes the beginning of the site, with its names if it has certificates.
    fn site_text(&self, out: &mut Written) {
        out.lines("[[site]]");
        if self.tls.is_empty() {
            return;
        }
        out.lines("hosts = [");
        for name in &self.tls {
            out.option("--tls", name, "hosts", &format!("{},", quoted(name)));
        }
        out.lines("]\ntls = \"auto\"");
    }

    /// Writes a site with one route that serves files.
    fn files_text(&self, root: &str, out: &mut Written) {
        self.site_text(out);
        out.lines("[[site.route]]");
        let lines = format!("[site.route.files]\nroot = {}", quoted(root));
        out.option("--files", root, "root", &lines);
        if let Some(memory) = &self.memory {
            out.option(
                "--memory",
                memory,
                "memory",
                &format!("memory = {}", quoted(memory)),
            );
        }
    }

    /// Writes volumes, a cache, an upstream, and a site with one route that uses them.
    fn cache_text(&self, out: &mut Written) {
        for (name, volume) in volume_names().zip(&self.volumes) {
            // The size follows the last colon. A block device has no size, so its path has no
            // colon.
            let (path, size) = volume
                .rsplit_once(':')
                .map_or((&**volume, None), |(path, size)| (path, Some(size)));
            let mut lines = format!("[volume.{name}]\npath = {}", quoted(path));
            if let Some(size) = size {
                lines += &format!("\nsize = {}", quoted(size));
            }
            out.option("--volume", volume, "size", &lines);
        }
        out.lines("[cache.memory]");
        if !self.volumes.is_empty() {
            let names: Vec<String> = volume_names()
                .take(self.volumes.len())
                .map(|n| quoted(&n))
                .collect();
            out.lines(&format!("volumes = [{}]", names.join(", ")));
        }
        let cache = [
            ("--placement", "placement", &self.placement),
            ("--memory", "memory", &self.memory),
            ("--fill", "fill", &self.fill),
            ("--slice", "slice", &self.slice),
        ];
        for (option, key, value) in cache {
            if let Some(value) = value {
                out.option(option, value, key, &format!("{key} = {}", quoted(value)));
            }
        }
        out.lines("[upstream.origin]\nservers = [");
        for origin in &self.origins {
            out.option(
                "--origin",
                origin,
                "servers",
                &format!("{},", quoted(origin)),
            );
        }
        out.lines("]");
        self.site_text(out);
        out.lines("[[site.route]]\nproxy = \"origin\"\ncache = \"memory\"");
    }

    /// Returns the plan for these options.
    ///
    /// # Errors
    ///
    /// A report with all problems, each with its option.
    pub fn load(&self) -> Result<Loaded, Report> {
        let Written { text, options } = self.written();
        match parse_here("options", &text, Purpose::Start) {
            Ok(mut loaded) => {
                loaded.warnings.options = options;
                Ok(loaded)
            }
            Err(mut report) => {
                sizes(&mut report);
                Err(Report { options, ..report })
            }
        }
    }
}

/// Rewrites the advice about volumes without a size, which has another form in options.
fn sizes(report: &mut Report) {
    for problem in &mut report.problems {
        if problem.title.starts_with("volume `") && problem.title.ends_with("` has no size") {
            problem.title = "a volume in a file needs a size".to_owned();
            problem.help = Some("write PATH:SIZE, as in /mnt/disk1/sluice.vol:5GiB".to_owned());
        }
    }
}

/// Returns names for volumes, which have none on the command line.
fn volume_names() -> impl Iterator<Item = String> {
    (1..).map(|n: usize| format!("volume{n}"))
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
