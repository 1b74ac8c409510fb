//! Handles `POST /purge`: parses the order, and waits until the purge is durable.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use serde::Deserialize;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::http::purge::{Answer, Purge};
use crate::telemetry::UrlMask;

/// Largest request body, in bytes.
pub(super) const BODY_MAX: usize = 64 << 10;
/// Most tags in one request.
const TAGS_MAX: usize = 256;
/// Most tags of a request that its description names.
const TAGS_DESCRIBED: usize = 3;

/// Longest time that volumes may take to make a purge durable.
pub(super) const LOG_WAIT_MAX: Duration = Duration::from_secs(10);

/// The order of a purge: the responses that it covers, and the caches that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The responses to purge. Each entry becomes a rule.
    pub what: Vec<Purge>,
    /// Whether covered responses become stale instead of being removed.
    pub soft: bool,
    /// Name of the only cache that is purged. `None`: all caches.
    pub cache: Option<String>,
}

/// A purge that is in effect, but perhaps not durable yet.
#[derive(Debug)]
pub struct Purging {
    /// The response to the order, which lists the rules that were made.
    pub answer: Answer,
    /// Receives whether the purge survives a restart. `None` if the cache keeps nothing on disk.
    pub logged: Option<PurgeLogged>,
}

/// Receives whether a purge survives a restart, or the reason why it may not. If the sender is
/// dropped without a message, the purge may not survive.
pub type PurgeLogged = oneshot::Receiver<Result<(), String>>;

impl Purging {
    /// Waits until the purge is durable, at most `within`.
    ///
    /// # Errors
    ///
    /// The purge is in effect, but responses that it covers may be served again after a restart.
    pub(super) async fn outlast(self, within: Duration) -> Result<Answer, Refusal> {
        let Some(logged) = self.logged else {
            return Ok(self.answer);
        };
        let why = match timeout(within, logged).await {
            Ok(Ok(Ok(()))) => return Ok(self.answer),
            Ok(Ok(Err(why))) => why,
            Ok(Err(_)) => "writing the purge to the volumes was interrupted".to_owned(),
            Err(_) => format!("the purge is not on the disk after {} s", within.as_secs()),
        };
        let what = "the purge is in force, but may be undone by a restart";
        Err(Refusal {
            status: 503,
            why: format!("{what}: {why}\n(repeat the purge when the volumes are in use again)"),
        })
    }
}

/// Error: nothing, or not everything, was purged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status of the error response.
    pub status: u16,
    /// The reason, as text for the operator.
    pub why: String,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_REQUEST);
        (status, format!("{}\n", self.why.trim_end())).into_response()
    }
}

/// Body of `POST /purge`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Body {
    url: Option<String>,
    prefix: Option<String>,
    tag: Option<String>,
    tags: Option<Vec<String>>,
    all: Option<bool>,
    #[serde(default)]
    soft: bool,
    cache: Option<String>,
}

impl Order {
    /// Describes the order for the log.
    pub(super) fn describe(&self, mask: &UrlMask) -> String {
        let rules = self.what.iter().take(TAGS_DESCRIBED);
        let rules: Vec<String> = rules.map(|rule| describe(rule, mask)).collect();
        let mut text = rules.join(", ");
        let further = self.what.len() - rules.len();
        if further > 0 {
            text += &format!(" and {further} more");
        }
        if self.soft {
            text += ", soft";
        }
        if let Some(cache) = &self.cache {
            text = format!("{text}, in cache {cache}");
        }
        text
    }

    /// Parses a request's body.
    pub(super) fn parse(body: &[u8]) -> Result<Order, Refusal> {
        let body: Body = serde_json::from_slice(body).map_err(|error| {
            let advice = match error.is_data() {
                true => "",
                false => {
                    "\n(send JSON, as in {\"tag\": \"news\"} or {\"url\": \"http://HOST/PATH\"})"
                }
            };
            Refusal::wrong(format!("{error}{advice}"))
        })?;
        let tags = body.tags.is_some();
        let mut kinds: Vec<Vec<Purge>> = Vec::new();
        kinds.extend(body.url.map(|url| vec![Purge::Url(url)]));
        kinds.extend(body.prefix.map(|prefix| vec![Purge::Prefix(prefix)]));
        kinds.extend(body.tag.map(|tag| vec![Purge::Tag(tag)]));
        kinds.extend(
            body.tags
                .map(|tags| tags.into_iter().map(Purge::Tag).collect()),
        );
        kinds.extend(body.all.map(|all| vec![Purge::All(all)]));
        let what = match (kinds.len(), kinds.pop()) {
            (1, Some(what)) => what,
            (0, _) => {
                return Err(Refusal::wrong(
                    "name what to purge: \"url\", \"prefix\", \"tag\", \"tags\" or \"all\": true",
                ));
            }
            _ => {
                return Err(Refusal::wrong(
                    "only one of \"url\", \"prefix\", \"tag\", \"tags\" and \"all\" at once",
                ));
            }
        };
        if tags && !(1..=TAGS_MAX).contains(&what.len()) {
            return Err(Refusal::wrong(format!(
                "\"tags\" lists 1 to {TAGS_MAX} tags"
            )));
        }
        Ok(Order {
            what,
            soft: body.soft,
            cache: body.cache,
        })
    }
}

