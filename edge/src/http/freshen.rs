//! Bringing a stored response's fields up to date by a later response (RFC 9111 3.2).

use super::Fields;
use super::fields::lines_of;
use super::hop;

/// Fields that a 304 never changes: what the stored content is framed and named by, and what says
/// when a response was made for whom.
const KEPT: &[&str] = &[
    "age",
    "content-encoding",
    "content-length",
    "content-md5",
    "content-range",
    "etag",
    "trailer",
];

/// The stored lines with those of `update` in place of all lines of the same names.
pub fn freshen(stored: &[u8], update: &Fields) -> Fields {
    let ending = hop::Ending::of(update);
    let taken = |name: &[u8]| !hop::is_in(KEPT, name) && !ending.covers(name);
    let mut fields = Fields::new();
    for (name, value) in lines_of(stored) {
        let replaced = update.iter().any(|(n, _)| n.eq_ignore_ascii_case(name)) && taken(name);
        if !replaced {
            fields.append_bytes(name, value);
        }
    }
    for (name, value) in update.iter().filter(|(name, _)| taken(name)) {
        fields.append_bytes(name, value);
    }
    fields
}
