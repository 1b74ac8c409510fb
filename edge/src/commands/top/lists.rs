//! The lists of `sluice top` that the server keeps only if it observes traffic: busy routes, and URLs.

use serde::Serialize;
use serde_json::Value;

use super::reading::long_text;
use crate::commands::status::values::items;

/// Most routes or URLs that are shown.
pub const LIST_MAX: usize = 50;
/// The series of routes that are shown, as in the query of `GET /history`. The first one gives the order.
pub const ROUTE_SERIES: &str = "requests,responses_5xx,hits,validated,collapsed,misses,passes,body_bytes,upstream_bytes,request_duration_p99";

/// The lists; absent if the server does not have them.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// The routes with the most requests.
    pub routes: Option<Vec<Route>>,
    /// The URLs with the most traffic.
    pub urls: Option<Vec<Url>>,
}

/// One route. Rates are means over the last minute.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Route {
    /// Name of the route.
    pub route: String,
    /// Requests per second.
    pub requests_per_s: Option<f64>,
    /// Responses with a status of 5xx per second.
    pub responses_5xx_per_s: Option<f64>,
    /// Share of the requests that were served from stored bytes.
    pub hit_ratio: Option<f64>,
    /// Body bytes sent to clients per second.
    pub body_bytes_per_s: Option<f64>,
    /// Body bytes received from origins per second.
    pub upstream_bytes_per_s: Option<f64>,
    /// 99th percentile of the request durations.
    pub p99_us: Option<u64>,
}

/// One URL among those with the most traffic.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Url {
    /// The URL, with secrets masked by the server.
    pub url: String,
    /// Requests in the last minutes.
    pub requests: u64,
    /// Misses among them.
    pub misses: u64,
    /// Body bytes sent.
    pub bytes: u64,
    /// Mean latency.
    pub latency_us: Option<u64>,
}

/// Returns a number that is finite and not negative.
fn known(value: &Value) -> Option<f64> {
    value
        .as_f64()
        .filter(|number| *number >= 0.0 && number.is_finite())
}

/// Parses the answer of `GET /history` about all routes.
pub fn routes(history: &Value) -> Vec<Route> {
    let row = |member: &Value| {
        let requests = known(&member["requests"]);
        Route {
            route: long_text(&member["member"]),
            requests_per_s: requests,
            responses_5xx_per_s: known(&member["responses_5xx"]),
            hit_ratio: hit_ratio(member),
            body_bytes_per_s: known(&member["body_bytes"]),
            upstream_bytes_per_s: known(&member["upstream_bytes"]),
            p99_us: known(&member["request_duration_p99"]).map(|s| (s * 1e6) as u64),
        }
    };
    items(&history["members"]).take(LIST_MAX).map(row).collect()
}

/// Returns the share of hits of the requests to the cache. `None`: there were none.
fn hit_ratio(member: &Value) -> Option<f64> {
    let sum =
        |names: &[&str]| -> f64 { names.iter().filter_map(|name| known(&member[name])).sum() };
    let hits = sum(&["hits", "validated"]);
    let all = hits + sum(&["collapsed", "misses", "passes"]);
    (all > 0.0).then(|| hits / all)
}

/// Parses the answer of `GET /top`.
pub fn urls(top: &Value) -> Vec<Url> {
    // Counts of URLs are estimates, whose fractions say nothing.
    let whole = |value: &Value| known(value).unwrap_or(0.0) as u64;
    let row = |url: &Value| Url {
        url: long_text(&url["url"]),
        requests: whole(&url["requests"]),
        misses: whole(&url["misses"]),
        bytes: whole(&url["bytes"]),
        latency_us: known(&url["latency_ms"]).map(|ms| (ms * 1e3) as u64),
    };
    items(&top["urls"]).take(LIST_MAX).map(row).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn urls_are_escaped_and_bounded() {
        let one =
            json!({ "url": "http://a/\u{1b}[2J", "requests": 3.7, "bytes": 9, "latency_ms": 1.5 });
        let shown = urls(&json!({ "urls": vec![one; 2 * LIST_MAX] }));
        assert_eq!(shown.len(), LIST_MAX);
        assert_eq!(shown[0].url, "http://a/\\u{1b}[2J");
        assert_eq!((shown[0].requests, shown[0].latency_us), (3, Some(1500)));
        assert!(urls(&json!(null)).is_empty());
    }

    #[test]
    fn routes_have_shares_and_may_have_unknown_values() {
        let history = json!({ "members": [
            { "member": "a.example /v\u{7}", "requests": 10.0, "hits": 6.0, "validated": 2.0, "misses": 2.0, "request_duration_p99": 0.25 },
            { "member": "b.example /", "requests": 0.0, "hits": null },
        ] });
        let shown = routes(&history);
        assert_eq!(shown[0].route, "a.example /v\\u{7}");
        assert_eq!(
            (shown[0].hit_ratio, shown[0].p99_us),
            (Some(0.8), Some(250_000))
        );
        assert_eq!(
            (shown[1].hit_ratio, shown[1].body_bytes_per_s),
            (None, None)
        );
        assert!(routes(&json!({ "members": 3 })).is_empty());
    }
}
