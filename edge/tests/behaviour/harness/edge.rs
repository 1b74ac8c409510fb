//! The running program under test, with helpers for requests, status and signals.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output};
use std::sync::Once;
use std::thread;

use rustix::process::{Signal, getrlimit, setrlimit};
use serde_json::Value;
use sluice_lab::client::{self, Client, ClientOptions, ClientTls, Http2Mark, Reply};
use sluice_lab::pauses;
use sluice_lab::process::{Launch, Process};
use tempfile::TempDir;

use super::{SOON, eventually, setup};

/// Raises the limit of file descriptors for this process and its children. Tests with many clients
/// need more descriptors than many systems permit by default.
fn raise_descriptors() {
    let mut limit = getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(rustix::process::Resource::Nofile, limit).expect("up to the maximum it is free");
}

/// Returns the address of the first listener, and the TLS that clients use with it, if the listener has TLS.
fn listener(process: &mut Process) -> (SocketAddr, Option<ClientTls>) {
    let line = process
        .wait_line("listening on http", SOON)
        .expect("the program says where it listens");
    let (scheme, address) = line.split_once("://").expect("a URL");
    let address = address.parse().expect("an address and a port");
    let tls = scheme.ends_with("https").then(setup::tls);
    set_tls(address, tls.as_ref());
    (address, tls)
}

/// Makes clients use this TLS with an address, or none. An ended program may have had the address before.
fn set_tls(address: SocketAddr, tls: Option<&ClientTls>) {
    match tls {
        Some(tls) => client::encrypt_all_to(address, tls.clone()),
        None => client::encrypt_none_to(address),
    }
}

/// Returns the admin address.
fn admin(process: &mut Process) -> SocketAddr {
    let line = process
        .wait_line("admin on http", SOON)
        .expect("the program says where it listens");
    let (_, address) = line.split_once("://").expect("a URL");
    let address = address.parse().expect("an address and a port");
    set_tls(address, None);
    client::speak_http1_to(address);
    address
}

/// The running program, which is killed on drop.
pub struct Edge {
    /// The address for clients.
    pub http: SocketAddr,
    /// The address of the admin API.
    pub admin: SocketAddr,
    /// The process.
    pub process: Process,
    folder: TempDir,
    /// The TLS that all clients use with the first listener.
    tls: Option<ClientTls>,
    /// The TLS that all clients use with the admin address.
    admin_tls: Option<ClientTls>,
    /// The mark that all clients speak HTTP/2 with the first listener.
    http2: Option<Http2Mark>,
}

impl Edge {
    /// Runs the program with command-line options only.
    pub fn with_options(options: &[&str]) -> Edge {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let launch = Launch::new("sluice", env!("CARGO_BIN_EXE_sluice"), folder.path());
        let options = options.iter().copied();
        Edge::launch(&launch.args(["serve"]).args(options), folder, false)
    }

    /// Starts the program. `http2`: whether all clients speak HTTP/2 with the first listener.
    pub(super) fn launch(launch: &Launch, folder: TempDir, http2: bool) -> Edge {
        static RAISED: Once = Once::new();
        RAISED.call_once(raise_descriptors);
        let mut process = launch.start().expect("the program starts");
        let (http, tls) = listener(&mut process);
        // An ended program may have had the address before.
        client::speak_http1_to(http);
        let http2 = http2.then(|| client::speak_http2_to(http));
        Edge {
            http,
            admin: admin(&mut process),
            process,
            folder,
            tls,
            admin_tls: None,
            http2,
        }
    }

    /// Makes all clients use TLS with the admin address.
    pub fn encrypt_admin(&mut self, tls: ClientTls) {
        set_tls(self.admin, Some(&tls));
        self.admin_tls = Some(tls);
    }

    /// Sends a GET on a new connection.
    pub fn get(&self, target: &str, headers: &[(&str, &str)]) -> Reply {
        self.ask("GET", target, headers, b"")
    }

    /// Sends a request on a new connection.
    pub fn ask(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        client::once(self.http, method, target, headers, body)
            .unwrap_or_else(|error| panic!("{method} {target}: {error}"))
    }

