//! The help of all commands: the commands in groups, and examples.

use std::fmt::Write as _;

use clap::Command;

/// Groups of commands, in the order of the help.
const GROUPS: &[(&str, &[&str])] = &[
    ("Run", &["demo", "serve", "check", "reload"]),
    ("Look inside", &["status", "top", "inspect"]),
    ("Operate", &["purge", "servers", "certs", "trust", "sign"]),
    ("Measure", &["bench", "lab"]),
    ("Shell", &["completions", "man", "help"]),
];

/// Examples of commands.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "serve",
        &[
            "sluice serve                                        # with ./sluice.toml",
            "sluice serve -c /etc/sluice/sluice.toml",
            "sluice serve --origin http://127.0.0.1:9000 --listen 0.0.0.0:8080 --memory 1GiB",
            "sluice serve --files /srv/www",
        ],
    ),
    (
        "check",
        &[
            "sluice check                                        # ./sluice.toml",
            "sluice check new.toml --strict",
            "sluice check --explain http://cdn.example.com/video.mp4",
            "sluice check --system",
        ],
    ),
    (
        "demo",
        &[
            "sluice demo                                         # until Ctrl-C",
            "sluice demo --try                                   # makes its requests itself, and ends",
        ],
    ),
    (
        "bench",
        &[
            "sluice bench http://127.0.0.1:8080/a.jpg            # as many requests as the server can answer",
            "sluice bench --rate 1000 http://127.0.0.1:8080/a.jpg",
        ],
    ),
    (
        "purge",
        &[
            "sluice purge http://cdn.example.com/video.mp4",
            "sluice purge --prefix http://cdn.example.com/images/",
            "sluice purge --tag product-17 --soft",
        ],
    ),
    (
        "inspect",
        &["sluice inspect http://cdn.example.com/video.mp4"],
    ),
    ("status", &["sluice status", "sluice status --json"]),
    ("top", &["sluice top", "sluice top --once"]),
    (
        "completions",
        &[
            "sluice completions bash > /usr/share/bash-completion/completions/sluice",
            "sluice completions zsh > /usr/local/share/zsh/site-functions/_sluice",
            "sluice completions fish > ~/.config/fish/completions/sluice.fish",
        ],
    ),
    (
        "man",
        &[
            "sluice man purge | man -l -                         # reads one page",
            "sluice man --folder /usr/local/share/man/man1       # writes all pages",
        ],
    ),
];

/// Lists the commands by group in the help of the program, and adds examples to the help of commands.
pub(super) fn with_groups_and_examples(program: Command) -> Command {
    let heading = program.get_styles().get_header();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{heading}Options:{heading:#}\n{{options}}{{after-help}}",
        groups(&program)
    );
    let program = program.help_template(template);
    EXAMPLES.iter().fold(program, |program, (name, examples)| {
        // A build may lack a command.
        match program.find_subcommand(name) {
            None => program,
            Some(_) => program.mut_subcommand(name, |command| with_examples(command, examples)),
        }
    })
}

/// Returns the list of all commands with their descriptions, by group.
fn groups(program: &Command) -> String {
    let styles = program.get_styles();
    let (heading, literal) = (styles.get_header(), styles.get_literal());
    let width = GROUPS.iter().flat_map(|(_, names)| *names);
    let width = width.map(|name| name.len()).max().unwrap_or_default();
    let mut text = String::new();
    // Writing to a String can't fail.
    for (group, names) in GROUPS {
        let _ = writeln!(text, "{heading}{group}:{heading:#}");
        for name in *names {
            if let Some(what) = description(program, name) {
                let _ = writeln!(text, "  {literal}{name:width$}{literal:#}  {what}");
            }
        }
        text.push('\n');
    }
    text
}

/// Returns the description of a command; `None` if this build does not have it.
fn description(program: &Command, name: &str) -> Option<String> {
    // The library adds this command when it parses.
    if name == "help" {
        return Some("Print this help, or that of a command".to_owned());
    }
    Some(program.find_subcommand(name)?.get_about()?.to_string())
}

fn with_examples(command: Command, examples: &[&str]) -> Command {
    let heading = command.get_styles().get_header();
    let mut text = match command.get_after_help() {
        Some(notes) => format!("{notes}\n\n"),
        None => String::new(),
    };
    let _ = write!(text, "{heading}Examples:{heading:#}");
    for example in examples {
        let _ = write!(text, "\n  {example}");
    }
    command.after_help(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::program;

    #[test]
    fn each_command_is_in_one_group() {
        let program = program();
        let visible = program.get_subcommands().filter(|one| !one.is_hide_set());
        let mut visible: Vec<&str> = visible.map(Command::get_name).collect();
        let listed = GROUPS.iter().flat_map(|(_, names)| *names).copied();
        let mut listed: Vec<&str> = listed
            .filter(|name| description(&program, name).is_some())
            .collect();
        visible.push("help");
        visible.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, visible);
    }

    /// Examples have no words in quotes, and a comment after `#`, or a redirection or pipe, which the shell removes.
    #[test]
    fn each_example_is_a_valid_command_line() {
        for (name, examples) in EXAMPLES {
            if program().find_subcommand(name).is_none() {
                continue;
            }
            for example in *examples {
                let end = example.find(['#', '>', '|']).unwrap_or(example.len());
                let words = example[..end].split_whitespace();
                let parsed = program().try_get_matches_from(words);
                let matches = parsed.unwrap_or_else(|error| panic!("{example}: {error}"));
                assert_eq!(matches.subcommand_name(), Some(*name), "{example}");
            }
        }
    }
}
