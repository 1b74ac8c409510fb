//! Purging: translates purges of operators into rules of the store.

pub mod key_rules;
pub mod method;
mod queue;
pub mod stores;

use crate::http::fields::is_field_value;
use crate::http::key::{self, KeyHash, KeyRules, Parts};
use crate::http::purge::{Matched, Purge};
use crate::http::tags;
use crate::http::url::{Start, Url};
use crate::http::{Fields, Scheme, Status};
use crate::store::disk_tier::{DurablePurge, NotDurable};
use crate::store::{self, Full, Rule, Store};

pub use key_rules::KeyRuleHistory;
pub use stores::Stores;

/// Tells the store how to read the keys of caches.
pub struct Keys;

/// The reason why nothing was purged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The purge is malformed.
    Wrong(String),
    /// The store has no room for another rule.
    Full(Full),
}

impl Refusal {
    /// The status of a response with this refusal.
    pub fn status(&self) -> Status {
        match self {
            Refusal::Wrong(_) => 400,
            Refusal::Full(_) => 429,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Wrong(why) => f.write_str(why),
            Refusal::Full(full) => full.fmt(f),
        }
    }
}

/// First characters of key texts and prefixes, by what the text contains.
const URL: char = 'u';
const HOST: char = 'h';
const PATH: char = 'p';
/// First character of a path in a key that contains no host.
const HOSTLESS: char = 'a';

impl store::Names for Keys {
    fn is_sound(&self, head: &store::Head) -> bool {
        // Stored heads are final, are not 304, and have no framing fields.
        let status = (200..=999).contains(&head.status) && head.status != 304;
        let etag = head.etag.as_deref().is_none_or(is_field_value);
        let framing = ["content-length", "transfer-encoding", "connection"];
        let framed = framing.iter().any(|name| head.fields.contains(name));
        status && etag && !framed
    }

    fn resource(&self, primary: u128, text: &[u8]) -> u128 {
        key::resource_with(KeyHash(primary), text).0
    }

    fn texts(&self, text: &[u8], each: &mut dyn FnMut(&[u8])) {
        let Some(parts) = Parts::of(text) else {
            return;
        };
        let mut target = parts.path.to_owned();
        if let Some(query) = parts.query {
            target.push('?');
            target.push_str(query);
        }
        each(format!("{PATH}{target}").as_bytes());
        let Some(host) = parts.authority else {
            return each(format!("{HOSTLESS}{target}").as_bytes());
        };
        each(format!("{HOST}{host}{target}").as_bytes());
        // A key without a scheme stands for both schemes.
        let both = [Scheme::Http, Scheme::Https];
        let is = |scheme: &Scheme| parts.scheme.is_none_or(|its| its == *scheme);
        for scheme in both.into_iter().filter(is) {
            each(format!("{URL}{}://{host}{target}", scheme.as_str()).as_bytes());
        }
    }
}

/// Makes the store's rules for a purge, given the ways in which keys are made.
///
/// # Errors
/// The purge is malformed.
pub fn rules(what: &Purge, keys: &[KeyRules]) -> Result<Vec<Rule>, Refusal> {
    Ok(match what {
        Purge::All(true) => vec![Rule::All],
        Purge::All(false) => {
            return Err(Refusal::Wrong("\"all\" is true, or left out".to_owned()));
        }
        Purge::Tag(tag) if tags::is_tag(tag.as_bytes()) => {
            vec![Rule::Tag(tags::tag_hash(tag.as_bytes()))]
        }
        Purge::Tag(_) => {
            let most = tags::TAG_MAX;
            let why = format!("a tag has 1 to {most} bytes, none of them a space or a comma");
            return Err(Refusal::Wrong(why));
        }
        Purge::Url(url) => {
            let url = Url::parse(url).map_err(Refusal::Wrong)?;
            let query = url.query.as_deref();
            resources(url.scheme, &url.authority, &url.path, query, keys)
        }
        Purge::Prefix(text) => prefixes(&Start::parse(text).map_err(Refusal::Wrong)?, keys)?,
    })
}