    /// Sends these bytes on a new connection. Returns all received bytes as text, once the edge has
    /// closed the connection.
    pub fn send_raw(&self, request: &[u8]) -> String {
        let mut client = self.client();
        client.send_raw(request).expect("it is taken");
        let answer = client.read_to_end().expect("an end");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Opens a new connection.
    pub fn client(&self) -> Client {
        Client::connect(self.http).expect("the program accepts")
    }

    /// Opens a new connection with a small receive buffer. A client that stops reading thus soon
    /// blocks the edge.
    pub fn slow_reader(&self) -> Client {
        let options = ClientOptions {
            receive_buffer: Some(4 << 10),
            ..ClientOptions::default()
        };
        Client::connect_with(self.http, &options).expect("the program accepts")
    }

    /// Sends a GET to the admin address.
    pub fn get_admin(&self, target: &str) -> Reply {
        client::get(self.admin, target, &[]).expect("the admin address answers")
    }

    /// Returns the parsed content of `/status`.
    pub fn status(&self) -> Value {
        serde_json::from_slice(&self.get_admin("/status").body).expect("JSON")
    }

    /// Returns the value of a counter, added up over all workers.
    pub fn counter(&self, name: &str) -> u64 {
        let counters = &self.status()["counters"];
        counters[name]
            .as_u64()
            .unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// Returns a number from the status of the buffers of bodies.
    pub fn buffers(&self, name: &str) -> u64 {
        let state = &self.status()["buffers"];
        state[name]
            .as_u64()
            .unwrap_or_else(|| panic!("no {name} in {state}"))
    }

    /// Returns a number from the status of the cache `main`.
    pub fn cache_state(&self, name: &str) -> u64 {
        let state = &self.status()["caches"]["main"];
        state[name]
            .as_u64()
            .unwrap_or_else(|| panic!("no {name} in {state}"))
    }

    /// Returns the scheme of this edge's URLs: `https` if its clients use TLS.
    pub fn scheme(&self) -> &'static str {
        match client::encrypts_to(self.http) {
            true => "https",
            false => "http",
        }
    }

    /// Returns the URL of a target of this edge.
    pub fn url(&self, target: &str) -> String {
        format!("{}://{}{target}", self.scheme(), self.http)
    }

    /// Returns the status of the objects stored for a target, from `/status?url=`.
    pub fn objects(&self, target: &str) -> Vec<Value> {
        self.objects_of(&self.http.to_string(), target)
    }

    /// Returns the status of the objects stored for a target of this host, from `/status?url=`.
    pub fn objects_of(&self, host: &str, target: &str) -> Vec<Value> {
        let url = format!("{}://{host}{target}", self.scheme()).replace('&', "%26");
        let body = self.get_admin(&format!("/status?url={url}")).body;
        let caches: Vec<Value> = serde_json::from_slice(&body).expect("JSON");
        let objects = caches
            .iter()
            .flat_map(|cache| cache["objects"].as_array().expect("a list"));
        objects.cloned().collect()
    }

    /// Runs a `sluice` command with these arguments and the admin address of this edge.
    pub fn command(&self, arguments: &[&str]) -> Output {
        pauses::point();
        Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(arguments)
            .args(["--admin", &self.admin.to_string()])
            .output()
            .expect("the program starts")
    }

    /// Replaces the configuration file.
    pub fn rewrite(&self, text: &str) {
        pauses::point();
        let folder = self.folder.path();
        let text = match self.http2 {
            Some(_) => setup::with_protocols(text),
            None => text.to_owned(),
        };
        let text = setup::with_certificate(&text, folder);
        fs::write(folder.join("sluice.toml"), text).expect("the file can be written");
    }

    /// Returns the path of a file in the test's temporary folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the lines of the access log, once it has at least this many.
    pub fn log(&self, lines: usize) -> Vec<String> {
        let read = || -> Vec<String> {
            let text = fs::read_to_string(self.file("access.log")).unwrap_or_default();
            // The last line may be written in two steps.
            let whole = text
                .split_inclusive('\n')
                .filter_map(|line| line.strip_suffix('\n'));
            whole.map(str::to_owned).collect()
        };
        eventually("lines in the access log", || read().len() >= lines);
        read()
    }

    /// Returns the lines of the access log as JSON objects, once it has at least this many.
    pub fn json_log(&self, lines: usize) -> Vec<Value> {
        let parse = |line: &String| serde_json::from_str(line).expect("a line is one object");
        self.log(lines).iter().map(parse).collect()
    }

    /// Sends the process a signal.
    pub fn signal(&self, signal: Signal) {
        pauses::point();
        self.process.signal(signal).expect("the process is there");
    }

    /// Waits for the end of the process.
    pub fn wait_exit(&mut self) -> ExitStatus {
        self.process.wait_exit(SOON).expect("it ends")
    }

    /// Returns the number of client connections to the edge that the kernel lists as established,
    /// accepted or not.
    pub fn established(&self) -> usize {
        let local = format!(":{:04X}", self.http.port());
        let table = fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
        let is_ours = |line: &&str| {
            let mut words = line.split_ascii_whitespace().skip(1);
            words.next().is_some_and(|word| word.ends_with(&local)) && words.nth(1) == Some("01")
        };
        table.lines().filter(is_ours).count()
    }

    /// Waits until the history of the numbers has all of its first reading, which it has when a
    /// point of the second one is there.
    pub fn wait_for_history(&self) {
        eventually("the first reading of the history", || {
            let reply = self.get_admin("/history?scope=edge&series=requests&points=4000");
            let history: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
            let points = history["series"]["requests"].as_array();
            points.is_some_and(|points| points.iter().filter(|point| point.is_number()).count() > 1)
        });
    }

    /// Returns the peak of the memory of the process in bytes. The pages of its executable are left
    /// out: their number depends on the size of the debug build, and the kernel can drop them.
    pub fn peak_memory(&self) -> u64 {
        self.memory("VmHWM:")
            .saturating_sub(self.memory("RssFile:"))
    }

    /// Returns the memory of the process in bytes.
    pub fn resident_memory(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// Returns the number of open file descriptors of the process.
    pub fn open_descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.process.pid());
        fs::read_dir(folder).expect("the process is there").count()
    }

    fn memory(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.process.pid());
        let text = fs::read_to_string(path).expect("the process is there");
        let peak = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|line| line.trim().strip_suffix(" kB"));
        let kilobytes: u64 = peak.and_then(|kb| kb.parse().ok()).expect("a number");
        kilobytes << 10
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // Another test's program may get the addresses as soon as this one has ended.
        for (address, tls) in [(self.http, &self.tls), (self.admin, &self.admin_tls)] {
            if let Some(tls) = tls {
                client::undo_encrypt_all_to(address, tls);
            }
        }
        if let Some(mark) = self.http2 {
            client::undo_speak_http2_to(self.http, mark);
        }
        // SIGKILL ends the process at once, because the test needs no response any more.
        let _ = self.process.signal(Signal::KILL);
        let complaints = self.process.stderr();
        if thread::panicking() {
            eprintln!("the program's messages:\n{complaints}");
        } else {
            assert!(!complaints.contains("panicked"), "{complaints}");
        }
    }
}
