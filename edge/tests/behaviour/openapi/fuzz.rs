//! Random requests, made from the description, can neither stop the program nor make it answer in a way that is not
//! described.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::thread;

use sluice_lab::client::{Client, ReadError};
use sluice_lab::noise::Dice;
use sluice_lab::soak;

use super::description::{Answer, Description};
use super::requests::{Maker, Request};
use super::site::{PENDING, SECURE, Site};

/// Number of clients, which send requests at the same time.
const CLIENTS: u64 = 4;
/// Number of requests of each client.
const REQUESTS: u32 = 1250;
/// Seed of the requests.
const SEED: u64 = 1;
/// Environment variable with another seed.
const SEED_VARIABLE: &str = "SLUICE_API_SEED";
/// A client sends an ordinary request to a listener each time after so many requests to the admin API.
const ORDINARY_EACH: u32 = 50;
/// Statuses from 500 on that are bounds, by operation: a stream may begin before the end of 16 others was noticed.
const BOUNDS: [(&str, u16); 1] = [("GET /stream", 503)];

fn seed() -> u64 {
    match std::env::var(SEED_VARIABLE) {
        Ok(text) => text.parse().expect("the seed is a number"),
        Err(_) => SEED,
    }
}

/// Returns values of parameters that name existing things.
fn known(site: &Site) -> BTreeMap<&'static str, Vec<String>> {
    let owned =
        |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    let urls = [
        "/c/a",
        "/c/vary",
        "/c/large",
        "/spare/a",
        "/gated/a",
        "/signed/a",
        "/files/a.txt",
        "/old/a",
        "/fixed",
        "/none",
    ];
    let urls: Vec<String> = urls.iter().map(|target| site.edge.url(target)).collect();
    // Most requests name members and series of the first scope, so that these exist.
    let scopes = ["worker", "cache", "server", "route"];
    let members = scopes
        .iter()
        .flat_map(|scope| site.names("/members", scope));
    let members = members.chain(vec![String::new(); 8]);
    let scopes = [&["edge"; 8][..], &scopes].concat();
    BTreeMap::from([
        ("url", urls.clone()),
        ("prefix", [urls, owned(&["/c/", "//127.0.0.1/"])].concat()),
        ("tag", owned(&["news", "sport"])),
        ("cache", owned(&["main", "small"])),
        (
            "method",
            owned(&["GET", "HEAD", "POST", "PURGE", "CONNECT", "BREW"]),
        ),
        (
            "headers",
            owned(&[
                "Accept-Language: de",
                "Range: bytes=5-\nCookie: a=b",
                "X-Forwarded-For: 10.0.0.1",
            ]),
        ),
        ("client", owned(&["127.0.0.1", "192.0.2.7", "::1"])),
        ("member", members.collect()),
        ("scope", owned(&scopes)),
        (
            "series",
            owned(&[
                "requests",
                "requests,request_duration_p99",
                "objects,bytes",
                "hits",
            ]),
        ),
        ("upstream", owned(&["origin", "spare"])),
        (
            "server",
            vec![site.server.clone(), "127.0.0.1:9".to_owned()],
        ),
        ("name", owned(&[SECURE, PENDING, "main.js", "style.css"])),
    ])
}

/// A client with a connection that stays open.
struct Sender<'a> {
    site: &'a Site,
    connection: Option<Client>,
}

impl Sender<'_> {
    fn send(&mut self, request: &Request) -> Result<Answer, ReadError> {
        let line = (request.method, request.target.as_str());
        let send = |client: &mut Client| Answer::of(client, line, &request.lines(), &request.body);
        // The connection may have ended after the last answer.
        if let Some(client) = &mut self.connection
            && let Ok(answer) = send(client)
        {
            return Ok(self.keep(answer));
        }
        let mut client = Client::connect(self.site.edge.admin)?;
        let answer = send(&mut client)?;
        self.connection = Some(client);
        Ok(self.keep(answer))
    }

    fn keep(&mut self, answer: Answer) -> Answer {
        let is_last = answer.head.header("connection") == Some("close");
        if is_last || answer.is_stream() {
            self.connection = None;
        }
        answer
    }
}

/// Numbers of answers by operation and status.
type Counts = BTreeMap<(String, u16), u32>;

/// Sends the requests of one client. The error names the request.
fn run(
    site: &Site,
    description: &Description,
    known: &BTreeMap<&'static str, Vec<String>>,
    client: u64,
) -> Result<Counts, String> {
    let mut maker = Maker::new(description, known, Dice::new(seed(), client));
    let mut sender = Sender {
        site,
        connection: None,
    };
    let mut counts = Counts::new();
    for n in 0..REQUESTS * soak::factor() {
        let request = maker.request();
        let found = check(&mut sender, description, &request);
        let (operation, status) = found.map_err(|why| {
            let seed = seed();
            format!(
                "{SEED_VARIABLE}={seed}, client {client}, request {n}: {why}\n{}",
                request.shown()
            )
        })?;
        *counts.entry((operation, status)).or_default() += 1;
        if n.is_multiple_of(ORDINARY_EACH) {
            let reply = site.edge.get("/fixed", &[]);
            assert_eq!(reply.text(), "fixed");
        }
    }
    Ok(counts)
}

/// Sends a request and checks the answer. Returns operation and status.
fn check(
    sender: &mut Sender<'_>,
    description: &Description,
    request: &Request,
) -> Result<(String, u16), String> {
    let (method, target) = (request.method, request.target.as_str());
    let answer = sender.send(request).map_err(|error| error.to_string())?;
    let status = answer.head.status;
    let operation = description.operation_of(method, target);
    let operation = operation.map_or_else(String::new, |operation| operation.name());
    let is_bound = BOUNDS.contains(&(operation.as_str(), status));
    if status >= 500 && !is_bound {
        return Err(format!("a failure: {}", answer.shown()));
    }
    let checked = description.check(method, target, &answer);
    checked.map_err(|why| format!("{why}: {}", answer.shown()))?;
    Ok((operation, status))
}

#[test]
fn random_requests_get_described_answers_and_harm_nothing() {
    let site = Site::start();
    let description = Description::of(&site.edge);
    let known = known(&site);
    let mut counts = Counts::new();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (site, description, known) = (&site, &description, &known);
                scope.spawn(move || run(site, description, known, client))
            })
            .collect();
        for client in clients {
            let of_client = client.join().expect("a client");
            let of_client = of_client.unwrap_or_else(|why| panic!("{why}"));
            for (key, n) in of_client {
                *counts.entry(key).or_default() += n;
            }
        }
    });
    assert_eq!(site.edge.counter("panics"), 0);
    site.put_servers_up();
    site.assert_serves();
    assert_reached(&description, &counts);
}

/// Checks that the requests had effects on every page, and also refusals if the page reads something.
fn assert_reached(description: &Description, counts: &Counts) {
    let mut shown = String::new();
    for ((operation, status), n) in counts {
        let _ = writeln!(shown, "{operation} {status}: {n}");
    }
    for operation in description.operations() {
        let name = operation.name();
        let has = |statuses: std::ops::Range<u16>| {
            let mut of = counts.keys().filter(|(of, _)| *of == name);
            of.any(|(_, status)| statuses.contains(status))
        };
        let is_refused = has(400..500) || !description.has_input(&operation);
        assert!(has(200..400) && is_refused, "{name}\n{shown}");
    }
}
