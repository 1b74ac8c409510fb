//! The options of a load as they were given on the command line, for its result.

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde::{Serialize, Serializer};

use super::options::BenchArgs;
use crate::commands::output::{harmless, shell_word};

/// Options that do not change the load.
const OUTPUT: [&str; 3] = ["json", "report", "pid"];
/// Options that say which requests a load sends, and when.
const MODE: [&str; 12] = [
    "rate",
    "rising-to",
    "close",
    "http2",
    "range",
    "seek",
    "unique",
    "zipf",
    "set",
    "replay",
    "speed",
    "verify",
];
/// Headers whose values are not shown, because a result may be published.
const SECRET: [&str; 4] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
];

/// The options of `sluice bench`, and the texts of those that were given.
#[derive(Debug)]
pub struct Bench {
    pub args: BenchArgs,
    pub given: Given,
}

impl Args for Bench {
    fn augment_args(command: Command) -> Command {
        BenchArgs::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        BenchArgs::augment_args_for_update(command)
    }
}

impl FromArgMatches for Bench {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Bench, clap::Error> {
        Ok(Bench {
            given: Given::of(matches),
            args: BenchArgs::from_arg_matches(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Bench::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The text of one option.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Value {
    /// The option has no value.
    Present(bool),
    One(String),
    /// The option may be given several times.
    Several(Vec<String>),
}

/// The options of a load that were given, by their long names without `--`. Defaults are not included.
#[derive(Debug, Default)]
pub struct Given(Vec<(String, Value)>);

impl Serialize for Given {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl Given {
    fn of(matches: &ArgMatches) -> Given {
        let command = BenchArgs::augment_args(Command::new("bench"));
        let options = command.get_arguments().filter_map(|option| {
            let name = option.get_long().filter(|name| !OUTPUT.contains(name))?;
            let id = option.get_id().as_str();
            if matches.value_source(id) != Some(ValueSource::CommandLine) {
                return None;
            }
            let texts = matches.get_raw(id).into_iter().flatten();
            let mut texts =
                texts.map(|text| without_secret(name, &harmless(&text.to_string_lossy())));
            let value = match option.get_action() {
                ArgAction::Append => Value::Several(texts.collect()),
                ArgAction::SetTrue => Value::Present(true),
                _ => Value::One(texts.next()?),
            };
            Some((name.to_owned(), value))
        });
        Given(options.collect())
    }

    /// Returns the options that say which requests the load sends, and when, as words of a shell.
    pub fn mode(&self) -> String {
        words(
            self.0
                .iter()
                .filter(|(name, _)| MODE.contains(&name.as_str())),
        )
    }

    /// Returns the command that repeats the load, apart from the values of secret headers.
    pub fn command(&self, urls: &[String]) -> String {
        let urls = urls.iter().map(|url| shell_word(&harmless(url)));
        let urls = urls.collect::<Vec<_>>().join(" ");
        let options = words(self.0.iter());
        format!("sluice bench {urls} {options}")
            .trim_end()
            .to_owned()
    }
}

/// Returns the value of an option, without the secret if the option is a header that has one.
fn without_secret(option: &str, value: &str) -> String {
    let name = value.split(':').next().unwrap_or_default();
    match option == "header" && SECRET.contains(&name.to_ascii_lowercase().as_str()) {
        true => format!("{name}: (not shown)"),
        false => value.to_owned(),
    }
}

fn words<'a>(options: impl Iterator<Item = &'a (String, Value)>) -> String {
    let words = options.map(|(name, value)| match value {
        Value::Present(_) => format!("--{name}"),
        Value::One(text) => format!("--{name} {}", shell_word(text)),
        Value::Several(texts) => {
            let texts = texts
                .iter()
                .map(|text| format!("--{name} {}", shell_word(text)));
            texts.collect::<Vec<_>>().join(" ")
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Bench {
        let command = Bench::augment_args(Command::new("bench"));
        let arguments = [&["bench"], arguments].concat();
        let matches = command.try_get_matches_from(arguments).expect("options");
        Bench::from_arg_matches(&matches).expect("options")
    }

    #[test]
    fn given_options_are_kept_as_they_were_written() {
        let bench = parsed(&[
            "http://a/",
            "http://a/b c",
            "-c",
            "50",
            "-r",
            "5e3",
            "--close",
            "-H",
            "A: it's",
            "-H",
            "authorization: Bearer x",
            "--json",
            "--report",
            "x.html",
            "--pid",
            "1",
        ]);
        assert_eq!(bench.args.connections, 50);
        let json = serde_json::to_value(&bench.given).expect("JSON");
        let expected = serde_json::json!({
            "connections": "50",
            "rate": "5e3",
            "close": true,
            "header": ["A: it's", "authorization: (not shown)"],
        });
        assert_eq!(json, expected);
        assert_eq!(bench.given.mode(), "--rate 5e3 --close");
        assert_eq!(
            bench.given.command(&bench.args.urls),
            "sluice bench http://a/ 'http://a/b c' --connections 50 --rate 5e3 --close --header 'A: it'\\''s' \
             --header 'authorization: (not shown)'"
        );
        let usual = parsed(&["http://a/"]);
        assert_eq!(usual.given.mode(), "");
        assert_eq!(
            usual.given.command(&usual.args.urls),
            "sluice bench http://a/"
        );
    }
}
