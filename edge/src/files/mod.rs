//! Static files: a folder served safely, small files from memory and large ones from the page cache.

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
use crate::sys::root::{How, Links, Root, Trouble};
use crate::sys::{Clock, Random};

use answer::Answering;
use load::{Asked, Resolved, Wish};
pub use path::{Located, locate};
pub use table::Held;
use table::Table;

/// `files = "…"` of a route, with what goes with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The folder.
    pub root: PathBuf,
    /// Taken from the beginning of a request's path before it is looked for, as `/static`.
    pub strip: String,
    /// Names that are looked for in a folder that is asked for, in order.
    pub index: Vec<String>,
    /// What is looked for, in order, where a path leads nowhere: paths below the root, in which
    /// `{path}` stands for the one that was asked for.
    pub fallback: Vec<String>,
    /// Where symbolic links may lead.
    pub links: Links,
    /// Whether names that begin with a dot are served.
    pub hidden: bool,
    /// Content-Type by extension, before the built-in table.
    pub types: BTreeMap<String, String>,
    /// The charset that text is said to be in; none: nothing is said.
    pub charset: Option<String>,
    /// After this time it is looked whether what is known of a path is still true.
    pub valid: Duration,
    /// Memory for contents and for what is known of paths, bytes.
    pub memory: u64,
    /// Files up to this size are kept in memory, bytes.
    pub small: u64,
    /// Larger files that are held open.
    pub open: u64,
    /// Whether `.zst`, `.br` and `.gz` beside a file are sent to those who take that coding.
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

/// Requests of a folder that other threads look something up for at one time; more are answered by 503.
const LOOKS: usize = 256;

/// A folder and what is known of it: shared by all workers.
pub struct Shared {
    looks: AtomicUsize,
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
            looks: AtomicUsize::new(0),
            options,
            clock,
        }))
    }

    /// What is held of it now.
    pub fn held(&self) -> Held {
        self.table.held()
    }

    /// What it was opened with.
    pub fn options(&self) -> &Options {
        &self.options
    }
}

/// One of the looks that there is room for.
struct Turn(Arc<Shared>);

impl Turn {
    fn take(shared: &Arc<Shared>) -> Option<Turn> {
        // Dropping it gives back what was taken, also where that was too much.
        let turn = Turn(shared.clone());
        (shared.looks.fetch_add(1, Ordering::Relaxed) < LOOKS).then_some(turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.looks.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One worker's end of a folder.
#[derive(Clone)]
pub struct Files(Rc<Parts>);

struct Parts {
    shared: Arc<Shared>,
    random: Random,
    encodings: Option<Rc<dyn Encodings>>,
}

impl Files {
    /// Serves what is in `shared`; in other codings too, where there are `encodings`.
    pub fn new(shared: Arc<Shared>, random: Random, encodings: Option<Rc<dyn Encodings>>) -> Files {
        Files(Rc::new(Parts {
            shared,
            random,
            encodings,
        }))
    }

    fn answer(&self, request: &Request, resolved: Resolved) -> Result<Response, Fault> {
        let answering = Answering {
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
        let wish = match Wish::of(request.head.path(), &shared.options) {
            Asked::For(wish) => wish,
            Asked::Misspelled(spelling) => {
                let response = answer::moved(&request.head, &spelling, "it is spelled otherwise");
                return Answer::Ready(Ok(response));
            }
            Asked::Nothing => return Answer::Ready(Err(Reason::NotFound.into())),
        };
        match shared.resolve(&wish, How::AtHand) {
            Err(Trouble::NotAtHand) => {}
            Err(trouble) => return Answer::Ready(Err(fault_of(&trouble))),
            Ok(resolved) => return Answer::Ready(self.answer(&request, resolved)),
        }
        let Some(turn) = Turn::take(shared) else {
            return Answer::Ready(Err(Reason::NoRoom.into()));
        };
        let (files, wish) = (self.clone(), wish.into_owned());
        Answer::later(async move {
            // Whoever gives up drops it: a look that has not begun then is not made.
            let wanted = Arc::new(());
            let is_wanted = Arc::downgrade(&wanted);
            let look = tokio::task::spawn_blocking(move || match is_wanted.strong_count() {
                0 => Err(Trouble::NotAtHand),
                _ => turn.0.resolve(&wish, How::Wait),
            });
            match look.await {
                Ok(Ok(resolved)) => files.answer(&request, resolved),
                Ok(Err(trouble)) => Err(fault_of(&trouble)),
                Err(_) => Err(Reason::Panic.into()),
            }
        })
    }
}

/// A request for another method than GET and HEAD (RFC 9110 15.5.6).
fn not_allowed() -> Response {
    let mut response = Response::text(405, "405 files can only be read\n");
    response.fields.append("allow", "GET, HEAD");
    response
}

fn fault_of(trouble: &Trouble) -> Fault {
    let cause = match trouble {
        Trouble::Absent => Reason::NotFound,
        Trouble::Denied => Reason::FileDenied,
        Trouble::Exhausted => Reason::NoRoom,
        Trouble::NotAtHand | Trouble::Failed(_) => Reason::FileFailed,
    };
    cause.into()
}
