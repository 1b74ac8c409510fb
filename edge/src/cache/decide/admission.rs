//! Admission: whether a request may use the cache, and which of its directives count.

use crate::cache::rules::{Bypass, Rules};
use crate::handler::Head;
use crate::http::cache_control::RequestDirectives;
use crate::http::{CacheStatus, Fields, Fwd, Method, cookies};
use crate::reason::Reason;

/// The properties of an admitted request that matter to the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::cache) struct Admitted {
    /// Whether the request has credentials: a response to it may be private (RFC 9111 3.5).
    pub(in crate::cache) authorized: bool,
    /// Whether the request has a condition or a range, so that the response may be less than the
    /// whole.
    pub(in crate::cache) less: bool,
    /// Whether the request must be answered without the origin (RFC 9111 5.2.1.7).
    pub(in crate::cache) only_if_cached: bool,
    /// The directives of the request that count. `None` if it has none.
    pub(in crate::cache) directives: Option<RequestDirectives>,
}

/// Checks whether a request may be answered through the cache. If not, the error holds the
/// Cache-Status with the reason.
#[inline]
pub(in crate::cache) fn admit(
    head: &Head,
    no_body: bool,
    rules: &Rules,
) -> Result<Admitted, CacheStatus> {
    let because = |reason| Err(CacheStatus::fwd(Fwd::Bypass).because(reason));
    let admitted = match head.method {
        Method::Get => rules.requests.get,
        Method::Head => rules.requests.head,
        _ => false,
    };
    if !admitted {
        return Err(CacheStatus::fwd(Fwd::Method));
    }
    if head.wants_tunnel {
        return because(Reason::Upgrade);
    }
    if !no_body {
        return because(Reason::RequestBody);
    }
    let (mut admitted, directed) = marks(&head.fields);
    if directed {
        let asked = directives(&head.fields, rules);
        if asked.no_store {
            return Err(CacheStatus::fwd(Fwd::Request).because(Reason::NoStore));
        }
        admitted.only_if_cached = asked.only_if_cached;
        admitted.directives = Some(asked);
    }
    if !rules.requests.bypass.is_empty()
        && let Some(reason) = bypassed(head, &rules.requests.bypass)
    {
        return because(reason);
    }
    Ok(admitted)
}

/// Finds the relevant header fields in one pass. The second value says whether any of them may hold
/// directives.
#[inline]
fn marks(fields: &Fields) -> (Admitted, bool) {
    let (mut admitted, mut directed) = (Admitted::default(), false);
    for (name, _) in fields.iter() {
        let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
        match (name.first().map_or(0, |b| b | 0x20), name.len()) {
            (b'i', 3..) => admitted.less |= name[1] | 0x20 == b'f' && name[2] == b'-',
            (b'r', 5) => admitted.less |= is("range"),
            (b'a', 13) => admitted.authorized |= is("authorization"),
            (b'c', 13) => directed |= is("cache-control"),
            (b'p', 6) => directed |= is("pragma"),
            _ => {}
        }
    }
    (admitted, directed)
}

/// The request's Cache-Control directives, without those that don't count. Directives by which the
/// cache may avoid the origin (such as `max-stale`) always count. Directives by which it must ask
/// the origin (such as `no-cache`) count only if the configuration permits it.
fn directives(fields: &Fields, rules: &Rules) -> RequestDirectives {
    let mut asked = RequestDirectives::of(fields);
    if !rules.requests.client_cache_control {
        return RequestDirectives {
            max_stale: asked.max_stale,
            stale_if_error: asked.stale_if_error,
            only_if_cached: asked.only_if_cached,
            no_transform: asked.no_transform,
            ..RequestDirectives::default()
        };
    }
    // Without Cache-Control, `Pragma: no-cache` means the same as `Cache-Control: no-cache` (RFC
    // 9111 5.4).
    if !fields.contains("cache-control") {
        let mut members = fields.members("pragma");
        asked.no_cache |= members.any(|member| member.eq_ignore_ascii_case(b"no-cache"));
    }
    asked
}

