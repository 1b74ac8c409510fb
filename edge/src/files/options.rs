//! Options of static files: the `files` section of a route.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::sys::root::Links;

/// The `files` section of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The folder.
    pub root: PathBuf,
    /// A prefix removed from the request's path, such as `/static`.
    pub strip_prefix: String,
    /// Names of index files that are tried in a requested folder, in order.
    pub index: Vec<String>,
    /// Paths tried in order if the requested path names nothing. They are relative to the root, and
    /// `{path}` stands for the requested path.
    pub try_files: Vec<String>,
    /// Targets that symbolic links may have.
    pub symlinks: Links,
    /// Whether names that begin with a dot are served.
    pub hidden: bool,
    /// Content-Type by extension, with precedence over the built-in table.
    pub types: BTreeMap<String, String>,
    /// The charset parameter of text types; `None` for none.
    pub charset: Option<String>,
    /// Time after which a cached path is checked again.
    pub recheck: Duration,
    /// Memory for contents and path entries, bytes.
    pub memory: u64,
    /// Largest file kept in memory, bytes.
    pub max_memory_file: u64,
    /// Largest number of files that the table keeps open.
    pub open_files: u64,
    /// Whether a file with the suffix `.zst`, `.br` or `.gz` is sent to clients that accept that
    /// encoding.
    pub precompressed: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            root: PathBuf::new(),
            strip_prefix: String::new(),
            index: vec!["index.html".to_owned()],
            try_files: Vec::new(),
            symlinks: Links::default(),
            hidden: false,
            types: BTreeMap::new(),
            charset: Some("utf-8".to_owned()),
            recheck: Duration::from_secs(1),
            memory: 64 << 20,
            max_memory_file: 64 << 10,
            open_files: 1000,
            precompressed: false,
        }
    }
}
