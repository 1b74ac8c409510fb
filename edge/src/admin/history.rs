//! The pages `GET /members` and `GET /history`: the names of members and series, and the history of their numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use hyper::StatusCode;
use hyper::header::CACHE_CONTROL;
use serde::{Deserialize, Serialize};

use super::background::Background;
use super::inspect::Shared;
use super::page_query::{PageQuery, Parameters};
use super::purge::Refusal;
use crate::telemetry::history::{
    Answer, History, POINTS_MAX, POINTS_MIN, Period, RingSize, Row, Scope, Series,
};

/// Most series in one request.
pub(super) const SERIES_MAX: usize = 64;
/// Most members in the table of all members.
const ROWS_MAX: usize = 10_000;
/// Members in this table by default.
const ROWS: usize = 50;
/// Points of a series by default.
const POINTS: usize = 600;
/// Beginning of the period by default: an hour ago.
const FROM_S: i64 = -3600;

/// Response to `GET /members`.
#[derive(Serialize)]
struct Listing<'a> {
    /// The names of each scope's members.
    #[serde(flatten)]
    members: BTreeMap<&'a str, Vec<&'a str>>,
    /// The series of each scope.
    series: BTreeMap<&'a str, Vec<SeriesState<'a>>>,
    /// The rings of each scope, the finest first.
    rings: BTreeMap<&'a str, Vec<RingState>>,
    /// Memory that the history takes once it covers a week.
    memory_bytes: usize,
}

#[derive(Serialize)]
struct SeriesState<'a> {
    name: &'a str,
    unit: &'a str,
    help: &'a str,
}

#[derive(Serialize)]
struct RingState {
    step_s: u32,
    span_s: u64,
}

/// Query of `GET /history`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    scope: String,
    #[serde(default)]
    member: String,
    /// `*` asks for the table of all members.
    members: Option<String>,
    series: String,
    from: Option<i64>,
    to: Option<i64>,
    points: Option<usize>,
    top: Option<usize>,
}

impl Parameters for HistoryQuery {
    const USAGE: &str = "/history?scope=SCOPE&member=NAME&series=NAMES, or members=* in place of member, with from=TIME, to=TIME, points=N and top=N as needed; GET /members has the names";
}

/// Response to `GET /history` with `member`.
#[derive(Serialize)]
struct SeriesAnswer<'a> {
    scope: &'a str,
    member: &'a str,
    step_s: u64,
    from: u64,
    series: BTreeMap<&'a str, Vec<Option<f64>>>,
}

/// Response to `GET /history` with `members=*`.
#[derive(Serialize)]
struct TableAnswer<'a> {
    members: Vec<TableRow<'a>>,
}

#[derive(Serialize)]
struct TableRow<'a> {
    member: String,
    #[serde(flatten)]
    values: BTreeMap<&'a str, Option<f64>>,
}

pub(super) async fn members(State(edge): State<Shared>) -> Response {
    let Some(shared) = edge.history() else {
        return off();
    };
    let answer = Json(listing(&shared.read())).into_response();
    ([(CACHE_CONTROL, "no-store")], answer).into_response()
}

fn listing(history: &History) -> Listing<'_> {
    let scopes = Scope::ALL.into_iter();
    let layouts = scopes.filter_map(|scope| Some((scope.name(), history.layout(scope)?)));
    Listing {
        memory_bytes: history.bytes(),
        members: layouts
            .clone()
            .map(|(name, layout)| (name, history.names(layout.scope()).collect()))
            .collect(),
        series: layouts
            .clone()
            .map(|(name, layout)| (name, layout.series().iter().map(series_state).collect()))
            .collect(),
        rings: layouts
            .map(|(name, layout)| (name, layout.scope().rings().map(ring_state).into()))
            .collect(),
    }
}

fn series_state(series: &Series) -> SeriesState<'_> {
    SeriesState {
        name: &series.name,
        unit: series.unit,
        help: &series.help,
    }
}

fn ring_state(ring: RingSize) -> RingState {
    RingState {
        step_s: ring.step_s,
        span_s: ring.span_s(),
    }
}

