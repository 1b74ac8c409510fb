//! Reports parts of a configuration that a start or a reload could not use, with their lines.

use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::account::advice;
use super::file::File;
use super::report::{Problem, Report};
use super::syntax;

/// A part of a configuration that depends on the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The access log.
    AccessLog,
    /// The log of messages.
    ErrorLog,
    /// The file of events.
    Events,
    /// The folder of the temporary files of buffered bodies.
    BufferFolder,
    /// A folder that a route serves.
    Folder(PathBuf),
    /// The volume of this name.
    Volume(String),
}

/// A part of a configuration that could not be used, and the reason.
#[derive(Debug)]
pub struct Unusable {
    part: Part,
    title: String,
    kind: ErrorKind,
}

impl Unusable {
    /// Creates the report of an error of the file system. `what` describes the failure, as in
    /// "can't serve /srv/www".
    pub fn new(part: Part, what: &str, error: &io::Error) -> Unusable {
        Unusable {
            part,
            title: format!("{what}: {error}"),
            kind: error.kind(),
        }
    }

    /// Creates the report of a volume that can't be used.
    pub fn volume(name: &str, why: &str) -> Unusable {
        Unusable {
            part: Part::Volume(name.to_owned()),
            title: format!("volume {name}: {why}"),
            kind: ErrorKind::Other,
        }
    }

    /// Returns a report with the line of the part, in the configuration of this name and text.
    /// `privileges` describes the user and the sandbox that may have caused missing permission.
    pub fn report(&self, name: &str, text: &str, privileges: Option<String>) -> Report {
        let mut problem = Problem::error(self.title.clone());
        problem.span = syntax::read(text).ok().and_then(|file| self.span(&file));
        problem.help = match self.kind {
            ErrorKind::PermissionDenied => {
                let own = "run Sluice as another user, or change the permissions";
                Some(privileges.unwrap_or_else(|| own.to_owned()))
            }
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory => {
                Some(advice(self.kind).to_owned())
            }
            _ => None,
        };
        Report {
            problems: vec![problem],
            ..Report::new(name.to_owned(), text.to_owned())
        }
    }

    /// Returns the position of the part in its file.
    fn span(&self, file: &File) -> Option<Range<usize>> {
        match &self.part {
            Part::AccessLog => file.log.access.as_ref().map(|typed| typed.span()),
            Part::ErrorLog => file.log.error.as_ref().map(|typed| typed.span()),
            Part::Events => file.admin.events.as_ref().map(|typed| typed.span()),
            Part::BufferFolder => file.buffers.folder.as_ref().map(|typed| typed.span()),
            Part::Folder(path) => folder(file, path),
            Part::Volume(name) => {
                let mut volumes = file.volume.iter();
                let (_, section) = volumes.find(|(own, _)| own.get_ref() == name)?;
                section.path.as_ref().map(|typed| typed.span())
            }
        }
    }
}

/// Returns the position of the first route that serves this folder.
fn folder(file: &File, path: &Path) -> Option<Range<usize>> {
    let sites = file.site.iter().flat_map(|site| &site.get_ref().route);
    let mut routes = sites.chain(&file.route);
    routes.find_map(|route| {
        let typed = route.get_ref().files.as_ref()?;
        let root = typed.get_ref().0.root.as_ref()?;
        let is_it = Path::new(root.get_ref()) == path;
        is_it.then(|| match root.span() {
            span if span.is_empty() => typed.span(),
            span => span,
        })
    })
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)
    }
}

impl std::error::Error for Unusable {}
