//! Stored content in other codings: what the cache gives to the encoders and takes from them.

use std::sync::{Arc, Weak};
use std::task::{self, Poll, Waker};

use bytes::Bytes;

use crate::cache::context::Context;
use crate::cache::decide::admission::Admitted;
use crate::fill::OPEN;
use crate::handler::{Choice, Get, Head as RequestHead, Identity};
use crate::http::coding::Accepted;
use crate::store::{Head, Next, Object, Phase, TableKey};

/// Chooses the form in which an object's content is served: unencoded, or in a coding that was made
/// from it.
#[inline]
pub(in crate::cache) fn choose(
    context: &Context,
    request: &RequestHead,
    admitted: &Admitted,
    (object, head): (&Arc<Object>, &Head),
    table_key: TableKey,
) -> Choice {
    let Some(encodings) = context
        .origin
        .encodings
        .as_deref()
        .filter(|_| head.status == 200)
    else {
        return Choice::Identity;
    };
    // A client can forbid transformations (RFC 9111 5.2.1.6).
    let accepted = match admitted.directives.is_some_and(|asked| asked.no_transform) {
        true => Accepted::default(),
        false => Accepted::of(&request.fields),
    };
    let content = Identity {
        id: content_id(object, head, table_key),
        length: object.content_length(head),
        fields: &head.fields,
        get: &|| getting(object),
    };
    encodings.choose(&accepted, &request.fields, &content)
}

/// Has the encodings made that clients wanted while the object was incomplete. Called after a flight
/// has added its last byte to the object. Does nothing if other bytes are missing.
pub(in crate::cache) fn complete(context: &Context, object: &Arc<Object>, table_key: TableKey) {
    let encodings = context.origin.encodings.as_deref();
    let (Some(encodings), Phase::Open(head)) = (encodings, object.phase()) else {
        return;
    };
    if head.status == 200 && object.covers(0..OPEN) {
        encodings.complete(&Identity {
            id: content_id(object, &head, table_key),
            length: object.content_length(&head),
            fields: &head.fields,
            get: &|| getting(object),
        });
    }
}

/// The id of an object's content. Two fetches never have the same `born_seq`, so content of another
/// version, or stored before a purge, has another id. A head that the origin confirmed belongs to
/// the same content.
#[inline]
fn content_id(object: &Object, head: &Head, table_key: TableKey) -> u128 {
    // Variant and generation are truncated hashes, or 0.
    let named = table_key.primary ^ table_key.variant.rotate_left(64);
    named ^ (u128::from(head.generation) << 64) ^ u128::from(object.born_seq)
}

/// Makes a function that reads all of an object's content, if all of it is in memory now. Until it
/// is called, the function does not keep the object in memory.
fn getting(object: &Arc<Object>) -> Option<Get> {
    if object.length().is_none() || !object.covers(0..OPEN) {
        return None;
    }
    let object: Weak<Object> = Arc::downgrade(object);
    Some(Box::new(move || all(&object.upgrade()?)))
}

/// Reads all of the content. `None` if some of it is no longer in memory.
fn all(object: &Arc<Object>) -> Option<Bytes> {
    if let Some(whole) = object.whole() {
        return Some(whole);
    }
    let mut content = Vec::with_capacity(usize::try_from(object.length()?).ok()?);
    let mut reader = object.reader(0);
    let mut cx = task::Context::from_waker(Waker::noop());
    loop {
        match reader.poll_next(&mut cx) {
            Poll::Ready(Next::Bytes(bytes)) => content.extend_from_slice(&bytes),
            Poll::Ready(Next::End) => return Some(content.into()),
            Poll::Ready(Next::Missing) | Poll::Pending => return None,
        }
    }
}
