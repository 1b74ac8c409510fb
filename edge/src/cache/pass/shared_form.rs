//! Checks and changes of forwarded requests that are to send the origin the same as a shared fetch.

use crate::cache::context::Context;
use crate::cache::decide;
use crate::cache::lookup::keys;
use crate::handler::Head;
use crate::http::vary::{self, Codings};
use crate::http::{Fields, Method, hop};

/// Whether forwarding a request with these header fields sends the origin the same as a shared
/// fetch for its target, apart from the method.
pub(in crate::cache) fn is_for_all(context: &Context, head: &Head, fields: &Fields) -> bool {
    let rules = &context.rules;
    let own = |name| hop::is_unkeyed(name) && !is_keyed(context, name);
    if fields.contains("cookie") || fields.iter().any(|(name, _)| own(name)) {
        return false;
    }
    let mut get = head.clone();
    (get.method, get.fields) = (Method::Get, fields.clone());
    let admitted = decide::admission::admit(&get, true, rules);
    get.fields.retain(|name, _| !is_keyed(context, name));
    let mut target = String::new();
    keys::shared_target(context, &get, &mut target);
    admitted.is_ok_and(|admitted| !admitted.authorized && !admitted.less)
        && decide::may_take(&get.fields, rules)
        && target == get.target
}

/// Sets Accept-Encoding and Accept-Language to the values that a shared fetch sends, which contain
/// only what distinguishes variants.
pub(in crate::cache) fn level(context: &Context, fields: &mut Fields) {
    let languages = context.rules.normal(None).languages;
    let codings = match context.requests_identity() {
        true => Codings::IDENTITY,
        false => Codings::of(fields),
    };
    fields.set("accept-encoding", codings.value());
    if !languages.is_empty() {
        let preferred = vary::preferred(fields, languages);
        fields.remove("accept-language");
        if let Some(language) = preferred {
            fields.append("accept-language", language);
        }
    }
}

/// Whether keys contain the header with this name.
pub(in crate::cache) fn is_keyed(context: &Context, name: &[u8]) -> bool {
    let mut names = context.rules.key.headers();
    names.any(|keyed| name.eq_ignore_ascii_case(keyed.as_bytes()))
}
