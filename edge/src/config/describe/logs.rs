//! Describes logs.

use crate::config::plan::LogOptions;
use crate::config::value::{StatusRange, show_time};
use crate::telemetry::messages::MessageTarget;
use crate::telemetry::{AccessFormat, LogRule};

/// Returns a line about `[log]`.
pub fn describe(log: &LogOptions) -> String {
    let level = log.level.as_str();
    let messages = match &log.messages {
        MessageTarget::Stderr => String::new(),
        MessageTarget::File(path) => format!(" to {}", path.display()),
    };
    let Some(access) = &log.access else {
        return format!("messages from level {level} on{messages}; no access log");
    };
    let format = match &access.format {
        AccessFormat::Combined => "in combined format".to_owned(),
        AccessFormat::CombinedCache => "in combined format with cache status".to_owned(),
        AccessFormat::Json => "in JSON".to_owned(),
        AccessFormat::Template(template) => format!("as `{}`", template.text()),
    };
    format!(
        "messages from level {level} on{messages}; access log {format} to {}",
        access.target
    )
}

/// Returns a line about which requests of a route are logged.
pub fn describe_rule(rule: &LogRule) -> String {
    let statuses = rule.statuses.iter();
    let statuses = statuses.map(|range| StatusRange(range.clone()).to_string());
    let mut some: Vec<String> = statuses.collect();
    if let Some(time) = rule.slower_than {
        some.push(format!("requests longer than {}", show_time(time)));
    }
    let percent = rule.sample * 100.0;
    match (rule.selects(), rule.sample) {
        (_, 1.0) => "all of it logged".to_owned(),
        (false, 0.0) => "not logged".to_owned(),
        (false, _) => format!("{percent} % of it logged"),
        (true, 0.0) => format!("logged: {}", some.join(", ")),
        (true, _) => format!("logged: {}, {percent} % of the rest", some.join(", ")),
    }
}