/// The reason for which the configuration makes a request bypass the cache, if any.
fn bypassed(head: &Head, bypass: &Bypass) -> Option<Reason> {
    let fields = &head.fields;
    let named = |name: &[u8]| bypass.headers.iter().any(|p| p.matches_field(name));
    if !bypass.headers.is_empty() && fields.iter().any(|(name, _)| named(name)) {
        return Some(Reason::Header);
    }
    let named = |name: &[u8]| bypass.cookies.iter().any(|p| p.matches(name));
    if !bypass.cookies.is_empty() && cookies::all(fields).any(|(name, _)| named(name)) {
        return Some(Reason::Cookie);
    }
    let named = |pair: &str| {
        let name = pair.split('=').next().unwrap_or(pair);
        bypass.query.iter().any(|p| p.matches(name.as_bytes()))
    };
    if bypass.query.is_empty() {
        return None;
    }
    let query = head.query()?;
    query.split('&').any(named).then_some(Reason::Query)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::pattern::Pattern;

    fn get(lines: &[(&str, &str)]) -> Head {
        let mut head = Head::new();
        head.target.push_str("/a?x=1&nocache");
        for (name, value) in lines {
            head.fields.append(name, value);
        }
        head
    }

    fn check(lines: &[(&str, &str)], rules: &Rules) -> Result<Admitted, Option<Reason>> {
        admit(&get(lines), true, rules).map_err(|status| status.detail)
    }

    #[test]
    fn relevant_fields_are_found_in_any_case() {
        let rules = Rules::default();
        assert_eq!(check(&[("accept", "*/*")], &rules), Ok(Admitted::default()));
        for line in ["Range", "if-none-match", "IF-RANGE", "If-Modified-Since"] {
            assert!(
                check(&[(line, "x")], &rules).is_ok_and(|admitted| admitted.less),
                "{line}"
            );
        }
        assert!(check(&[("AUTHORIZATION", "x")], &rules).is_ok_and(|admitted| admitted.authorized));
        assert!(
            check(&[("iff", "x"), ("ranges", "x")], &rules).is_ok_and(|admitted| !admitted.less)
        );
    }

    #[test]
    fn directives_that_cause_fetches_count_only_if_permitted() {
        let mut rules = Rules::default();
        let lines = [(
            "cache-control",
            "no-cache, max-age=0, max-stale=5, only-if-cached",
        )];
        let asked = check(&lines, &rules).expect("admitted").directives;
        let asked = asked.expect("directives");
        assert!(!asked.no_cache && asked.max_age.is_none());
        assert!(asked.only_if_cached && asked.max_stale == Some(5));
        assert!(check(&[("cache-control", "no-store")], &rules).is_ok());
        rules.requests.client_cache_control = true;
        let asked = check(&lines, &rules).expect("admitted").directives;
        assert!(asked.is_some_and(|asked| asked.no_cache && asked.max_age == Some(0)));
        let no_store = check(&[("cache-control", "no-store")], &rules);
        assert_eq!(no_store, Err(Some(Reason::NoStore)));
        let pragma = |lines: &[(&str, &str)]| {
            let asked = check(lines, &rules).expect("admitted").directives;
            asked.is_some_and(|asked| asked.no_cache)
        };
        assert!(pragma(&[("Pragma", "x, no-cache")]));
        assert!(!pragma(&[
            ("Pragma", "no-cache"),
            ("Cache-Control", "max-stale")
        ]));
    }

    #[test]
    fn requests_with_configured_names_bypass_the_cache() {
        let with = |change: fn(&mut Bypass)| {
            let mut rules = Rules::default();
            change(&mut rules.requests.bypass);
            rules
        };
        let cookies = with(|bypass| bypass.cookies.push(Pattern::new("session*")));
        let cookie = |value| check(&[("cookie", value)], &cookies);
        assert_eq!(cookie("a=1; session_id=2"), Err(Some(Reason::Cookie)));
        assert!(cookie("a=session; xsession=1").is_ok());
        let headers = with(|bypass| bypass.headers.push(Pattern::new("x-debug")));
        assert_eq!(
            check(&[("X-Debug", "")], &headers),
            Err(Some(Reason::Header))
        );
        assert!(check(&[("X-Debugger", "")], &headers).is_ok());
        let query = with(|bypass| bypass.query.push(Pattern::new("nocache")));
        assert_eq!(check(&[], &query), Err(Some(Reason::Query)));
        let other = with(|bypass| bypass.query.push(Pattern::new("cache")));
        assert!(check(&[], &other).is_ok());
    }
}