/// Converts a purge to the normal form in which it is compared with keys, for display.
pub fn canonical(what: &Purge) -> Purge {
    match what {
        Purge::Url(url) => Url::parse(url).map(|url| Purge::Url(url.to_string())),
        Purge::Prefix(text) => Start::parse(text).map(|start| Purge::Prefix(start.to_string())),
        Purge::Tag(_) | Purge::All(_) => Ok(what.clone()),
    }
    .unwrap_or_else(|_| what.clone())
}

/// Makes one rule for each resource that keys made in these ways have for a URL.
fn resources(
    scheme: Scheme,
    host: &str,
    path: &str,
    query: Option<&str>,
    keys: &[KeyRules],
) -> Vec<Rule> {
    let mut rules = Vec::new();
    for keys in keys {
        let rule = Rule::Resource(keys.resource(scheme, host, path, query).0);
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    rules
}

fn prefixes(start: &Start, keys: &[KeyRules]) -> Result<Vec<Rule>, Refusal> {
    let path = &start.path;
    let text = match (start.scheme, &start.authority) {
        (_, None) => format!("{PATH}{path}"),
        (None, Some(host)) => format!("{HOST}{}{path}", key::normal_host(None, host)),
        (Some(scheme), Some(host)) => {
            let host = key::normal_host(Some(scheme), host);
            format!("{URL}{}://{host}{path}", scheme.as_str())
        }
    };
    if text.len() > store::TEXT_MAX {
        return Err(Refusal::Wrong("this prefix is too long".to_owned()));
    }
    let mut rules = vec![Rule::Prefix(text.into_bytes().into())];
    // If keys leave out the host, any stored response may be this host's.
    if start.authority.is_some() && keys.iter().any(is_hostless) {
        rules.push(Rule::Prefix(
            format!("{HOSTLESS}{path}").into_bytes().into(),
        ));
    }
    Ok(rules)
}

fn is_hostless(keys: &KeyRules) -> bool {
    let key = keys.key(Scheme::Http, "a", "/", None, &Fields::new());
    key.parts().authority.is_none()
}

/// A purge that is in force.
#[derive(Default)]
pub struct Enforced {
    /// The sequence number of the last rule.
    pub sequence: u64,
    /// The purges to log on volumes, so that they survive a restart; empty without volumes.
    pub durable: Vec<DurablePurge>,
}

/// Purges responses from a cache. The purge is in force when this returns. Before it is
/// acknowledged it must be logged.
///
/// # Errors
/// The purge is malformed, or one of the stores has too many rules. In the latter case the purge is
/// in force in the other stores.
pub fn purge(stores: &Stores, what: &Purge, soft: bool, now_ms: u64) -> Result<Enforced, Refusal> {
    purge_by(stores, soft, now_ms, |key_rules| {
        rules(what, &key_rules.all())
    })
}

/// Applies to each store the purge rules that `rules` returns for the store's key rules, present
/// and earlier.
fn purge_by(
    stores: &Stores,
    soft: bool,
    now_ms: u64,
    rules: impl Fn(&KeyRuleHistory) -> Result<Vec<Rule>, Refusal>,
) -> Result<Enforced, Refusal> {
    let all = stores.each(|(store, key_rules)| {
        enforce(store, &rules(key_rules)?, soft, now_ms).map_err(Refusal::Full)
    });
    let all: Vec<Enforced> = all.into_iter().collect::<Result<_, _>>()?;
    Ok(first_to_log(all))
}

/// The result of the newest store, with the purges to log of the first store that has volumes.
fn first_to_log(all: Vec<Enforced>) -> Enforced {
    let sequence = all.first().map_or(0, |newest| newest.sequence);
    let mut durable = all.into_iter().map(|enforced| enforced.durable);
    Enforced {
        sequence,
        durable: durable.find(|rules| !rules.is_empty()).unwrap_or_default(),
    }
}

/// Most examples of matched responses.
const EXAMPLES_MAX: usize = 3;

/// Counts the responses in the memory of a store that a purge covers. Examines at most `most` ids of
/// the eviction policy.
///
/// # Errors
/// The purge is malformed.
pub fn matched(
    store: &Store,
    key_rules: &KeyRuleHistory,
    what: &Purge,
    most: usize,
) -> Result<Matched, Refusal> {
    let matches = store.matches(&rules(what, &key_rules.all())?, most, EXAMPLES_MAX);
    let url = |key: &Vec<u8>| Some(key::Key::of(key)?.to_string());
    Ok(Matched {
        responses: matches.objects,
        or_more: !matches.is_complete,
        examples: matches.examples.iter().filter_map(url).collect(),
        has_volumes: store.volumes().is_some(),
    })
}

fn enforce(store: &Store, rules: &[Rule], soft: bool, now_ms: u64) -> Result<Enforced, Full> {
    let mut enforced = Enforced::default();
    for rule in rules {
        let number = store.purge(rule, soft, now_ms)?;
        let durable = store.durable_purge(rule, soft.then_some(now_ms), number);
        enforced.durable.extend(durable);
        enforced.sequence = number;
    }
    Ok(enforced)
}

impl Enforced {
    /// Logs the purges on the volumes. Blocks on disks.
    ///
    /// # Errors
    /// A restart may undo some of the purge.
    pub fn log(&self) -> Result<(), NotDurable> {
        self.durable.iter().try_for_each(DurablePurge::log)
    }
}

#[cfg(test)]
mod tests {
    use super::key_rules::REMEMBERED_RULES_MAX;
    use super::*;
    use crate::http::pattern::Pattern;
    use crate::store::Names;

    fn covers(prefix: &str, keys: &KeyRules, url: &str) -> bool {
        let prefixes = rules(
            &Purge::Prefix(prefix.to_owned()),
            std::slice::from_ref(keys),
        );
        let url = Url::parse(url).expect("a URL");
        let query = url.query.as_deref();
        let key = keys.key(url.scheme, &url.authority, &url.path, query, &Fields::new());
        let mut found = false;
        Keys.texts(key.text(), &mut |text| {
            found |= prefixes
                .iter()
                .flatten()
                .any(|rule| matches!(rule, Rule::Prefix(prefix) if text.starts_with(prefix)));
        });
        found
    }

    #[test]
    fn prefixes_cover_urls_that_begin_with_them() {
        let plain = KeyRules::default();
        for (prefix, url, covered) in [
            ("http://a/b/", "http://a/b/c", true),
            ("http://a/b/", "http://a/b/", true),
            ("http://a/b", "http://a/bc?d", true),
            ("http://a/b/", "http://a/b", false),
            ("http://a/b/", "https://a/b/c", false),
            ("//a/b/", "https://a/b/c", true),
            ("//a", "https://a/b/c", true),
            ("//a", "https://ab/", false),
            ("//a:80", "http://a/b", true),
            ("http://A:80", "http://a/b", true),
            ("/b/", "https://x/b/c", true),
            ("/", "https://x:8/b/c", true),
            ("/b?c=", "http://a/b?c=1", true),
            ("//a/", "http://x//a/b", false),
            ("http://a/%62", "http://a/b", true),
        ] {
            assert_eq!(covers(prefix, &plain, url), covered, "{prefix} {url}");
        }
    }

    #[test]
    fn prefixes_cover_any_value_of_parts_that_keys_leave_out() {
        let hostless = KeyRules::parse("{scheme}{path}").expect("a template");
        assert!(covers("http://a/b/", &hostless, "http://x/b/c"));
        assert!(covers("/b/", &hostless, "http://x/b/c"));
        assert!(!covers("/c/", &hostless, "http://x/b/c"));
        let schemeless = KeyRules::parse("{host}{path}").expect("a template");
        assert!(covers("https://a/b/", &schemeless, "http://a/b/c"));
        assert!(covers("http://a/b/", &schemeless, "https://a/b/c"));
    }

    #[test]
    fn a_url_covers_all_keys_that_differ_only_in_header_fields() {
        let template = "{scheme}{host}{path}{query}{header:X-A}";
        let keys = KeyRules::parse(template).expect("a template");
        let url = Purge::Url("http://a/b?c".to_owned());
        let expected = rules(&url, std::slice::from_ref(&keys)).expect("a URL");
        for value in ["1", "2"] {
            let mut fields = Fields::new();
            fields.append("x-a", value);
            let key = keys.key(Scheme::Http, "a", "/b", Some("c"), &fields);
            let resource = Keys.resource(key.hash().0, key.text());
            assert_eq!(expected, [Rule::Resource(resource)]);
        }
        let plain = key::Key::new(Scheme::Http, "a", "/b", Some("c"));
        assert_eq!(Keys.resource(plain.hash().0, plain.text()), plain.hash().0);
        let of = |purge: Purge| rules(&purge, &[KeyRules::default()]);
        assert_eq!(of(url).expect("a URL"), [Rule::Resource(plain.hash().0)]);
        assert!(of(Purge::Url("a".to_owned())).is_err());
        assert!(of(Purge::Tag("a b".to_owned())).is_err());
        assert!(of(Purge::All(false)).is_err());
        assert!(of(Purge::Prefix("/a/..".to_owned())).is_err());
        let long = Purge::Prefix(format!("/{}", "x".repeat(store::TEXT_MAX)));
        assert_eq!(of(long).expect_err("too long").status(), 400);
    }

    fn ignoring(parameter: &str) -> KeyRules {
        let mut rules = KeyRules::parse("{scheme}{host}{path}{query}").expect("a template");
        rules.ignore.push(Pattern::new(parameter));
        rules
    }

    #[test]
    fn ways_no_longer_in_use_are_remembered() {
        let key_rules = KeyRuleHistory::default();
        assert_eq!(key_rules.all(), [KeyRules::default()]);
        let (a, b) = (ignoring("a"), ignoring("b"));
        key_rules.take_up([&a, &a].into_iter());
        key_rules.take_up([&b].into_iter());
        key_rules.take_up([].into_iter());
        assert_eq!(key_rules.all(), [a.clone(), b.clone()]);
        // Header fields in a key make no difference between ways.
        let template = "{scheme}{host}{path}{query}{header:X-A}";
        let mut more = KeyRules::parse(template).expect("a template");
        more.ignore.clone_from(&a.ignore);
        key_rules.take_up([&more].into_iter());
        assert_eq!(key_rules.all(), [b, a]);
        let url = Purge::Url("http://h/?a&b".to_owned());
        assert_eq!(rules(&url, &key_rules.all()).expect("a URL").len(), 2);
        let same = Purge::Url("http://h/?c".to_owned());
        assert_eq!(rules(&same, &key_rules.all()).expect("a URL").len(), 1);
    }

    #[test]
    fn the_number_of_ways_is_bounded_and_ways_in_use_stay() {
        let key_rules = KeyRuleHistory::default();
        let many: Vec<_> = (0..REMEMBERED_RULES_MAX + 2)
            .map(|n| ignoring(&n.to_string()))
            .collect();
        for rules in &many[..REMEMBERED_RULES_MAX] {
            assert_eq!(key_rules.take_up([rules].into_iter()), 0);
        }
        // The oldest way is in use again, so the next oldest is forgotten.
        assert_eq!(
            key_rules.take_up([&many[0], &many[REMEMBERED_RULES_MAX]].into_iter()),
            1
        );
        let all = key_rules.all();
        assert!(
            all.len() == REMEMBERED_RULES_MAX && all.contains(&many[0]) && !all.contains(&many[1])
        );
        assert_eq!(key_rules.take_up(many.iter()), 0);
        assert_eq!(key_rules.all(), many);
        assert_eq!(key_rules.take_up([&many[5]].into_iter()), 2);
        assert_eq!(key_rules.all().len(), REMEMBERED_RULES_MAX);
    }
}
