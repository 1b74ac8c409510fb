//! Purge requests of operators, and the responses to them.

use serde::{Deserialize, Serialize};

/// The target of a purge as requested. The JSON form is an object with one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purge {
    /// All variants of one URL.
    Url(String),
    /// All URLs with this prefix.
    Prefix(String),
    /// All responses with this tag.
    Tag(String),
    /// Everything, if true.
    All(bool),
}

/// A purge that a cache has accepted and applies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purged {
    /// The cache's name; `None` if the request was sent to the cache itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    /// The purge's number in the cache's sequence of purges. The purge covers fetches that began
    /// before the purge.
    pub sequence: u64,
    /// The target of the purge.
    pub rule: Purge,
    /// Whether responses are marked stale instead of being removed.
    pub soft: bool,
    /// The responses in memory that the purge covers; `None` if they were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched: Option<Matched>,
}

/// The responses in memory that a purge covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matched {
    /// Number of responses.
    pub responses: u64,
    /// Whether there may be more, since not all responses in memory were examined.
    pub or_more: bool,
    /// URLs of some of the responses.
    pub examples: Vec<String>,
    /// Whether the cache has volumes. The purge also covers the responses there, which are not counted.
    #[serde(default)]
    pub has_volumes: bool,
}

/// The response to a purge request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// One entry for each rule and cache.
    pub purged: Vec<Purged>,
}

impl Answer {
    /// Formats the response as one line of JSON.
    pub fn to_json(&self) -> String {
        // Serialisation can't fail: all keys of maps are strings.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_is_json() {
        let purged = |cache: Option<&str>, rule, soft| Purged {
            cache: cache.map(str::to_owned),
            sequence: 12,
            rule,
            soft,
            matched: None,
        };
        let answer = Answer {
            purged: vec![
                purged(Some("c"), Purge::Tag("t\"".to_owned()), false),
                purged(None, Purge::All(true), true),
            ],
        };
        let text = "{\"purged\":[\
            {\"cache\":\"c\",\"sequence\":12,\"rule\":{\"tag\":\"t\\\"\"},\"soft\":false},\
            {\"sequence\":12,\"rule\":{\"all\":true},\"soft\":true}]}\n";
        assert_eq!(answer.to_json(), text);
        assert_eq!(serde_json::from_str::<Answer>(text).expect("JSON"), answer);
    }
}
