//! Recalls objects: if an object is not in memory but on a volume, its head is read before the
//! origin is asked.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use super::background;
use crate::cache::context::Context;
use crate::cache::decide::admission::Admitted;
use crate::cache::lookup::{self, Freshness, Lookup, keys};
use crate::handler::Request;
use crate::http::Fwd;
use crate::http::key::KeyHash;
use crate::store::{Object, Phase};

/// Number of times that a request may wait for a head to be read. Each read can add Vary names or a
/// variant to the table, by which another head is found.
const RECALLS_MAX: usize = 4;

/// Reads the heads that volumes have for a request into the table, and returns the lookup after
/// that.
pub(in crate::cache) async fn recalled(
    context: &Rc<Context>,
    request: &Request,
    admitted: &Admitted,
    key: KeyHash,
    mut looked: Lookup,
) -> Lookup {
    for _ in 0..RECALLS_MAX {
        let object = match looked {
            Lookup::Recalled(object) => object,
            Lookup::Missing { on_disk: true, .. } => {
                match recall(context, request, admitted, key) {
                    Lookup::Recalled(object) => object,
                    other => return other,
                }
            }
            other => return other,
        };
        looked = look_up_again(context, request, admitted, key, &object).await;
        if matches!(object.phase(), Phase::Failed(_)) {
            break;
        }
    }
    looked
}

/// Waits until the read for the placeholder `object` has ended, and looks the request up again.
pub(in crate::cache) async fn look_up_again(
    context: &Rc<Context>,
    request: &Request,
    admitted: &Admitted,
    key: KeyHash,
    object: &Arc<Object>,
) -> Lookup {
    let mut reader = object.reader(0);
    poll_fn(|cx| reader.poll_opening(false, cx).map(|_| ())).await;
    let looked = lookup::look_up(
        context,
        request,
        admitted,
        key,
        context.worker.clock.unix_ms(),
        None,
    );
    if let Lookup::Stored(found) = &looked
        && let Freshness::Stale {
            revalidate: true, ..
        } = found.freshness
    {
        background::revalidate_in_background(context, request, found);
    }
    looked
}

/// Begins to read the head that a volume has for this request, unless another request does that
/// already. Returns `Missing` if the read can't begin.
fn recall(context: &Rc<Context>, request: &Request, admitted: &Admitted, key: KeyHash) -> Lookup {
    let store = &context.store;
    let missing = Lookup::Missing {
        on_disk: false,
        fwd: Fwd::Miss,
    };
    let Some(spare) = store.create(keys::key_text(&context.rules.key, request).text()) else {
        return missing;
    };
    spare.mark_recall();
    let now_ms = context.worker.clock.unix_ms();
    let (object, table_key) =
        match lookup::look_up(context, request, admitted, key, now_ms, Some(spare)) {
            Lookup::New(joined) => (joined.object, joined.table_key),
            other => return other,
        };
    match store.recall(&object, table_key, context.worker.clock.monotonic_us()) {
        Some(recall) => {
            tokio::task::spawn_local(recall.run());
            Lookup::Recalled(object)
        }
        None => {
            store.give_up_recall(table_key, &object);
            missing
        }
    }
}
