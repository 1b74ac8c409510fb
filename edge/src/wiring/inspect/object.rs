//! Describes an object for the admin API.

use crate::admin::{
    DecisionState, FlightState, FreshnessState, ObjectPhase, ObjectState, OnVolume, Span,
};
use crate::http::date;
use crate::http::freshness::Source;
use crate::http::key::Key;
use crate::ranges::Ranges;
use crate::store::{Claim, Decision, Head, Object, Phase};

/// Age of a response, in microseconds, below which its transfer rate is not meaningful.
const RATE_AFTER_US: u64 = 50_000;

/// Returns an object's state for the admin API.
pub(in crate::wiring) fn object_state(object: &Object, now_ms: u64, now_us: u64) -> ObjectState {
    let snapshot = object.snapshot();
    let mut state = ObjectState {
        key: Key::of(&object.key).map_or_else(String::new, |key| key.to_string()),
        length: snapshot.length,
        generation: (snapshot.generation != 0).then(|| format!("{:016x}", snapshot.generation)),
        flights: snapshot
            .flights
            .iter()
            .map(|claim| flight_state(claim, snapshot.length, now_us))
            .collect(),
        decisions: snapshot
            .decisions
            .iter()
            .map(|decision| decision_state(decision, now_ms))
            .collect(),
        ..ObjectState::default()
    };
    let in_flight = |claim: &Claim| claim.at..end(claim, snapshot.length);
    let flying = snapshot.flights.iter().map(in_flight).collect();
    list_bytes(
        &mut state,
        &snapshot.stored,
        &flying,
        &snapshot.missing,
        &snapshot.on_disk,
    );
    describe_phase(&mut state, &object.phase(), now_ms);
    state
}

/// Returns the end of a flight's claim, or of the object if the claim has no known end.
fn end(claim: &Claim, length: Option<u64>) -> u64 {
    claim.end.min(length.unwrap_or(u64::MAX))
}

fn flight_state(claim: &Claim, length: Option<u64>, now_us: u64) -> FlightState {
    let since = |us: u64| now_us.saturating_sub(us);
    let received = u128::from(claim.at.saturating_sub(claim.start));
    let rate = |us: u64| (received * 1_000_000 / u128::from(us)) as u64;
    let rate = claim
        .head_us
        .map(since)
        .filter(|us| *us >= RATE_AFTER_US)
        .map(rate);
    let left = match end(claim, length) {
        u64::MAX => None,
        end => Some(u128::from(end.saturating_sub(claim.at))),
    };
    let left = left.zip(rate.filter(|rate| *rate > 0));
    let left_ms = left.map(|(bytes, rate)| bytes * 1000 / u128::from(rate));
    FlightState {
        first: claim.start,
        next: claim.at,
        last: Span::of(claim.start..end(claim, length)).last,
        rate,
        left_ms: left_ms.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX)),
        age_ms: since(claim.begun_us) / 1000,
        idle_ms: since(claim.progress_us) / 1000,
        head: claim.head_us.is_some(),
    }
}

fn decision_state(decision: &Decision, now_ms: u64) -> DecisionState {
    DecisionState {
        unix_ms: decision.unix_ms,
        ago_ms: now_ms.saturating_sub(decision.unix_ms),
        want: Span::of(decision.want.clone()),
        what: decision.kind.text().to_owned(),
        ranges: decision.ranges.iter().cloned().map(Span::of).collect(),
        why: decision.why.to_string(),
    }
}

/// Lists which bytes are stored, on volumes, in flight and missing.
fn list_bytes(
    state: &mut ObjectState,
    stored: &Ranges,
    flying: &Ranges,
    missing: &Ranges,
    volumes: &[(String, Ranges)],
) {
    state.stored_bytes = stored.total();
    state.missing_bytes = missing.total();
    state.volumes = volumes
        .iter()
        .map(|(name, ranges)| OnVolume {
            volume: name.clone(),
            stored: Vec::new(),
            stored_bytes: ranges.total(),
        })
        .collect();
    let on_volumes = state.volumes.iter_mut().map(|its| &mut its.stored);
    let on_volumes = on_volumes.zip(volumes.iter().map(|(_, ranges)| ranges));
    let here = [
        (&mut state.stored, stored),
        (&mut state.in_flight, flying),
        (&mut state.missing, missing),
    ];
    for (list, ranges) in here.into_iter().chain(on_volumes) {
        let mut all = ranges.iter();
        list.extend(all.by_ref().take(ObjectState::SPANS_MAX).map(Span::of));
        // Each list is cut after `SPANS_MAX` spans. `listed_to` is the offset up to which all lists
        // are complete.
        if let Some(left_out) = all.next() {
            let to = state.listed_to.unwrap_or(u64::MAX).min(left_out.start);
            state.listed_to = Some(to);
        }
    }
}