/// Describes one rule of a purge.
fn describe(rule: &Purge, mask: &UrlMask) -> String {
    let shown = |text: &str| mask.shown(text.as_bytes(), false);
    match rule {
        Purge::Url(url) => format!("url {}", shown(url)),
        Purge::Prefix(prefix) => format!("prefix {}", shown(prefix)),
        Purge::Tag(tag) => format!("tag {}", shown(tag)),
        Purge::All(_) => "everything".to_owned(),
    }
}

impl Refusal {
    /// Creates the refusal of an invalid request (400).
    fn wrong(why: impl Into<String>) -> Refusal {
        Refusal {
            status: 400,
            why: why.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    async fn outlasted(logged: Option<PurgeLogged>) -> Result<(), (u16, String)> {
        let answer = Answer { purged: Vec::new() };
        let purging = Purging { answer, logged };
        match purging.outlast(SHORT).await {
            Ok(_) => Ok(()),
            Err(refusal) => Err((refusal.status, refusal.why)),
        }
    }

    #[tokio::test]
    async fn a_purge_that_may_not_survive_a_restart_is_an_error() {
        assert_eq!(outlasted(None).await, Ok(()));
        let reported = |result| {
            let (report, logged) = oneshot::channel();
            let _ = report.send(result);
            outlasted(Some(logged))
        };
        assert_eq!(reported(Ok(())).await, Ok(()));
        let (status, why) = reported(Err("no disk".to_owned()))
            .await
            .expect_err("not logged");
        assert_eq!(status, 503);
        assert!(
            why.contains("in force") && why.contains(": no disk\n"),
            "{why}"
        );
        let (report, logged) = oneshot::channel();
        drop(report);
        assert!(outlasted(Some(logged)).await.is_err());
        let (silent, logged) = oneshot::channel();
        let (_, why) = outlasted(Some(logged)).await.expect_err("too slow");
        assert!(why.contains("not on the disk"), "{why}");
        drop(silent);
    }

    fn why(body: &str) -> String {
        let refusal = Order::parse(body.as_bytes()).expect_err(body);
        assert_eq!(refusal.status, 400);
        refusal.why
    }

    #[test]
    fn an_order_names_one_kind_of_thing() {
        let order = |body: &str| Order::parse(body.as_bytes()).expect(body);
        let tag = |tag: &str| Purge::Tag(tag.to_owned());
        assert_eq!(
            order(r#"{"tags": ["a", "b"], "soft": true, "cache": "c"}"#),
            Order {
                what: vec![tag("a"), tag("b")],
                soft: true,
                cache: Some("c".to_owned()),
            }
        );
        assert_eq!(order(r#"{"tag": "a"}"#).what, [tag("a")]);
        assert_eq!(order(r#"{"all": true}"#).what, [Purge::All(true)]);
        let url = Purge::Url("http://a/".to_owned());
        assert_eq!(order(r#"{"url": "http://a/"}"#).what, [url]);
        let prefix = Purge::Prefix("/a/".to_owned());
        assert_eq!(order(r#"{"prefix": "/a/"}"#).what, [prefix]);
    }

    #[test]
    fn an_order_is_described_without_secrets() {
        let described = |body: &str| {
            let order = Order::parse(body.as_bytes()).expect(body);
            order.describe(&UrlMask::default())
        };
        let url = r#"{"url": "http://u:p@a/b?sig=x&c=d", "soft": true, "cache": "main"}"#;
        assert_eq!(
            described(url),
            "url http://***@a/b?sig=***&c=d, soft, in cache main"
        );
        assert_eq!(described(r#"{"tags": ["a", "b"]}"#), "tag a, tag b");
        assert_eq!(
            described(r#"{"tags": ["a", "b", "c", "d", "e"], "soft": true}"#),
            "tag a, tag b, tag c and 2 more, soft"
        );
        assert_eq!(described(r#"{"all": true}"#), "everything");
    }

    #[test]
    fn a_wrong_order_is_refused_with_the_reason() {
        assert!(why("{}").starts_with("name what to purge"));
        assert!(why(r#"{"soft": true}"#).starts_with("name what to purge"));
        assert!(why(r#"{"tag": "a", "all": true}"#).starts_with("only one"));
        assert!(why(r#"{"tags": []}"#).starts_with("\"tags\" lists"));
        let many = vec!["\"a\""; TAGS_MAX + 1].join(",");
        assert!(why(&format!("{{\"tags\": [{many}]}}")).starts_with("\"tags\" lists"));
        assert!(why(r#"{"tga": "a"}"#).contains("unknown field `tga`"));
        assert!(why(r#"{"tag": 1}"#).contains("line 1"));
        assert!(!why(r#"{"tag": 1}"#).contains("send JSON"));
        assert!(why("tag=a").contains("(send JSON, as in "));
        for bad in ["", "x", "[]", "{\"all\": true", "\u{0}"] {
            why(bad);
        }
    }
}
