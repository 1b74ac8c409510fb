//! Describes a plan in sentences, for `sluice check`.

mod compress;
mod edit;
mod files;
mod gate;
mod limits;
mod list;
mod listeners;
mod logs;
mod privileges;
mod respond;
mod rules;
mod tls;

use std::fmt::{Debug, Write};

use super::plan::{Plan, Proxied, RouteHandler, RoutePlan, SitePlan, segment_of};
use super::value::{show_count, show_size, show_time};
use crate::admin::Role;
use crate::fill::ReadAhead;
use crate::store::disk_tier::{self, Admit, PlacementKind};
use crate::{balance, cache, fill, spool, upstream, volume};

/// Returns the description of the plan.
pub fn describe(plan: &Plan) -> String {
    let mut out = String::new();
    // Writing to a String can't fail.
    let mut line = |text: String| _ = writeln!(out, "{text}");
    line(match plan.workers {
        0 => "one worker per core".to_owned(),
        n => show_count(n as u64, "worker"),
    });
    for listener in &plan.listeners {
        line(listeners::describe(listener));
    }
    if let Some(text) = listeners::describe_trust(&plan.trust) {
        line(text);
    }
    if plan.buffers != spool::Options::default() {
        line(buffers(&plan.buffers));
    }
    if plan.request_id {
        line("requests have ids in X-Request-ID".to_owned());
    }
    if plan.trace {
        line("requests have traces in traceparent".to_owned());
    }
    if let Some(text) = tls::describe(plan) {
        line(text);
    }
    limits::describe(&plan.limits).for_each(&mut line);
    line(admin(plan));
    if !plan.purge.is_empty() {
        line(format!("PURGE from {}", list::networks(&plan.purge)));
    }
    line(logs::describe(&plan.log));
    if let Some(text) = privileges::describe(plan) {
        line(text);
    }
    for site in &plan.sites {
        line(format!(
            "site {}{}",
            hosts(site),
            site.tls.as_ref().map_or(String::new(), tls::site)
        ));
        for typed in &site.routes {
            line(format!("  {}", route(typed)));
            details(typed).for_each(|text| line(format!("    {text}")));
        }
    }
    for (name, options) in &plan.volumes {
        line(format!("volume {name}: {}", volume(options)));
    }
    for (name, options) in &plan.caches {
        line(format!("cache {name}: {}", cache(options)));
        if !options.disk_tier.volumes.is_empty() {
            line(format!("  {}", kept(&options.disk_tier)));
        }
    }
    for (name, options) in &plan.upstreams {
        line(format!("upstream {name}: {}", upstream(options)));
    }
    out
}

fn buffers(options: &spool::Options) -> String {
    let memory = show_size(options.memory);
    let mut text = format!("buffers of bodies take up to {memory} of memory");
    if let Some(disk) = &options.disk {
        text += &format!(
            "; beyond {} a body goes on in a file in {}, of up to {}, together up to {}, at most {} for a write or read",
            show_size(disk.memory_per_body),
            disk.folder.display(),
            show_size(disk.bytes_per_body),
            show_size(disk.bytes),
            show_time(disk.timeout),
        );
    }
    text
}

