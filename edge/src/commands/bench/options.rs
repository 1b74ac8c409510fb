//! The options of `sluice bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values;

/// The place `{n}` in help texts. clap would make `{n}` an end of the line, so an escape sequence without an effect
/// stands within. clap removes the sequence if the output is no terminal.
macro_rules! place {
    () => {
        "{\u{1b}[0mn}"
    };
}

const UNIQUE: &str = concat!(
    "Replace ",
    place!(),
    " in the URLs by a number that is never repeated, as in http://127.0.0.1:8080/",
    place!(),
    ".ts"
);
const ZIPF: &str = concat!(
    "Replace ",
    place!(),
    " in the URLs by the number of an object, which Zipf's distribution chooses; 0.9 is typical of web pages"
);
const SET: &str = concat!(
    "Number of objects for --zipf: ",
    place!(),
    " is a number from 0 to COUNT - 1"
);

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// URLs to request in turn, all on one server, as in http://127.0.0.1:8080/a
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Number of connections
    #[arg(short, long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections: u32,
    /// Number of threads, which share the connections [default: the number of cores that it may use]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Pin each thread to a core
    #[arg(long)]
    pub cores: bool,
    /// Duration, as in 30s [default: 10s, or none with --requests or --replay]
    #[arg(short, long, value_name = "TIME", value_parser = values::time)]
    pub duration: Option<Duration>,
    /// Number of requests after which the load ends
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Requests per second; latencies count from the time at which a request was due [default: as fast as responses come]
    #[arg(short, long, value_name = "N", value_parser = values::rate)]
    pub rate: Option<f64>,
    /// Rate to which --rate rises until the median latency shows that the server is saturated
    #[arg(long, value_name = "N", requires = "rate", value_parser = values::rate)]
    pub rising_to: Option<f64>,
    /// Median latency above which the server counts as saturated
    #[arg(long, value_name = "TIME", requires = "rising_to", default_value = "50ms", value_parser = values::time)]
    pub saturated: Duration,
    /// Use a connection for each request
    #[arg(long)]
    pub close: bool,
    /// Use HTTP/2: as agreed in the TLS handshake with https://, and without asking with http://
    #[arg(long)]
    pub http2: bool,
    /// Concurrent requests on each connection with HTTP/2 [default: 10, or 1 with --close]
    #[arg(long, value_name = "N", requires = "http2", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub streams: Option<u32>,
    /// Header of all requests; may be given several times
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = values::header)]
    pub header: Vec<(String, String)>,
    /// Request ranges of this size at random positions, as in 64KiB
    #[arg(long, value_name = "SIZE", value_parser = values::size, conflicts_with_all = ["zipf", "replay"])]
    pub range: Option<u64>,
    /// Request ranges as a video player does: one after the other, with a jump now and then
    #[arg(long, requires = "range")]
    pub seek: bool,
    #[arg(long, help = UNIQUE, conflicts_with_all = ["zipf", "replay"])]
    pub unique: bool,
    #[arg(long, help = ZIPF, value_name = "EXPONENT", requires = "set", conflicts_with = "replay", value_parser = values::exponent)]
    pub zipf: Option<f64>,
    #[arg(long, help = SET, value_name = "COUNT", requires = "zipf", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub set: Option<u32>,
    /// Repeat the GET requests of an access log (combined or JSON) at their times; `-`: standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "requests"])]
    pub replay: Option<PathBuf>,
    /// Repeat the log this many times as fast
    #[arg(long, value_name = "X", requires = "replay", default_value_t = 1.0, value_parser = values::speed)]
    pub speed: f64,
    /// Compare each body with the one of the lab's test origin, whose bytes name their offsets
    #[arg(long)]
    pub verify: bool,
    /// Connect from this many source addresses in 127.0.0.0/8
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=65_536))]
    pub sources: u32,
    /// Accept any certificate of the server
    #[arg(long)]
    pub insecure: bool,
    /// File with the authorities that sign the server's certificate, in PEM [default: those of the system]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub ca: Option<PathBuf>,
    /// Time within which a response must be complete
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::time)]
    pub timeout: Duration,
    /// Expected status; others are errors [default: 200, and 206 for ranges]
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(200..=599))]
    pub expect: Option<u16>,
    /// Process of the server, whose CPU time and memory are measured
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Write a report with a plot as an HTML file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::Command;
    use clap::error::ErrorKind;

    use super::*;

    const DOCUMENTATION: &str = include_str!("../../../../docs/bench.md");

    /// The texts between single backticks.
    fn quoted(cell: &str) -> Vec<&str> {
        cell.split('`').skip(1).step_by(2).collect()
    }

    /// Whether an option refuses a value, apart from the options that it requires.
    fn refuses(option: &str, value: &str) -> bool {
        let command = BenchArgs::augment_args(Command::new("bench"));
        let given = format!("{option}={value}");
        let parsed = command.try_get_matches_from(["bench", "http://a/", &given]);
        parsed.is_err_and(|error| error.kind() == ErrorKind::ValueValidation)
    }

    #[test]
    fn the_table_of_options_has_all_options_defaults_and_bounds() {
        let rows = DOCUMENTATION
            .lines()
            .filter(|line| line.starts_with("| `-"));
        let rows: Vec<Vec<&str>> = rows.map(|line| line.split('|').collect()).collect();
        let command = BenchArgs::augment_args(Command::new("bench"));
        let options = command
            .get_arguments()
            .filter(|option| option.get_long().is_some());
        let options: Vec<_> = options.collect();
        assert_eq!(rows.len(), options.len());
        for (row, option) in rows.iter().zip(options) {
            let long = format!("--{}", option.get_long().unwrap_or_default());
            let short = option.get_short().map(|short| format!("-{short}"));
            let names: Vec<String> = short.into_iter().chain([long.clone()]).collect();
            assert_eq!(quoted(row[1]), names);
            let defaults = option.get_default_values().iter();
            let default = defaults.filter_map(|value| value.to_str()).next();
            if let Some(default) = default.filter(|_| option.get_action().takes_values()) {
                assert_eq!(quoted(row[2]).first(), Some(&default), "{long}");
            }
            let [least, most, ..] = quoted(row[3])[..] else {
                continue;
            };
            assert!(!refuses(&long, least) && !refuses(&long, most), "{long}");
            let next = |bound: &str, by: i128| {
                let number = bound
                    .parse::<i128>()
                    .map(|number| (number + by).to_string());
                number.unwrap_or_else(|_| "0.0009".to_owned())
            };
            let (below, above) = match (least, most) {
                ("1ms", "365days") => ("999us".to_owned(), "366days".to_owned()),
                (least, most) => (next(least, -1), next(most, 1)),
            };
            assert!(refuses(&long, &below), "{long} {below}");
            assert!(refuses(&long, &above), "{long} {above}");
        }
    }
}
