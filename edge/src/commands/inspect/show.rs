//! Formats the state of a URL in an edge as text. Does no I/O.

use std::time::Duration;

use super::bar::{self, Cell};
use super::layout::{Page, Style, glued};
use crate::admin::{DecisionState, FlightState, ObjectPhase, ObjectState, Span, UrlState};
use crate::config::{show_count, show_size, show_time};
use crate::reason::Reason;

/// Most ranges that are listed. Further ones are counted.
const SPANS_SHOWN: usize = 8;
/// Most fetches that are listed. Further ones are counted.
const FLIGHTS_SHOWN: usize = 32;
/// Most volumes that are listed. Further ones are counted.
const VOLUMES_SHOWN: usize = 8;
/// Time without a byte, in milliseconds, after which a fetch is shown as quiet.
const QUIET_MS: u64 = 1000;

/// Returns the text about a URL. Empty if no cache has an object for the URL.
pub fn show(url: &str, caches: &[UrlState], style: &Style) -> String {
    let mut page = Page {
        style,
        out: String::new(),
    };
    if caches.iter().all(|cache| cache.objects.is_empty()) {
        return page.out;
    }
    let url = page.escaped(url);
    page.line(&url);
    for cache in caches {
        for (index, object) in cache.objects.iter().enumerate() {
            page.line("");
            draw(&mut page, object);
            let name = page.escaped(&cache.cache);
            let place = match cache.objects.len() {
                1 => name,
                all => format!("{name}, variant {} of {all}", index + 1),
            };
            let place = match object.selected {
                Some(true) => format!("{place}, selected by the given headers"),
                _ => place,
            };
            page.entry("cache", &place);
            describe(&mut page, object);
        }
    }
    let objects = caches.iter().flat_map(|cache| &cache.objects);
    let selected: Vec<bool> = objects.filter_map(|object| object.selected).collect();
    if !selected.is_empty() && !selected.contains(&true) {
        page.line("");
        page.line("the given headers select none of these variants");
    }
    page.out
}

/// Draws the bar and its legend.
fn draw(page: &mut Page<'_>, object: &ObjectState) {
    let Some(bar) = bar::bar(object, page.style.width) else {
        return;
    };
    let mut line = String::new();
    for run in bar.cells.chunk_by(|a, b| a == b) {
        let (sign, colour, _) = meaning(run[0], page.style.ascii);
        line += &page.painted(&sign.repeat(run.len()), colour);
    }
    page.line(&line);
    let mut signs = vec![Cell::Stored, Cell::Partly, Cell::Flying, Cell::Missing];
    if bar.cells.contains(&Cell::Kept) {
        signs.insert(1, Cell::Kept);
    }
    if bar.cells.contains(&Cell::Unlisted) {
        signs.push(Cell::Unlisted);
    }
    let mut legend: Vec<String> = signs
        .into_iter()
        .map(|cell| {
            let (sign, colour, name) = meaning(cell, page.style.ascii);
            format!("{} {name} ", page.painted(sign, colour))
        })
        .collect();
    let size = bar.bytes / page.style.width as u64;
    match object.length {
        None => legend.push("(its end is not known yet)".to_owned()),
        Some(_) if size > 0 => legend.push(format!("({} a cell)", show_size(size))),
        Some(_) => {}
    }
    page.atoms("", legend);
}

/// Returns the sign, colour and name of a cell's state.
fn meaning(cell: Cell, ascii: bool) -> (&'static str, &'static str, &'static str) {
    let (sign, plain, colour, name) = match cell {
        Cell::Stored => ("█", "#", "32", "stored"),
        Cell::Kept => ("▓", "=", "34", "on a volume"),
        Cell::Partly => ("▒", "+", "33", "partly"),
        Cell::Flying => ("░", ">", "36", "in flight"),
        Cell::Missing => ("·", ".", "2", "missing"),
        Cell::Unlisted => ("?", "?", "2", "not listed"),
    };
    (if ascii { plain } else { sign }, colour, name)
}

/// Describes one object.
pub fn describe(page: &mut Page<'_>, object: &ObjectState) {
    let state = state(page, object);
    page.entry("state", &state);
    if object.status != 0 {
        describe_head(page, object);
    }
    // Only the state of a refused or failed object without a head is known, so its bytes are not
    // described.
    if object.status != 0 || object.state == ObjectPhase::Awaiting {
        describe_bytes(page, object);
    }
    if !object.flights.is_empty() {
        flights(page, &object.flights);
    }
    if !object.decisions.is_empty() {
        decisions(page, &object.decisions);
    }
}

