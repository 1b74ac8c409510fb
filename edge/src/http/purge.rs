//! Purges in words: what operators ask for, and what they are told.

use serde::{Deserialize, Serialize};

/// What is to be purged, as it was asked for. In JSON an object with one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purge {
    /// All variants of one URL.
    Url(String),
    /// All URLs that begin so.
    Prefix(String),
    /// All responses with this tag.
    Tag(String),
    /// Everything, where true.
    All(bool),
}

/// A purge that is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purged {
    /// The cache's name; none where it was asked itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    /// Its number in that cache's sequence: what was asked of an origin before it is covered.
    pub sequence: u64,
    /// What is covered.
    pub rule: Purge,
    /// Marked stale, not dropped.
    pub soft: bool,
}

/// The answer to a purge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// One for each rule and cache.
    pub purged: Vec<Purged>,
}

impl Answer {
    /// As JSON, in one line.
    pub fn to_json(&self) -> String {
        // Nothing in it can't be written: maps have names as keys.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_json() {
        let purged = |cache: Option<&str>, rule, soft| Purged {
            cache: cache.map(str::to_owned),
            sequence: 12,
            rule,
            soft,
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