fn admin(plan: &Plan) -> String {
    let Some(address) = &plan.admin else {
        return "no admin address".to_owned();
    };
    let mut text = match &plan.admin_tls {
        None if address.ip().is_none() => format!("admin on {address}"),
        None => format!("admin on http://{address}"),
        Some(tls) => format!("admin on https://{address}{}", tls::listener(tls)),
    };
    if !plan.admin_hosts.is_empty() {
        text += &format!(", also as {}", plan.admin_hosts.join(", "));
    }
    if plan.admin_tokens.are_required {
        text += ", with a token";
        let named = |role: Role| {
            let names = plan.admin_tokens.iter().filter(|token| token.role == role);
            names
                .map(|token| &*token.name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        for (role, what) in [(Role::Operator, "operators"), (Role::Reader, "readers")] {
            let names = named(role);
            if !names.is_empty() {
                text += &format!("; {what}: {names}");
            }
        }
    }
    if let Some(path) = &plan.admin_events {
        text += &format!(", events to {}", path.display());
    }
    text
}

/// Returns lines about the edits of a route's requests and responses.
pub fn describe_edits(route: &RoutePlan) -> Vec<String> {
    let edits = route.edit.iter();
    edits.flat_map(|edit| edit::describe(edit)).collect()
}

/// Returns lines about the caching rules of a route that differ from the defaults.
pub fn describe_rules(rules: &cache::Rules) -> Vec<String> {
    rules::rules(rules)
}

/// Returns a description of how missing bytes are fetched.
pub fn describe_fill(options: &fill::Options) -> String {
    fill(options)
}

/// Returns lines about a route, in the order in which its handlers process a request.
fn details(route: &RoutePlan) -> impl Iterator<Item = String> {
    let log = route.log.iter().map(logs::describe_rule);
    let edit = route.edit.iter();
    let edit = edit.flat_map(|edit| edit::describe(edit));
    let gate = route.gate.iter();
    let gate = gate.flat_map(|gate| gate::describe(gate));
    let rules = route.proxied().map(|proxied| rules::rules(&proxied.rules));
    let rewrites = route.proxied().and_then(|proxied| proxied.rewrite.as_ref());
    let rewrites = rewrites.into_iter().flat_map(|rewrite| rewrite.rules());
    let rewrites = rewrites.map(|rule| format!("rewrite {rule}"));
    let compress = route.compress.iter().map(compress::describe);
    log.chain(edit)
        .chain(gate)
        .chain(rewrites)
        .chain(rules.into_iter().flatten())
        .chain(compress)
}

fn hosts(site: &SitePlan) -> String {
    match site.hosts.is_empty() {
        true => "for any host".to_owned(),
        false => site.hosts.join(", "),
    }
}

fn route(route: &RoutePlan) -> String {
    let to = match &route.handler {
        RouteHandler::Files(options) => files::describe(options),
        RouteHandler::Redirect(options) => format!("{}, at {}", options.status, options.to),
        RouteHandler::Respond(options) => respond::describe(options),
        RouteHandler::Upstream(proxied) => {
            let path = proxied.path.as_ref();
            let mut path = path.map_or(String::new(), |path| format!(", {path}"));
            if !proxied.write_back {
                path += ", its URLs in responses stay";
            }
            path += &redirects(proxied);
            if proxied.buffered.requests {
                path += ", request bodies buffered";
            }
            if proxied.buffered.responses {
                path += ", responses buffered";
            }
            match &proxied.cache {
                Some(cache) => format!("upstream {}{path}, cached in {cache}", proxied.upstream),
                None => format!("upstream {}{path}, not cached", proxied.upstream),
            }
        }
    };
    format!("{} -> {to}", route.matcher)
}

fn redirects(proxied: &Proxied) -> String {
    let Some(follow) = &proxied.follow_redirects else {
        return String::new();
    };
    let times = show_count(follow.times.into(), "redirect");
    match follow.to.is_empty() {
        true => format!(", up to {times} followed"),
        false => format!(", up to {times} followed, also to {}", follow.to.join(", ")),
    }
}

fn cache(options: &cache::Options) -> String {
    let mut text = format!(
        "{} of memory, evict {}, {}, {} ahead of a client",
        show_size(options.memory),
        word(options.evict),
        fill(&options.fill),
        match options.client_budget {
            u64::MAX => "no limit".to_owned(),
            budget => format!("up to {}", show_size(budget)),
        }
    );
    if options.max_object_size != 0 {
        text += &format!(", objects up to {}", show_size(options.max_object_size));
    }
    text
}

fn volume(options: &volume::Options) -> String {
    let size = match options.size {
        0 => "all of it".to_owned(),
        size => format!(
            "{} in segments of {}",
            show_size(size),
            show_size(segment_of(options))
        ),
    };
    let mut text = format!(
        "{}, {size}, write queue of {}, written after {}, {} readers, read timeout {}, reopened every {} after a failure",
        options.path.display(),
        show_size(options.queue),
        show_time(options.write_delay),
        options.readers,
        show_time(options.read_timeout),
        show_time(options.retry)
    );
    if options.overwrite {
        text += ", other contents are overwritten";
    }
    text
}

/// Returns a line about a cache's volumes.
fn kept(options: &disk_tier::Options) -> String {
    let placement = &options.placement;
    let volumes = options.volumes.iter().enumerate();
    let volumes: Vec<String> = volumes
        .map(|(index, name)| match placement.weights.get(index) {
            Some(weight) => format!("{name} (weight {weight})"),
            None => name.clone(),
        })
        .collect();
    let spread = match placement.kind {
        _ if volumes.len() == 1 => "",
        PlacementKind::Single => ", all in one volume",
        PlacementKind::Hash => ", each object in one of them",
        PlacementKind::Stripe => ", blocks of an object in turn",
        PlacementKind::Mirror => ", each object in two of them",
    };
    let mut text = format!("stored on {}{spread}", volumes.join(", "));
    text += match options.admit {
        Admit::All => "",
        Admit::Second => ", from the second request on",
    };
    match (options.admit_min, options.admit_max) {
        (0, 0) => {}
        (min, 0) => text += &format!(", from {} on", show_size(min)),
        (0, max) => text += &format!(", up to {}", show_size(max)),
        (min, max) => text += &format!(", from {} to {}", show_size(min), show_size(max)),
    }
    if !options.inactive.is_zero() {
        text += &format!(
            ", removed after {} without a request",
            show_time(options.inactive)
        );
    }
    text
}

fn fill(options: &fill::Options) -> String {
    let kind = word(options.kind);
    let slice = show_size(options.block);
    match options.kind {
        fill::Kind::Whole => format!("fill {kind}"),
        fill::Kind::Lock => format!(
            "fill {kind}, others wait up to {}, replaced after {} without a byte",
            show_time(options.lock_timeout),
            show_time(options.lock_age)
        ),
        fill::Kind::Slice | fill::Kind::Auto => {
            let ahead = match options.read_ahead {
                ReadAhead::None => "nothing read ahead".to_owned(),
                ReadAhead::Window(size) => format!("{} read ahead", show_size(size)),
                ReadAhead::Whole => "all read ahead".to_owned(),
            };
            let parallel = options.parallel;
            format!("fill {kind} by {slice}, up to {parallel} at once, {ahead}")
        }
    }
}

fn upstream(options: &upstream::Options) -> String {
    let servers: Vec<String> = options.servers.iter().map(server).collect();
    let mut text = format!("{}, {}", servers.join(", "), balance(options));
    text += match (options.http2, options.uses_tls()) {
        (upstream::Http2::Always, _) => ", HTTP/2",
        (upstream::Http2::Negotiated, true) => ", HTTP/2 or HTTP/1.1 as the server chooses",
        _ => "",
    };
    text += &match options.keepalive {
        0 => ", a new connection for each request".to_owned(),
        n => format!(", up to {n} idle connections per worker and server"),
    };
    if options.uses_tls() {
        text += &tls::client(&options.tls);
    }
    if let [first, rest @ ..] = &*options.resolver {
        text += &format!(", names resolved by {first}");
        rest.iter()
            .for_each(|server| text += &format!(" and {server}"));
    }
    if let Some(host) = &options.host {
        text += &format!(", with Host {host}");
    }
    if let Some(sticky) = &options.sticky {
        text += &format!(", sticky by the cookie {}", sticky.cookie);
    }
    if let Some(health) = &options.health {
        let (path, interval) = (&health.path, show_time(health.interval));
        text += &format!(", health checked at {path} every {interval}");
        if let Some(port) = health.port {
            text += &format!(" on port {port}");
        }
    }
    match &options.eject {
        Some(eject) if *eject == upstream::Eject::default() => {}
        Some(eject) => {
            let time = show_time(eject.time);
            text += &format!(", failing servers ejected for {time}");
        }
        None => text += ", failing servers never ejected",
    }
    if !options.slow_start.is_zero() {
        text += &format!(", slow start in {}", show_time(options.slow_start));
    }
    if !options.via {
        text += ", without Via";
    }
    if options.x_real_ip {
        text += ", with X-Real-IP";
    }
    if let Some(sign) = &options.sign {
        text += &format!(", signed for {}", sign.region);
        text += if sign.writes {
            ""
        } else {
            ", only GET and HEAD"
        };
        text += if sign.query { "" } else { ", without queries" };
    }
    text
}

fn balance(options: &upstream::Options) -> String {
    let balance = &options.balance;
    let mut text = word(balance.kind);
    match (balance.kind, &options.hash) {
        (balance::Kind::LeastTime, _) => text += &format!(" to the {}", word(balance.measure)),
        (balance::Kind::Hash, Some(key)) => text += &format!(" of {key}"),
        _ => {}
    }
    if balance.kind == balance::Kind::Hash && balance.load_percent > 0 {
        let load = f64::from(balance.load_percent) / 100.0;
        text += &format!(" with at most {load} of the mean load");
    }
    text
}

fn server(server: &upstream::Server) -> String {
    let mut text = server.url();
    if server.weight != 1 {
        text += &format!(" (weight {})", server.weight);
    }
    if server.backup {
        text += " (backup)";
    }
    if server.down {
        text += " (down)";
    }
    if let Some(most) = server.max_connections {
        text += &format!(" (at most {most} connections per worker)");
    }
    text
}

/// Returns the name of an enumeration's variant as written in the file: `LeastConnections` is
/// `least-connections`.
fn word(kind: impl Debug) -> String {
    let name = format!("{kind:?}");
    let mut word = String::with_capacity(name.len() + 2);
    for (i, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && i > 0 {
            word.push('-');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}