/// Sets an object's phase, and the reason for it.
fn describe_phase(state: &mut ObjectState, phase: &Phase, now_ms: u64) {
    state.state = match phase {
        Phase::Awaiting => ObjectPhase::Awaiting,
        Phase::Open(_) => ObjectPhase::Open,
        Phase::Refused { .. } => ObjectPhase::Refused,
        Phase::Failed(_) => ObjectPhase::Failed,
        Phase::Revalidated { .. } => ObjectPhase::Revalidated,
        Phase::Retired => ObjectPhase::Retired,
    };
    match phase {
        Phase::Awaiting | Phase::Retired | Phase::Revalidated { .. } => {}
        Phase::Open(head) => describe_head(state, head, now_ms),
        Phase::Refused {
            reason, until_ms, ..
        } => {
            state.why = Some(reason.to_string());
            state.refused_for_ms = Some(until_ms.saturating_sub(now_ms));
        }
        Phase::Failed(failure) => state.why = Some(failure.to_string()),
    }
}

/// Describes the stored response from its head.
fn describe_head(state: &mut ObjectState, head: &Head, now_ms: u64) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    state.status = head.status;
    state.etag = head.etag.as_deref().map(text);
    state.last_modified = head.last_modified_s.map(|s| text(&date::format(s)));
    state.age_s = Some(head.age_ms(now_ms) / 1000);
    state.fresh_for_s = (head.fresh_until_ms as i64).saturating_sub(now_ms as i64) / 1000;
    if let Some(selected) = &head.vary {
        state.vary = selected.names.iter().map(|n| n.to_string()).collect();
        state.variant = format!("{}: {:032x}", selected.names.join(", "), selected.variant);
    }
    state.freshness = Some(freshness_state(head));
    let lines = head.fields.iter();
    state.headers = lines
        .map(|(name, value)| (text(name), text(value)))
        .collect();
    let obstacle = obstacle(head);
    state.joinable = Some(obstacle.is_none());
    state.why_not_joinable = obstacle.map(str::to_owned);
}

/// Returns the reason why bytes of other responses can't be combined with this response's (RFC 9111
/// 3.4).
fn obstacle(head: &Head) -> Option<&'static str> {
    match &head.etag {
        _ if head.joinable => None,
        None => Some("no ETag"),
        Some(tag) if tag.starts_with(b"W/") => Some("its ETag is weak"),
        Some(_) if head.length.is_none() => Some("its complete length is not known"),
        Some(_) => Some("the origin does not support ranges"),
    }
}