fn state(page: &Page<'_>, object: &ObjectState) -> String {
    let why = object.why.as_deref();
    let why = match why.and_then(Reason::named) {
        Some(Reason::TooLarge) => "larger than `max_object_size`".to_owned(),
        _ => page.escaped(why.unwrap_or("no reason given")),
    };
    let flying = !object.in_flight.is_empty() || !object.flights.is_empty();
    match object.state {
        ObjectPhase::Awaiting => "waiting for the head of its first response".to_owned(),
        ObjectPhase::Open if object.length == Some(object.stored_bytes) => {
            format!("status {}, complete", object.status)
        }
        ObjectPhase::Open if object.length == Some(bar::everywhere(object).total()) => {
            format!("status {}, complete, with bytes on volumes", object.status)
        }
        ObjectPhase::Open if flying => format!("status {}, being fetched", object.status),
        ObjectPhase::Open => format!("status {}, partly stored", object.status),
        ObjectPhase::Refused => match object.refused_for_ms {
            None | Some(0) => format!("not shared: {why}; tried again at the next request"),
            Some(ms) => format!("not shared: {why}; tried again in {}", time(ms)),
        },
        ObjectPhase::Failed => format!("failed: {why}"),
        ObjectPhase::Revalidated => "revalidated: the stored response remains in use".to_owned(),
        ObjectPhase::Retired => "retired: not used for new requests".to_owned(),
        ObjectPhase::Unknown => "unknown to this version".to_owned(),
    }
}

fn describe_head(page: &mut Page<'_>, object: &ObjectState) {
    let variant = match (&object.vary[..], object.variant.rsplit_once(": ")) {
        ([], _) => "one for all clients (no Vary)".to_owned(),
        (names, hash) => format!(
            "by {}; hash of their values {}",
            page.escaped(&names.join(", ")),
            page.escaped(hash.map_or("-", |(_, hash)| hash))
        ),
    };
    page.entry("variant", &variant);
    let fresh = match object.fresh_for_s {
        s @ 1.. => format!("fresh for {}", seconds(s.unsigned_abs())),
        s => format!("stale for {}", seconds(s.unsigned_abs())),
    };
    let age = object
        .age_s
        .map_or(String::new(), |age| format!("age {}, ", seconds(age)));
    let rule = object.freshness.as_ref().filter(|its| its.rule != "none");
    let rule = rule.map_or_else(String::new, |its| {
        format!(", by {}", page.escaped(&its.detail))
    });
    page.entry("freshness", &format!("{age}{fresh}{rule}"));
    let tag = |tag: &String| match tag.strip_prefix("W/") {
        Some(rest) => format!("ETag {} (weak)", page.escaped(rest)),
        None => format!("ETag {}", page.escaped(tag)),
    };
    let modified = |date: &String| format!("Last-Modified {}", page.escaped(date));
    let validators: Vec<String> = [
        object.etag.as_ref().map(tag),
        object.last_modified.as_ref().map(modified),
    ]
    .into_iter()
    .flatten()
    .collect();
    page.entry("validators", &or(validators.join(", "), "none"));
    let generation = object.generation.as_ref();
    let generation = generation.map_or(String::new(), |hex| page.escaped(hex));
    page.entry("generation", &or(generation, "none"));
    let responses = match (object.joinable, &object.why_not_joinable) {
        (None, _) => "not known yet whether bytes of several can be combined".to_owned(),
        (Some(true), _) => "bytes of several can be combined".to_owned(),
        (Some(false), None) => "all bytes must come from one".to_owned(),
        (Some(false), Some(why)) => format!("all bytes must come from one: {}", page.escaped(why)),
    };
    page.entry("responses", &responses);
}

fn describe_bytes(page: &mut Page<'_>, object: &ObjectState) {
    let length = match object.length {
        Some(n @ 0..1024) => size(n),
        Some(n) => format!("{} ({})", size(n), glued(&format!("{n} bytes"))),
        None => "not known yet".to_owned(),
    };
    page.entry("length", &length);
    let share = object.length.map_or(String::new(), |length| {
        let percent = u128::from(object.stored_bytes) * 100 / u128::from(length.max(1));
        match length {
            0 => String::new(),
            _ => format!(", {percent}%"),
        }
    });
    let more = object.listed_to.is_some();
    let stored = spans(&object.stored, more);
    let note = format!("({}{share})", size(object.stored_bytes));
    let label = match object.volumes.is_empty() {
        true => "stored",
        false => "in memory",
    };
    page.entry(label, &format!("{stored} {note}"));
    on_volumes(page, object, more);
    page.entry("in flight", &spans(&object.in_flight, more));
    let missing = spans(&object.missing, more);
    let note = match object.missing_bytes {
        0 => String::new(),
        n => format!(" ({})", size(n)),
    };
    page.entry("missing", &format!("{missing}{note}"));
}

