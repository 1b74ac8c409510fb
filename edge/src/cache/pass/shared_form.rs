//! Checks and changes of forwarded requests that are to send the origin the same as a shared fetch.

use crate::cache::context::Context;
use crate::cache::decide::{self, shared_request};
use crate::handler::Head;
use crate::http::vary::{self, Codings};
use crate::http::{Fields, Method, hop};

/// Whether forwarding a request with these header fields sends the origin the same as a shared
/// fetch for its target, apart from the method.
pub(in crate::cache) fn is_for_all(context: &Context, head: &Head, fields: &Fields) -> bool {
    let rules = &context.rules;
    let own = |name| hop::is_unkeyed(name) && !is_named(context, name);
    if fields.contains("cookie") || fields.iter().any(|(name, _)| own(name)) {
        return false;
    }
    let mut get = head.clone();
    (get.method, get.fields) = (Method::Get, fields.clone());
    let admitted = decide::admission::admit(&get, true, rules);
    get.fields.retain(|name, _| !is_named(context, name));
    let mut target = String::new();
    shared_request::target(&get, &rules.key, &mut target);
    admitted.is_ok_and(|admitted| !admitted.authorized && !admitted.less)
        && shared_request::may_take(&get.fields, rules)
        && target == get.target
}

/// Sets User-Agent and the headers of content negotiation to the values that a shared fetch sends,
/// which contain only what distinguishes variants.
pub(in crate::cache) fn level(context: &Context, fields: &mut Fields) {
    let normal = context.rules.normal(None);
    shared_request::level_agent(&context.rules, fields);
    let codings = match context.requests_identity() {
        true => Codings::IDENTITY,
        false => Codings::of(fields),
    };
    fields.set("accept-encoding", codings.value());
    for name in ["accept", "accept-language"] {
        let value = vary::normal_value(fields, name, normal);
        fields.remove(name);
        if let Some(value) = value {
            fields.append_bytes(name.as_bytes(), &value);
        }
    }
}

/// Whether shared fetches send the header with this name whatever it says: keys contain it, or the
/// route sets it to a constant.
pub(in crate::cache) fn is_named(context: &Context, name: &[u8]) -> bool {
    let rules = &context.rules;
    let constant = rules.constant_headers.iter().map(|name| &**name);
    let mut names = rules.key.headers().chain(constant);
    names.any(|named| name.eq_ignore_ascii_case(named.as_bytes()))
}
