//! The section of the keepalive experiment.

use serde_json::Value;

use super::super::page::{Cell, Table, escape, measured};
use super::super::svg::{Bar, Group, Line};
use super::super::values::{digits, list, milliseconds, number, text, time, with_unit};
use super::charts::{Dimension, Kind, article, bar, bars, lines};
use super::{Section, figures, generic, is_sluice, wan};
use crate::spread::Spread;

pub(super) const SECTION: Section = Section {
    name: "keepalive",
    title: "Keepalive connections to a far server",
    question: "How much do reused connections to a far server save, and which settings reuse them?",
    method: "A proxy without a cache sends requests over an emulated link to a server far away. Five combinations of \
             settings (A to E) are measured with an idle server, and two (a connection for each request, and reused ones) \
             with a loaded one. Only E, and the second one of the loaded server, reuse connections. A proxy that keeps no \
             idle connections closes each one after its response. Sluice then says so in its requests (Connection: close), \
             nginx only in A and with the loaded server.",
    article: "nginx in Europe, a server on the US west coast under heavy load: 370 requests per minute with a connection for \
              each request, 1731 with reused ones, 4.7 times as many; the time to connect fell to 0.",
    summary,
    body,
    tables: |data| vec![beside_the_article(data), times(data)],
};

/// The article's requests per minute with a loaded server: closed, reused.
const ARTICLE: (f64, f64) = (370.0, 1731.0);
/// Names of the two combinations with a loaded server.
const CLOSED: &str = "loaded, close";
const REUSED: &str = "loaded, keepalive";

/// Returns a description of a combination.
fn words(case: &str) -> &str {
    match case {
        "A" => "A: both close, and requests say so",
        "B" => "B: proxy and server close",
        "C" => "C: the proxy closes",
        "D" => "D: the server closes",
        "E" => "E: connections reused",
        CLOSED => "Loaded server: a connection each",
        REUSED => "Loaded server: connections reused",
        other => other,
    }
}

fn of<'a>(data: &'a Value, proxy: &'a str, case: &'a str) -> impl Iterator<Item = &'a Value> {
    list(data, "measurements")
        .filter(move |one| text(one, "proxy") == Some(proxy) && text(one, "case") == Some(case))
}

/// Returns the requests per minute of all rounds.
fn per_minute(data: &Value, proxy: &str, case: &str) -> Option<Spread> {
    let rate =
        |one: &Value| Some(number(one, "requests")? * 60.0 / number(one, "seconds")?.max(1e-9));
    Spread::of(of(data, proxy, case).filter_map(rate).collect())
}

fn factor(data: &Value, proxy: &str, from: &str, to: &str) -> Option<f64> {
    let (from, to) = (per_minute(data, proxy, from)?, per_minute(data, proxy, to)?);
    Some(to.median / from.median.max(1e-9))
}

