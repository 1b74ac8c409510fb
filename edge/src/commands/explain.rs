//! `--explain` of `sluice check` and `sluice inspect`: shows what would happen to a request.

use anyhow::Context;
use clap::Args;
use serde_json::Value;

use super::admin::AdminArgs;
use super::inspect::layout::Page;
use super::inspect::show::describe;
use super::inspect::terminal::style;
use super::output::{json, misused_for, percent_encoded, refused, say};
use crate::admin::{Explanation, GateState, Question};
use crate::config::Plan;
use crate::wiring;

/// The request that is explained, except for its URL and headers.
#[derive(Debug, Args)]
pub struct RequestArgs {
    /// Method of the request to explain
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    method: String,
    /// Address of the client whose request is explained
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    client: String,
}

impl RequestArgs {
    /// Returns the question about a request for this URL with these headers.
    pub fn question(&self, url: &str, headers: &[String]) -> Question {
        Question {
            method: self.method.clone(),
            client: self.client.clone(),
            ..Question::of(url, &headers.join("\n"))
        }
    }
}

/// Prints what a running Sluice would do with a request.
pub fn print_live(
    admin: &AdminArgs,
    question: &Question,
    as_json: bool,
    ascii: bool,
) -> anyhow::Result<()> {
    let parts = [
        ("url", &question.url),
        ("method", &question.method),
        ("headers", &question.headers),
        ("client", &question.client),
    ];
    let query = parts.map(|(name, value)| format!("{name}={}", percent_encoded(value)));
    let reply = admin.request("GET", &format!("/explain?{}", query.join("&")))?;
    if reply.status != 200 {
        return Err(refused(&reply.text()));
    }
    let answer: Value = serde_json::from_slice(&reply.body).context("the answer is not JSON")?;
    print(answer, as_json, ascii)
}

/// Prints what would happen to a request with this configuration.
pub fn print_plan(
    plan: &Plan,
    question: &Question,
    as_json: bool,
    ascii: bool,
) -> anyhow::Result<()> {
    let explanation = wiring::explain_plan(plan, question).map_err(|why| {
        let help = "write it as clients request it: http://HOST/PATH";
        misused_for(&question.url, &why, help)
    })?;
    print(serde_json::to_value(explanation)?, as_json, ascii)
}

fn print(answer: Value, as_json: bool, ascii: bool) -> anyhow::Result<()> {
    if as_json {
        return say(&json(&answer));
    }
    let explanation: Explanation = serde_json::from_value(answer)
        .context("the answer of the admin address can't be parsed")?;
    let style = style(ascii);
    let mut page = Page {
        style: &style,
        out: String::new(),
    };
    show(&mut page, &explanation);
    say(&page.out)
}

/// Writes an explanation for a terminal.
fn show(page: &mut Page<'_>, explanation: &Explanation) {
    let method = page.escaped(&explanation.method);
    let url = page.escaped(&explanation.url);
    page.line(&format!("{method} {url}"));
    entry(page, "client", Some(&explanation.client));
    entry(page, "site", explanation.site.as_ref());
    entry(page, "route", explanation.route.as_ref());
    entry(page, "handler", explanation.handler.as_ref());
    list(page, "gates", explanation.gates.iter().map(gate));
    list(page, "edits", explanation.edits.iter().cloned());
    entry(page, "rewritten", explanation.rewritten.as_ref());
    entry(page, "upstream", explanation.upstream.as_ref());
    list(page, "servers", explanation.servers.iter().cloned());
    entry(page, "cache", explanation.cache.as_ref());
    if let Some(key) = &explanation.key {
        entry(page, "key", Some(&key.primary));
        entry(page, "hash", Some(&key.hash));
        if !key.vary.is_empty() {
            entry(page, "vary", Some(&key.vary.join(", ")));
        }
    }
    if let Some(policy) = &explanation.policy {
        entry(page, "policy", Some(&policy.fill));
        list(page, " ", policy.rules.iter().cloned());
    }
    let decision = match &explanation.reason {
        Some(reason) => format!("{}: {reason}", explanation.decision),
        None => explanation.decision.clone(),
    };
    entry(page, "decision", Some(&decision));
    entry(page, "advice", explanation.advice.as_ref());
    let status = explanation.cache_status.as_ref();
    let header = status.map(|status| format!("Cache-Status: {status}"));
    entry(page, "header", header.as_ref());
    if let Some(answer) = &explanation.answer {
        entry(page, "answer", Some(&answer.status.to_string()));
        let lines = answer.headers.iter();
        list(
            page,
            " ",
            lines.map(|(name, value)| format!("{name}: {value}")),
        );
    }
    if let Some(object) = &explanation.stored {
        page.line("");
        page.line("stored:");
        describe(page, object);
    }
}

fn gate(gate: &GateState) -> String {
    let result = match (gate.passes, &gate.detail) {
        (Some(true), _) => "passes".to_owned(),
        (Some(false), Some(reason)) => format!("refuses: {reason}"),
        (Some(false), None) => "refuses".to_owned(),
        (None, _) => "not checked".to_owned(),
    };
    format!("{} {result}", gate.gate)
}

fn entry(page: &mut Page<'_>, label: &str, text: Option<&String>) {
    if let Some(text) = text {
        let text = page.escaped(text);
        page.entry(label, &text);
    }
}

/// Adds a label, and then one line for each text.
fn list(page: &mut Page<'_>, label: &str, texts: impl Iterator<Item = String>) {
    for (index, text) in texts.enumerate() {
        let label = if index == 0 { label } else { " " };
        entry(page, label, Some(&text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{AnswerState, KeyState, PolicyState};
    use crate::commands::inspect::layout::Style;

    #[test]
    fn an_explanation_is_shown_without_control_characters() {
        let explanation = Explanation {
            url: "http://a/\u{1b}[2J".to_owned(),
            method: "GET".to_owned(),
            client: "192.0.2.7".to_owned(),
            site: Some("*".to_owned()),
            route: Some("/*".to_owned()),
            handler: Some("proxy".to_owned()),
            gates: vec![
                GateState {
                    gate: "address".to_owned(),
                    passes: Some(true),
                    detail: None,
                },
                GateState {
                    gate: "requests".to_owned(),
                    passes: Some(false),
                    detail: Some("too-many-requests".to_owned()),
                },
                GateState {
                    gate: "signature".to_owned(),
                    ..GateState::default()
                },
            ],
            cache: Some("main".to_owned()),
            key: Some(KeyState {
                primary: "http://a/".to_owned(),
                hash: "00ff".to_owned(),
                ..KeyState::default()
            }),
            policy: Some(PolicyState {
                fill: "fill whole".to_owned(),
                rules: vec!["valid 200 1m".to_owned()],
            }),
            decision: "gate".to_owned(),
            reason: Some("too-many-requests".to_owned()),
            answer: Some(AnswerState {
                status: 429,
                headers: vec![("retry-after".to_owned(), "1".to_owned())],
            }),
            ..Explanation::default()
        };
        let style = Style {
            width: 80,
            ascii: true,
            colour: false,
        };
        let mut page = Page {
            style: &style,
            out: String::new(),
        };
        show(&mut page, &explanation);
        insta::assert_snapshot!(page.out, @r"
        GET http://a/\u{1b}[2J
        client     192.0.2.7
        site       *
        route      /*
        handler    proxy
        gates      address passes
                   requests refuses: too-many-requests
                   signature not checked
        cache      main
        key        http://a/
        hash       00ff
        policy     fill whole
                   valid 200 1m
        decision   gate: too-many-requests
        answer     429
                   retry-after: 1
        ");
    }
}
