//! Static files: a folder is served safely, small files from memory and large ones from the page
//! cache.

mod answer;
mod body;
mod load;
mod lookup_slots;
mod options;
mod path;
mod shared;
mod table;
mod types;

use std::rc::Rc;
use std::sync::Arc;

use crate::handler::{Answer, Encodings, Fault, Handler, Request, Response};
use crate::http::{ClientId, Method};
use crate::reason::Reason;
use crate::sys::Random;
use crate::sys::root::{FindError, How};

use answer::Responder;
use load::{FilePath, ParsedPath, Resolved};
use lookup_slots::LookupSlot;
pub use options::Options;
#[cfg(feature = "test-rigs")]
pub use path::{Located, locate};
pub use shared::Shared;

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
            Err(error) => return Answer::Ready(Err(shared.fault_of(&error))),
            Ok(resolved) => return Answer::Ready(self.answer(&request, resolved)),
        }
        let Some(slot) = LookupSlot::take(&shared.lookups, ClientId::of(request.peer.client))
        else {
            return Answer::Ready(Err(Reason::NoRoom.into()));
        };
        let (files, path) = (self.clone(), path.into_owned());
        Answer::later(async move {
            // An aborted request drops `still_wanted`; a lookup that has not started by then is
            // skipped.
            let still_wanted = Arc::new(());
            let is_wanted = Arc::downgrade(&still_wanted);
            let shared = files.0.shared.clone();
            let lookup = tokio::task::spawn_blocking(move || {
                let _slot = slot;
                match is_wanted.strong_count() {
                    0 => Err(FindError::NotCached),
                    _ => shared.resolve(&path, How::Wait),
                }
            });
            match lookup.await {
                Ok(Ok(resolved)) => files.answer(&request, resolved),
                Ok(Err(error)) => Err(files.0.shared.fault_of(&error)),
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

impl Shared {
    /// Returns the fault for a file that can't be served, and logs errors of the file system.
    fn fault_of(&self, error: &FindError) -> Fault {
        let reason = match error {
            FindError::Absent => Reason::NotFound,
            FindError::Denied => Reason::FileDenied,
            FindError::Exhausted => Reason::NoRoom,
            FindError::NotCached => Reason::FileFailed,
            FindError::Failed(error) => {
                // The path is left out: clients choose it, and repeated messages are counted.
                tracing::warn!(%error, root = %self.options.root.display(), "a file can't be read");
                Reason::FileFailed
            }
        };
        reason.into()
    }
}