fn names<'a>(data: &'a Value, field: &str) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for name in list(data, "measurements").filter_map(|one| text(one, field)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the factors of all proxies with a loaded server.
pub(super) fn factors(data: &Value) -> Vec<(String, String)> {
    let factor = |proxy: &str| {
        let factor = factor(data, proxy, CLOSED, REUSED)?;
        Some((proxy.to_owned(), format!("{} ×", digits(factor))))
    };
    names(data, "proxy")
        .into_iter()
        .filter_map(factor)
        .collect()
}

fn summary(data: &Value) -> Vec<String> {
    let sentence = |proxy: &str| {
        let factor = factor(data, proxy, CLOSED, REUSED)?;
        Some(format!(
            "Over a long-distance link to a loaded server, {} served {} times as many requests with reused connections \
             (in the article nginx 4.7 times).",
            escape(proxy),
            measured(&digits(factor))
        ))
    };
    let factors = names(data, "proxy").into_iter().filter_map(sentence);
    let is_fallback = data.pointer("/link/fallback").and_then(Value::as_bool) == Some(true);
    factors.chain(is_fallback.then(wan::fallback)).collect()
}

fn body(data: &Value) -> String {
    if list(data, "measurements").next().is_none() {
        return generic::body(data);
    }
    let mut html = beside_the_article(data).render();
    html.push_str(&chart(data));
    html.push_str(&times(data).render());
    html.push_str(&over_time(data));
    html.push_str(&figures::notes(data));
    html
}

fn beside_the_article(data: &Value) -> Table {
    let proxies = names(data, "proxy");
    let here: Vec<String> = proxies
        .iter()
        .map(|proxy| format!("{proxy} here"))
        .collect();
    let titles = ["requests per minute", "article, nginx"].into_iter();
    let titles: Vec<&str> = titles.chain(here.iter().map(String::as_str)).collect();
    let mut table = Table::new("Beside the article, with a loaded server", &titles);
    let (closed, reused) = ARTICLE;
    for (what, case, article) in [
        ("a connection for each request", CLOSED, closed),
        ("reused connections", REUSED, reused),
    ] {
        let cells = proxies
            .iter()
            .map(|proxy| rate_cell(per_minute(data, proxy, case)));
        table.row(
            what,
            [Cell::article(digits(article))].into_iter().chain(cells),
        );
    }
    let cells = proxies
        .iter()
        .map(|proxy| Cell::measured(with_unit(factor(data, proxy, CLOSED, REUSED), "×")));
    let article = Cell::article(format!("{:.1} ×", reused / closed));
    table.row("factor", [article].into_iter().chain(cells));
    let cells = proxies
        .iter()
        .map(|proxy| Cell::measured(with_unit(factor(data, proxy, "A", "E"), "×")));
    table.row(
        "factor with an idle server (E over A)",
        [Cell::text("")].into_iter().chain(cells),
    );
    table
}

/// Whether the proxy's requests had `Connection: close`. Earlier records have the setting of the combination, which Sluice
/// does not have: its requests close whenever it keeps no idle connections.
fn closes_requests(one: &Value) -> Option<bool> {
    let flag = |name: &str| one.get(name).and_then(Value::as_bool);
    match text(one, "proxy").is_some_and(is_sluice) {
        true => flag("upstream_keepalive").map(|keeps| !keeps),
        false => flag("close_requests"),
    }
}

fn rate_cell(spread: Option<Spread>) -> Cell {
    Cell::measured(spread.map_or_else(|| with_unit(None, ""), |spread| spread.show(digits)))
}

fn chart(data: &Value) -> String {
    let per_minute_of = |proxy: &str, case: &str| {
        let spread = per_minute(data, proxy, case);
        Bar {
            spread: spread
                .as_ref()
                .filter(|spread| spread.rounds.len() > 1)
                .map(|spread| (spread.low, spread.high)),
            ..bar(proxy, spread.map(|spread| spread.median), show_rate)
        }
    };
    let group = |case: &&str| {
        let known = match *case {
            CLOSED => Some(ARTICLE.0),
            REUSED => Some(ARTICLE.1),
            _ => None,
        };
        let known = known.map(|rate| article("article, nginx", rate, show_rate));
        let here = names(data, "proxy")
            .into_iter()
            .map(|proxy| per_minute_of(proxy, case));
        Group {
            name: words(case).to_owned(),
            bars: known.into_iter().chain(here).collect(),
        }
    };
    let groups: Vec<Group> = names(data, "case").iter().map(group).collect();
    bars("Requests per minute by combination", &groups, Kind::Linear)
}

fn show_rate(rate: f64) -> String {
    format!("{}/min", digits(rate))
}

fn times(data: &Value) -> Table {
    let has_rounds = number(data, "rounds").is_some_and(|rounds| rounds > 1.0);
    let mut titles = vec!["combination"];
    titles.extend(has_rounds.then_some("round"));
    titles.extend([
        "proxy",
        "keepalive in the proxy",
        "requests",
        "server",
        "opened",
        "reused",
        "connect, median",
        "95 %",
        "head, median",
        "response, median",
        "request, 95 %",
        "failed",
    ]);
    let mut table = Table::new("Settings, connections and times", &titles);
    let mut seen = Vec::new();
    for one in list(data, "measurements") {
        // Each round measures each proxy once in each combination.
        let combination = (text(one, "proxy"), text(one, "case"));
        seen.push(combination);
        let round = seen.iter().filter(|other| **other == combination).count();
        let round = has_rounds.then(|| Cell::chosen(round.to_string()));
        let flag = |path: &str| one.get(path).and_then(Value::as_bool);
        let word = |flag: Option<bool>, yes: &str, no: &str| {
            Cell::text(flag.map_or("", |flag| if flag { yes } else { no }))
        };
        let ms = |path: &str| Cell::measured(time(number(one, path)));
        let count = |path: &str| Cell::measured(with_unit(number(one, path), ""));
        let cells = [
            Cell::text(text(one, "proxy").unwrap_or_default()),
            word(flag("upstream_keepalive"), "yes", "no"),
            word(closes_requests(one), "closed", "kept"),
            word(flag("server_keeps"), "kept", "closed"),
            count("opened"),
            count("reused"),
            ms("series.connect_ms.p50"),
            ms("series.connect_ms.p95"),
            ms("series.header_ms.p50"),
            ms("series.response_ms.p50"),
            ms("series.request_ms.p95"),
            count("errors"),
        ];
        table.row(
            text(one, "case").unwrap_or_default(),
            round.into_iter().chain(cells),
        );
    }
    table
}

/// Draws the median time to connect and to the end of the response over time, for the loaded server and Sluice.
fn over_time(data: &Value) -> String {
    let line = |class, case, field: &str, what: &str| {
        let windows = of(data, "Sluice", case).next();
        let windows = windows.map(|one| list(one, "windows"));
        let point = |window: &Value| {
            Some((
                number(window, "begin")?,
                number(window, &format!("{field}.p50"))?,
            ))
        };
        Line {
            class,
            name: format!("{case}: {what}"),
            points: windows.into_iter().flatten().filter_map(point).collect(),
        }
    };
    let all = vec![
        line("c", CLOSED, "response_ms", "response"),
        line("c dashed", CLOSED, "connect_ms", "connect"),
        line("a", REUSED, "response_ms", "response"),
        line("a dashed", REUSED, "connect_ms", "connect"),
    ];
    let x = Dimension {
        name: "seconds",
        kind: Kind::Linear,
        show: digits,
    };
    let y = Dimension {
        name: "median",
        kind: Kind::Linear,
        show: milliseconds,
    };
    lines("Sluice with a loaded server", all, x, y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_of_sluice_are_closed_whenever_it_keeps_no_idle_connections() {
        let one = |proxy: &str, keeps: bool, closes: bool| json!({ "proxy": proxy, "case": "B", "upstream_keepalive": keeps, "close_requests": closes, "server_keeps": true });
        // The second measurement is from an earlier record, which has the setting of the combination.
        let data = json!({ "measurements": [
            one("Sluice", false, true), one("Sluice", false, false), one("Sluice", true, false), one("nginx", false, false)] });
        let table = times(&data);
        let requests = table.rows().iter().map(|row| row[3].value());
        assert_eq!(
            requests.collect::<Vec<_>>(),
            ["closed", "closed", "kept", "kept"]
        );
    }
    #[test]
    fn rounds_have_numbers_if_there_are_several() {
        let one = |proxy: &str, case: &str| json!({ "proxy": proxy, "case": case, "opened": 5 });
        let measurements = [
            one("Sluice", "A"),
            one("nginx", "A"),
            one("Sluice", "E"),
            one("Sluice", "A"),
            one("nginx", "A"),
        ];
        let table = |rounds: u64| times(&json!({ "rounds": rounds, "measurements": measurements }));
        let second = |table: &Table| -> Vec<String> {
            let rows = table.rows().iter();
            rows.map(|row| row[1].value().to_owned()).collect()
        };
        assert_eq!(second(&table(2)), ["1", "1", "1", "2", "2"]);
        assert_eq!(second(&table(1))[..2], ["Sluice", "nginx"]);
    }
}