fn on_volumes(page: &mut Page<'_>, object: &ObjectState, more: bool) {
    for (index, its) in object.volumes.iter().take(VOLUMES_SHOWN).enumerate() {
        let label = if index == 0 { "on volumes" } else { " " };
        let name = page.escaped(&its.volume);
        let stored = spans(&its.stored, more);
        let note = glued(&format!("({})", size(its.stored_bytes)));
        page.entry(label, &format!("{name}: {stored} {note}"));
    }
    if object.volumes.len() > VOLUMES_SHOWN {
        let more = object.volumes.len() - VOLUMES_SHOWN;
        page.entry(
            " ",
            &format!("and on {} more", show_count(more as u64, "volume")),
        );
    }
}

fn flights(page: &mut Page<'_>, flights: &[FlightState]) {
    let shown = &flights[..flights.len().min(FLIGHTS_SHOWN)];
    let unit = RateUnit::of(shown);
    let rows: Vec<[String; 6]> = shown.iter().map(|one| flight(one, unit)).collect();
    page.table("flights", ["range", "at", "done", unit.1, "age", ""], &rows);
    if flights.len() > FLIGHTS_SHOWN {
        page.entry(" ", &format!("and {} more", flights.len() - FLIGHTS_SHOWN));
    }
}

/// The unit of all rates in a table, chosen so that they can easily be compared.
#[derive(Clone, Copy)]
struct RateUnit(f64, &'static str);

impl RateUnit {
    /// Returns the unit that suits the slowest flight, at least KiB/s.
    fn of(flights: &[FlightState]) -> RateUnit {
        let rates = flights.iter().filter_map(|flight| flight.rate);
        match rates.filter(|rate| *rate > 0).min() {
            Some(rate) if rate >= 1 << 30 => RateUnit(f64::from(1 << 30), "GiB/s"),
            Some(rate) if rate >= 1 << 20 => RateUnit(f64::from(1 << 20), "MiB/s"),
            _ => RateUnit(1024.0, "KiB/s"),
        }
    }

    fn show(self, rate: u64) -> String {
        match rate as f64 / self.0 {
            n if n > 0.0 && n < 0.1 => "<0.1".to_owned(),
            n => format!("{n:.1}"),
        }
    }
}

fn flight(flight: &FlightState, unit: RateUnit) -> [String; 6] {
    let range = Span {
        first: flight.first,
        last: flight.last,
    };
    let done = flight.last.map(|_| {
        let Span { first, .. } = range;
        let all = range.range().end.saturating_sub(first).max(1);
        let received = flight.next.saturating_sub(first);
        format!("{}%", u128::from(received) * 100 / u128::from(all))
    });
    let note = match (flight.head, flight.idle_ms) {
        (false, _) => "no head yet".to_owned(),
        (true, idle @ QUIET_MS..) => format!("quiet for {}", time(idle)),
        (true, _) => flight
            .left_ms
            .map_or_else(String::new, |left| format!("{} left", time(left))),
    };
    let unknown = || "-".to_owned();
    [
        span(&range),
        flight.next.to_string(),
        done.unwrap_or_else(unknown),
        flight.rate.map_or_else(unknown, |rate| unit.show(rate)),
        time(flight.age_ms),
        note,
    ]
}

fn decisions(page: &mut Page<'_>, decisions: &[DecisionState]) {
    let row = |decision: &DecisionState| -> [String; 5] {
        [
            format!("{} ago", time(decision.ago_ms)),
            span(&decision.want),
            page.escaped(&decision.what),
            match &decision.ranges[..] {
                [] => "-".to_owned(),
                ranges => spans(ranges, false),
            },
            page.escaped(&decision.why),
        ]
    };
    let rows: Vec<[String; 5]> = decisions.iter().map(row).collect();
    page.table(
        "decisions",
        ["when", "wanted", "plan", "ranges", "why"],
        &rows,
    );
}

/// Formats the first few ranges, as in `0-9, 20-29`. `unlisted` says that the list itself is
/// incomplete.
fn spans(spans: &[Span], unlisted: bool) -> String {
    let shown: Vec<String> = spans.iter().take(SPANS_SHOWN).map(span).collect();
    match spans.len().saturating_sub(SPANS_SHOWN) {
        _ if spans.is_empty() => "nothing".to_owned(),
        0 => shown.join(", "),
        more if unlisted => format!("{} and more than {more} more", shown.join(", ")),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn span(span: &Span) -> String {
    match span.last {
        Some(last) => format!("{}-{last}", span.first),
        None => format!("{}-", span.first),
    }
}

/// Formats a time in a short form: `120ms`, `1.2s`, `2m 30s`.
fn time(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms}ms"),
        1000..60_000 => format!("{}.{}s", ms / 1000, ms % 1000 / 100),
        _ => seconds(ms / 1000),
    }
}

fn seconds(seconds: u64) -> String {
    glued(&show_time(Duration::from_secs(seconds)))
}

fn size(bytes: u64) -> String {
    glued(&show_size(bytes))
}

fn or(text: String, instead: &str) -> String {
    match text.is_empty() {
        true => instead.to_owned(),
        false => text,
    }
}
