//! Static files: a folder is served safely, small files from memory and large ones from the page
//! cache.

mod answer;
mod body;
mod load;
mod path;
mod table;
mod types;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::handler::{Answer, Encodings, Fault, Handler, Request, Response};
use crate::http::Method;
use crate::reason::Reason;
use crate::sys::root::{FindError, How, Links, Root};
use crate::sys::{Clock, Random};
use crate::telemetry::FilesNumbers;

use answer::Responder;
use load::{FilePath, ParsedPath, Resolved};
#[cfg(feature = "test-rigs")]
pub use path::{Located, locate};
use table::Table;

/// The `files` section of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The folder.
    pub root: PathBuf,
    /// A prefix removed from the request's path, such as `/static`.
    pub strip: String,
    /// Names of index files that are tried in a requested folder, in order.
    pub index: Vec<String>,
    /// Paths tried in order if the requested path names nothing. They are relative to the root, and
    /// `{path}` stands for the requested path.
    pub fallback: Vec<String>,
    /// Targets that symbolic links may have.
    pub links: Links,
    /// Whether names that begin with a dot are served.
    pub hidden: bool,
    /// Content-Type by extension, with precedence over the built-in table.
    pub types: BTreeMap<String, String>,
    /// The charset parameter of text types; `None` for none.
    pub charset: Option<String>,
    /// Time after which a cached path is checked again.
    pub valid: Duration,
    /// Memory for contents and path entries, bytes.
    pub memory: u64,
    /// Largest file kept in memory, bytes.
    pub small: u64,
    /// Largest number of files that the table keeps open.
    pub open: u64,
    /// Whether a file with the suffix `.zst`, `.br` or `.gz` is sent to clients that accept that
    /// encoding.
    pub precompressed: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            root: PathBuf::new(),
            strip: String::new(),
            index: vec!["index.html".to_owned()],
            fallback: Vec::new(),
            links: Links::default(),
            hidden: false,
            types: BTreeMap::new(),
            charset: Some("utf-8".to_owned()),
            valid: Duration::from_secs(1),
            memory: 64 << 20,
            small: 64 << 10,
            open: 1000,
            precompressed: false,
        }
    }
}

/// Largest number of requests per folder that wait for a lookup by another thread; further requests
/// get 503.
const LOOKUPS_MAX: usize = 256;

/// A folder and the table of its known paths, shared by all workers.
pub struct Shared {
    lookups: AtomicUsize,
    options: Options,
    root: Root,
    table: Table,
    clock: Clock,
}

impl Shared {
    /// Opens the folder.
    ///
    /// # Errors
    /// See `Root::open`.
    pub fn open(options: Options, clock: Clock) -> io::Result<Arc<Shared>> {
        Ok(Arc::new(Shared {
            root: Root::open(&options.root, options.links)?,
            table: Table::new(options.memory, options.open),
            lookups: AtomicUsize::new(0),
            options,
            clock,
        }))
    }

    /// Returns the current numbers of the folder's table, for metrics.
    pub fn numbers(&self) -> FilesNumbers {
        FilesNumbers {
            limit: self.options.memory,
            ..self.table.numbers()
        }
    }

    /// The options of the folder.
    pub fn options(&self) -> &Options {
        &self.options
    }
}

/// Permission for one of at most `LOOKUPS_MAX` lookups by other threads; released when dropped.
struct LookupSlot(Arc<Shared>);

impl LookupSlot {
    fn take(shared: &Arc<Shared>) -> Option<LookupSlot> {
        // Dropping `slot` subtracts one from `lookups` again, also if the limit was exceeded.
        let slot = LookupSlot(shared.clone());
        (shared.lookups.fetch_add(1, Ordering::Relaxed) < LOOKUPS_MAX).then_some(slot)
    }
}

impl Drop for LookupSlot {
    fn drop(&mut self) {
        self.0.lookups.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One worker's handler for a folder.
#[derive(Clone)]
pub struct Files(Rc<Parts>);

struct Parts {
    shared: Arc<Shared>,
    random: Random,
    encodings: Option<Rc<dyn Encodings>>,
}

impl Files {
    /// Creates a handler for `shared`; with `encodings`, content is also served compressed.
    pub fn new(shared: Arc<Shared>, random: Random, encodings: Option<Rc<dyn Encodings>>) -> Files {
        Files(Rc::new(Parts {
            shared,
            random,
            encodings,
        }))
    }

    fn answer(&self, request: &Request, resolved: Resolved) -> Result<Response, Fault> {
        let answering = Responder {
            request: &request.head,
            shared: &self.0.shared,
            random: &self.0.random,
            encodings: self.0.encodings.as_deref(),
        };
        answering.respond(resolved)
    }
}

impl Handler for Files {
    fn handle(&self, request: Request) -> Answer {
        if !matches!(request.head.method, Method::Get | Method::Head) {
            return Answer::Ready(Ok(not_allowed()));
        }
        let shared = &self.0.shared;
        let path = match FilePath::of(request.head.path(), &shared.options) {
            ParsedPath::Path(path) => path,
            ParsedPath::Misspelled(spelling) => {
                let response = answer::moved(
                    &request.head,
                    &spelling,
                    "the path has another normal spelling",
                );
                return Answer::Ready(Ok(response));
            }
            ParsedPath::Nothing => return Answer::Ready(Err(Reason::NotFound.into())),
        };
        match shared.resolve(&path, How::Cached) {
            Err(FindError::NotCached) => {}
            Err(error) => return Answer::Ready(Err(fault_of(&error))),
            Ok(resolved) => return Answer::Ready(self.answer(&request, resolved)),
        }
        let Some(slot) = LookupSlot::take(shared) else {
            return Answer::Ready(Err(Reason::NoRoom.into()));
        };
        let (files, path) = (self.clone(), path.into_owned());
        Answer::later(async move {
            // An aborted request drops `still_wanted`; a lookup that has not started by then is
            // skipped.
            let still_wanted = Arc::new(());
            let is_wanted = Arc::downgrade(&still_wanted);
            let lookup = tokio::task::spawn_blocking(move || match is_wanted.strong_count() {
                0 => Err(FindError::NotCached),
                _ => slot.0.resolve(&path, How::Wait),
            });
            match lookup.await {
                Ok(Ok(resolved)) => files.answer(&request, resolved),
                Ok(Err(error)) => Err(fault_of(&error)),
                Err(_) => Err(Reason::Panic.into()),
            }
        })
    }
}

/// Returns the response to methods other than GET and HEAD (RFC 9110 15.5.6).
fn not_allowed() -> Response {
    let mut response = Response::text(405, "405 only GET and HEAD are allowed for files\n");
    response.fields.append("allow", "GET, HEAD");
    response
}

fn fault_of(trouble: &FindError) -> Fault {
    let cause = match trouble {
        FindError::Absent => Reason::NotFound,
        FindError::Denied => Reason::FileDenied,
        FindError::Exhausted => Reason::NoRoom,
        FindError::NotCached | FindError::Failed => Reason::FileFailed,
    };
    cause.into()
}