pub(super) async fn history(
    State(edge): State<Shared>,
    Extension(background): Extension<Background>,
    PageQuery(query): PageQuery<HistoryQuery>,
) -> Response {
    let Some(shared) = edge.history() else {
        return off();
    };
    let now_s = shared.now_s();
    // A table of a thousand routes over a week takes some tenths of a second.
    let answer = background.run(move || answer(&shared.read(), &query, now_s));
    let answer = match answer.await {
        Ok(answer) => answer.unwrap_or_else(Refusal::into_response),
        Err(failed) => failed,
    };
    ([(CACHE_CONTROL, "no-store")], answer).into_response()
}

fn answer(history: &History, query: &HistoryQuery, now_s: u64) -> Result<Response, Refusal> {
    let scope = scope(&query.scope)?;
    let names = series(&query.series)?;
    let period = period(query, now_s)?;
    if let Some(members) = &query.members {
        if members != "*" {
            return Err(bad(
                "write `members=*` for all members, or `member=NAME` for one",
            ));
        }
        let rows_max = query.top.unwrap_or(ROWS).min(ROWS_MAX);
        let rows = history.table(scope, &names, &period, rows_max);
        let rows = rows.map_err(|unknown| missing(&unknown))?;
        return Ok(Json(table(rows, &names)).into_response());
    }
    let found = history.series(scope, &query.member, &names, &period);
    let Answer {
        step_s,
        from_s,
        series,
    } = found.map_err(|unknown| missing(&unknown))?;
    let answer = SeriesAnswer {
        scope: scope.name(),
        member: &query.member,
        step_s,
        from: from_s,
        series: names.into_iter().zip(series).collect(),
    };
    Ok(Json(answer).into_response())
}

fn table<'a>(rows: Vec<Row>, names: &[&'a str]) -> TableAnswer<'a> {
    let row = |Row { member, values }| TableRow {
        member,
        values: names.iter().copied().zip(values).collect(),
    };
    TableAnswer {
        members: rows.into_iter().map(row).collect(),
    }
}

/// Returns the scope of a request.
pub(super) fn scope(name: &str) -> Result<Scope, Refusal> {
    Scope::by_name(name).ok_or_else(|| {
        let all = Scope::ALL.map(Scope::name).join(", ");
        bad(format_args!(
            "there is no scope {name:?}; write one of {all}"
        ))
    })
}

/// Returns the names of the series of a request.
pub(super) fn series(list: &str) -> Result<Vec<&str>, Refusal> {
    let mut names: Vec<&str> = list.split(',').filter(|name| !name.is_empty()).collect();
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(*name));
    match names.len() {
        0 => Err(bad("name at least one series, as in `series=requests`")),
        n if n > SERIES_MAX => Err(bad(format_args!(
            "{n} series are too many; ask for at most {SERIES_MAX} at a time"
        ))),
        _ => Ok(names),
    }
}

/// Returns the period of a request. Negative times are relative to now.
fn period(query: &HistoryQuery, now_s: u64) -> Result<Period, Refusal> {
    let time = |at: i64| match at < 0 {
        true => now_s.saturating_sub(at.unsigned_abs()),
        false => at.unsigned_abs(),
    };
    let from_s = time(query.from.unwrap_or(FROM_S));
    let to_s = query.to.map_or(now_s, time).min(now_s);
    if from_s > to_s {
        return Err(bad(
            "`from` must be before `to` and before now, in seconds of Unix time or negative: seconds before now",
        ));
    }
    Ok(Period {
        from_s,
        to_s,
        now_s,
        points: query.points.unwrap_or(POINTS).clamp(POINTS_MIN, POINTS_MAX),
    })
}

/// Returns the response if there is no history.
pub(super) fn off() -> Response {
    let text = "the history is off: `history = false` in [admin]\n";
    (StatusCode::NOT_FOUND, text).into_response()
}

/// Refuses a request for something that does not exist.
pub(super) fn missing(what: &impl Display) -> Refusal {
    Refusal {
        status: StatusCode::NOT_FOUND.as_u16(),
        why: what.to_string(),
    }
}

fn bad(why: impl Display) -> Refusal {
    Refusal {
        status: StatusCode::BAD_REQUEST.as_u16(),
        why: why.to_string(),
    }
}