/// Describes the freshness of a stored response, and the rule that set it.
fn freshness_state(head: &Head) -> FreshnessState {
    let source = head.lifetime_source;
    let detail = match source {
        Source::Targeted => "a header for caches like this one (`target_list`)",
        Source::AccelExpires => "X-Accel-Expires",
        Source::SMaxage => "s-maxage in Cache-Control",
        Source::MaxAge => "max-age in Cache-Control",
        Source::Expires => "Expires",
        Source::Configured => "`valid` in the configuration",
        Source::Heuristic => "a tenth of the time since Last-Modified",
        Source::None => "no rule gives a lifetime",
    };
    let fresh_ms = head.fresh_until_ms as i64 - head.received_ms as i64;
    // X-Accel-Expires counts from the arrival of the response.
    let age_ms = match source {
        Source::AccelExpires => 0,
        _ => head.initial_age_ms as i64,
    };
    FreshnessState {
        rule: source.name().to_owned(),
        detail: detail.to_owned(),
        lifetime_s: fresh_ms.saturating_add(age_ms) / 1000,
        stale_while_revalidate_s: head.stale_while_revalidate_ms / 1000,
        stale_if_error_s: head.stale_if_error_ms / 1000,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::store::Selected;

    #[test]
    fn bytes_are_listed_up_to_a_bound() {
        let mut state = ObjectState::default();
        let (stored, flying) = (Ranges::from(0..10), Ranges::from(20..u64::MAX));
        list_bytes(&mut state, &stored, &flying, &Ranges::from(10..20), &[]);
        assert_eq!(state.stored, [Span::of(0..10)]);
        assert_eq!(state.in_flight[0].last, None);
        assert_eq!(state.missing, [Span::of(10..20)]);
        assert_eq!((state.stored_bytes, state.missing_bytes), (10, 10));
        assert_eq!(state.listed_to, None);

        let many: Ranges = (0..20_000).map(|n| 2 * n..2 * n + 1).collect();
        let mut state = ObjectState::default();
        list_bytes(&mut state, &many, &Ranges::new(), &Ranges::new(), &[]);
        assert_eq!(state.stored.len(), ObjectState::SPANS_MAX);
        assert_eq!(state.listed_to, Some(2 * ObjectState::SPANS_MAX as u64));
        assert_eq!(state.stored_bytes, 20_000);
    }

    #[test]
    fn bytes_on_volumes_are_listed() {
        let mut state = ObjectState::default();
        let (stored, none) = (Ranges::from(0..10), Ranges::new());
        let many: Ranges = (0..20_000).map(|n| 100 + 2 * n..101 + 2 * n).collect();
        let volumes = [
            ("disk1".to_owned(), Ranges::from(0..30)),
            ("disk2".to_owned(), many),
        ];
        list_bytes(&mut state, &stored, &none, &Ranges::from(30..100), &volumes);
        assert_eq!(state.missing, [Span::of(30..100)]);
        assert_eq!(state.missing_bytes, 70);
        assert_eq!(state.volumes[0].stored, [Span::of(0..30)]);
        assert_eq!(state.volumes[1].stored_bytes, 20_000);
        assert_eq!(state.volumes[1].stored.len(), ObjectState::SPANS_MAX);
        assert_eq!(
            state.listed_to,
            Some(100 + 2 * ObjectState::SPANS_MAX as u64)
        );
    }

    #[test]
    fn a_flight_has_a_rate_once_its_response_is_old_enough() {
        let mut claim = Claim {
            id: 1,
            start: 100,
            at: 100,
            end: u64::MAX,
            begun_us: 1_000_000,
            head_us: None,
            progress_us: 1_000_000,
            is_ending: false,
        };
        let young = flight_state(&claim, None, 1_004_000);
        assert_eq!((young.last, young.rate, young.head), (None, None, false));
        assert_eq!((young.age_ms, young.idle_ms), (4, 4));
        (claim.at, claim.head_us, claim.progress_us) = (1100, Some(1_500_000), 1_900_000);
        assert_eq!(flight_state(&claim, Some(5000), 1_510_000).rate, None);
        let steady = flight_state(&claim, Some(5000), 2_000_000);
        assert_eq!(
            (steady.first, steady.next, steady.last),
            (100, 1100, Some(4999))
        );
        assert_eq!(steady.left_ms, Some(1950));
        assert_eq!(
            (steady.rate, steady.idle_ms, steady.head),
            (Some(2000), 100, true)
        );
    }

    fn head() -> Head {
        Head {
            status: 200,
            length: Some(100),
            etag: Some(Bytes::from_static(b"\"a\xff\"")),
            last_modified_s: Some(784_111_777),
            received_ms: 10_000,
            initial_age_ms: 500,
            fresh_until_ms: 20_000,
            lifetime_source: Source::MaxAge,
            vary: Some(Selected {
                names: [Box::from("accept-encoding")].into(),
                variant: 0xab,
            }),
            joinable: true,
            generation: 7,
            ..Head::default()
        }
    }

    fn described(phase: &Phase, now_ms: u64) -> ObjectState {
        let mut state = ObjectState::default();
        describe_phase(&mut state, phase, now_ms);
        state
    }

    #[test]
    fn a_head_is_described() {
        let state = described(&Phase::Open(Arc::new(head())), 12_000);
        assert_eq!((state.state, state.status), (ObjectPhase::Open, 200));
        assert_eq!(state.etag.as_deref(), Some("\"a\u{fffd}\""));
        let modified = state.last_modified.as_deref();
        assert_eq!(modified, Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!((state.age_s, state.fresh_for_s), (Some(2), 8));
        assert_eq!(
            described(&Phase::Open(Arc::new(head())), 23_000).fresh_for_s,
            -3
        );
        let freshness = state.freshness.expect("a freshness");
        assert_eq!((&*freshness.rule, freshness.lifetime_s), ("max-age", 10));
        assert_eq!(state.vary, ["accept-encoding"]);
        assert!(
            state
                .variant
                .ends_with(": 000000000000000000000000000000ab")
        );
        assert_eq!(state.joinable, Some(true));
        let weak = Head {
            etag: Some(Bytes::from_static(b"W/\"a\"")),
            joinable: false,
            ..head()
        };
        let state = described(&Phase::Open(Arc::new(weak)), 0);
        assert_eq!(state.joinable, Some(false));
        assert_eq!(state.why_not_joinable.as_deref(), Some("its ETag is weak"));
    }

    #[test]
    fn an_object_without_a_response_has_a_reason() {
        let refused = Phase::Refused {
            reason: crate::reason::Reason::Private,
            until_ms: 5,
            one_client: false,
        };
        let state = described(&refused, 3);
        assert_eq!((state.state, state.status), (ObjectPhase::Refused, 0));
        assert_eq!(state.why.as_deref(), Some("private"));
        assert_eq!(state.refused_for_ms, Some(2));
        let failed = Phase::Failed(Arc::new(crate::store::Abandoned));
        let state = described(&failed, 3);
        assert_eq!(state.why.as_deref(), Some("the fetch was given up"));
        assert_eq!(described(&Phase::Awaiting, 3).state, ObjectPhase::Awaiting);
    }
}
