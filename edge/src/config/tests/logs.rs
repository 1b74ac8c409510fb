//! Tests of logs and privileges: the errors with their positions, and the plan.

use super::*;
use crate::sys::sandbox::Reach;
use crate::telemetry::LogRule;
use crate::telemetry::messages::MessageTarget;

/// Returns `LEAST` with these keys in its route.
fn route(keys: &str) -> String {
    format!("{LEAST}{keys}\n")
}

#[test]
fn errors_are_reported_at_their_position() {
    for (text, title, place, help) in [
        (
            "[log]\nformat = '{client} {statsu}'\n",
            "unknown variable `statsu`",
            ":2:20",
            "did you mean `status`?",
        ),
        (
            "[log]\nformat = '{zzzzzz}'\n",
            "unknown variable `zzzzzz`",
            ":2:11",
            "`request.NAME`",
        ),
        (
            "[log]\nformat = '{host}{target}'\n",
            "two variables without a separator",
            ":2:17",
            "put a space",
        ),
        (
            "[log]\nformat = '{host}ms'\n",
            "is ambiguous",
            ":2:17",
            "put a space",
        ),
        (
            "[log]\nformat = '{host'\n",
            "an unmatched brace",
            ":2:11",
            "written twice",
        ),
        (
            "[log]\nformat = \"{host}\\n\"\n",
            "this character",
            ":2:10",
            "visible ASCII",
        ),
        (
            "[log]\nformat = 'jsn'\n",
            "unknown format `jsn`",
            ":2:11",
            "did you mean `json`?",
        ),
        (
            "[log]\nformat = 'nothing at all'\n",
            "a format without a variable",
            ":2:11",
            "\"combined\"",
        ),
        (
            "[log]\nformat = '{request.a b}'\n",
            "`a b` is not the name",
            ":2:11",
            "{request.accept-language}",
        ),
        (
            "[log]\nformat = '{request.Cookie}'\n",
            "shows `cookie`",
            ":2:10",
            "protect the log",
        ),
        (
            "[log]\naccess = ''\n",
            "`access` is not a path",
            ":2:10",
            "standard output",
        ),
        (
            "[log]\nerror = ''\n",
            "`error` is not a path",
            ":2:9",
            "standard error",
        ),
        (
            "[server]\nuser = ':'\n",
            "`user` is not a user",
            ":2:8",
            "www-data",
        ),
        (
            "[server]\nuser = '33'\n",
            "a user's number without a group",
            ":2:8",
            "33:33",
        ),
        (
            "[server]\nuser = 'root'\n",
            "`user` is root",
            ":2:8",
            "without rights",
        ),
        (
            "[server]\nsandbox = 'yes'\n",
            "is not a value of `sandbox`",
            ":2:11",
            "\"auto\"",
        ),
    ] {
        let said = said(&with(text));
        for wanted in [title, place, help] {
            assert!(
                said.contains(wanted),
                "{text}: {wanted:?} is not in\n{said}"
            );
        }
    }
    for (keys, wanted) in [
        ("log = \"no\"", "expected true, false or a table"),
        ("log = { statuses = [\"4x\"] }", "this is not a status"),
        ("log = { statuses = [\"0xx\"] }", "this is not a status"),
        ("log = { sample = 1.5 }", "`sample` is out of bounds"),
        (
            "log = { slower_than = \"0s\" }",
            "`slower_than` is out of bounds",
        ),
        ("log = { smaple = 1 }", "did you mean `sample`?"),
    ] {
        let said = said(&route(keys));
        assert!(
            said.contains(wanted),
            "{keys}: {wanted:?} is not in\n{said}"
        );
    }
}

