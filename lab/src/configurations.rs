//! The configurations of the servers that an experiment starts, which its report contains.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// Most configurations of one experiment.
const COUNT_MAX: usize = 24;

/// Number of random characters at the end of a temporary folder's name.
const RANDOM: usize = 6;

/// Texts that precede a port, apart from an address and a colon: in the configurations of h2o, Squid and Traffic Server.
const BEFORE_PORT: [&str; 3] = ["  port: ", " parent ", "_SERVER_PORTS="];

/// The configuration with which an experiment started a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Name of the server, as in the experiment's tables.
    pub server: String,
    /// Text of the configuration files, or the command line of a server without such files.
    pub text: String,
}

/// The configurations of an experiment, in the order in which the servers first started. A server has one entry for each
/// distinct configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Configurations(Vec<Configuration>);

impl Configurations {
    /// Adds the configuration of a server that has started, if it has one and no equal one is kept. Configurations are
    /// equal if they differ only in ports and in the names of temporary folders, which change with each start. At most
    /// 24 are kept.
    pub(crate) fn keep<'a>(&mut self, server: &str, text: impl Into<Option<&'a str>>) {
        if let Some(text) = text.into() {
            self.push(Configuration {
                server: server.to_owned(),
                text: text.to_owned(),
            });
        }
    }

    /// Adds all configurations of another part of the experiment.
    pub(crate) fn append(&mut self, others: Configurations) {
        for other in others.0 {
            self.push(other);
        }
    }

    /// Returns all configurations.
    pub fn all(&self) -> &[Configuration] {
        &self.0
    }

    fn push(&mut self, new: Configuration) {
        let text = comparable(&new.text);
        let is_same =
            |one: &Configuration| one.server == new.server && comparable(&one.text) == text;
        if self.0.len() < COUNT_MAX && !self.0.iter().any(is_same) {
            self.0.push(new);
        }
    }
}

/// Returns the text with words in place of ports and of the random parts of folder names.
fn comparable(text: &str) -> String {
    without_ports(&without_random_names(text))
}

fn without_ports(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(begin);
        rest = number.trim_start_matches(|c: char| c.is_ascii_digit());
        out.push_str(before);
        match ends_before_port(&out) {
            true => out.push_str("PORT"),
            false => out.push_str(&number[..number.len() - rest.len()]),
        }
    }
    out.push_str(rest);
    out
}

fn ends_before_port(text: &str) -> bool {
    let is_address = |text: &str| {
        let before = text.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        text[before.len()..].parse::<Ipv4Addr>().is_ok()
    };
    let mut words = BEFORE_PORT.iter();
    words.any(|word| text.ends_with(word)) || text.strip_suffix(':').is_some_and(is_address)
}

fn without_random_names(text: &str) -> String {
    const BEGIN: &str = "/lab-";
    let mut parts = text.split(BEGIN);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '-';
        let end = part.find(is_end).unwrap_or(part.len());
        out.push_str(BEGIN);
        match end.checked_sub(RANDOM) {
            Some(kept) => {
                out.push_str(&part[..kept]);
                out.push_str("RANDOM");
            }
            None => out.push_str(&part[..end]),
        }
        out.push_str(&part[end..]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(all: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut configurations = Configurations::default();
        for (server, text) in all {
            configurations.keep(server, *text);
        }
        let all = configurations.0.into_iter();
        all.map(|one| (one.server, one.text)).collect()
    }

    #[test]
    fn equal_configurations_of_a_server_are_kept_once() {
        let text = |port: u16, name: &str| {
            format!("listen 127.0.0.1:{port};\nroot /tmp/lab-nginx-{name}/{port};\n")
        };
        let first = text(18_000, "aB3dEf");
        // The number of another file is no port.
        let (same, other) = (
            first.replace(":18000", ":9").replace("aB3dEf", "Xyz123"),
            text(18_001, "aB3dEf"),
        );
        let all = [
            ("nginx", &*first),
            ("nginx", &same),
            ("nginx", &other),
            ("nginx, threads", &first),
        ];
        let owned = |place: usize| (all[place].0.to_owned(), all[place].1.to_owned());
        assert_eq!(kept(&all), [owned(0), owned(2), owned(3)]);
    }

    #[test]
    fn ports_are_found_in_each_notation() {
        for (first, second) in [
            (
                "servers = [\"http://10.1.0.2:80\"]",
                "servers = [\"http://10.1.0.2:8080\"]",
            ),
            (
                "listen:\n  host: 127.0.0.1\n  port: 7\n",
                "listen:\n  host: 127.0.0.1\n  port: 8\n",
            ),
            (
                "cache_peer 127.0.0.1 parent 7 0",
                "cache_peer 127.0.0.1 parent 8 0",
            ),
            (
                "HTTP_SERVER_PORTS=7:ip-in=127.0.0.1",
                "HTTP_SERVER_PORTS=8:ip-in=127.0.0.1",
            ),
        ] {
            assert_eq!(comparable(first), comparable(second));
        }
        for text in [
            "workers = 2",
            "levels=1:2",
            "10.1.0.2",
            "1.2:3",
            "é:3",
            "7",
            "",
        ] {
            assert_eq!(comparable(text), text);
        }
    }

    #[test]
    fn the_number_of_configurations_is_bounded() {
        let mut configurations = Configurations::default();
        for number in 0..2 * COUNT_MAX {
            configurations.keep("Sluice", &*format!("workers = {number}\n"));
        }
        assert_eq!(configurations.all().len(), COUNT_MAX);
        configurations.keep("origin", None);
        let mut others = Configurations::default();
        others.keep("Sluice", "workers = 1\n");
        others.append(configurations);
        assert_eq!(others.all().len(), COUNT_MAX);
        let json = serde_json::to_string(&others).expect("JSON");
        assert!(
            json.starts_with("[{\"server\":\"Sluice\",\"text\":\"workers"),
            "{json}"
        );
    }
}