#[test]
fn a_rule_has_a_share_of_the_rest() {
    let rule = |keys: &str| plan(&route(keys)).sites[0].routes[0].log.clone();
    assert_eq!(rule(""), None);
    assert_eq!(rule("log = true"), Some(LogRule::all()));
    assert_eq!(rule("log = false"), Some(LogRule::none()));
    assert_eq!(rule("log = {}"), Some(LogRule::all()));
    let sampled = rule("log = { sample = 0.25 }").expect("a rule");
    assert_eq!((sampled.selects(), sampled.sample), (false, 0.25));
    let errors = rule("log = { statuses = [\"4xx\", \"500\", 404, \"502-504\"] }").expect("a rule");
    assert_eq!(
        (errors.statuses, errors.sample),
        (vec![400..=499, 500..=500, 404..=404, 502..=504], 0.0)
    );
    let one = rule("log = { statuses = 404 }").expect("a rule");
    assert_eq!(one.statuses, [404..=404]);
    let of_site = LEAST.replace("[[site]]\n", "[[site]]\nlog = false\n");
    assert_eq!(plan(&of_site).sites[0].routes[0].log, Some(LogRule::none()));
    let both = plan(&format!("{of_site}log = true\n"));
    assert_eq!(both.sites[0].routes[0].log, Some(LogRule::all()));
}

#[test]
fn logs_and_privileges_are_described() {
    let described = |text: &str| describe(&plan(text));
    let all = described(&with(
        "[server]\nuser = \"www-data:disk\"\n[log]\naccess = \"/logs/a\"\nerror = \"/logs/e\"\n\
         format = '{client} {status}'\n",
    ));
    for line in [
        "messages from level info on to /logs/e; access log as `{client} {status}` to /logs/a\n",
        "as user www-data:disk, sandboxed, if the kernel supports it: reads nothing and its configuration, \
         writes /logs\n",
    ] {
        assert!(all.contains(line), "{line:?} is not in\n{all}");
    }
    assert!(!described(LEAST).contains("sandboxed"));
    assert!(described(&with("[server]\nsandbox = true\n")).contains("\nsandboxed: reads nothing"));
    for (keys, words) in [
        ("log = false", "    not logged\n"),
        ("log = true", "    all of it logged\n"),
        ("log = { sample = 0.01 }", "    1 % of it logged\n"),
        (
            "log = { statuses = [\"404\", \"5xx\"], slower_than = \"1s\", sample = 0.1 }",
            "    logged: 404, 5xx, requests longer than 1s, 10 % of the rest\n",
        ),
        ("log = { statuses = [\"5xx\"] }", "    logged: 5xx\n"),
    ] {
        let said = described(&route(keys));
        assert!(said.contains(words), "{words:?} is not in\n{said}");
    }
}

#[test]
fn the_plan_lists_all_files_that_it_needs() {
    let text = "[log]\naccess = \"/logs/a\"\nerror = \"here.log\"\n\
                [volume.a]\npath = \"/disk/a\"\nsize = \"16MiB\"\n[cache.c]\nvolumes = [\"a\"]\n";
    let files = "[[site.route]]\nfiles = { root = \"/srv/www\", symlinks = \"any\" }\n";
    let text = with(&format!(
        "{text}[upstream.named]\nservers = [\"http://a.example\"]\n"
    ));
    let text = text.replace(
        "[[site.route]]\n",
        &format!("{files}[[site.route]]\npath = \"/x\"\n"),
    );
    let plan = plan(&text);
    assert_eq!(plan.log.messages, MessageTarget::File("here.log".into()));
    let reached: Vec<_> = reach(&plan)
        .into_iter()
        .map(|a| (a.path, a.reach))
        .collect();
    assert_eq!(
        reached,
        [
            ("/srv/www".into(), Reach::Read),
            ("/disk/a".into(), Reach::ReadWrite),
            ("/logs".into(), Reach::Append),
            (".".into(), Reach::Append),
        ]
    );
    assert!(looks_up_names(&plan));
    assert!(!looks_up_names(&super::plan(LEAST)));
    let said = said(&text.replacen("[log]", "[server]\nsandbox = true\n[log]", 1));
    assert!(said.contains("is limited by `sandbox`"), "{said}");
}
