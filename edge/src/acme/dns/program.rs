//! Sets records by a program of the operator. A helper process runs the program, because the sandbox of the main process
//! would also confine the program. The helper starts before the sandbox, runs this one program, and ends with the main
//! process.

use std::io::{self, BufRead, Read as _, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::options::ProgramOptions;
use crate::sys::program::{self, Finished};

/// Name of the hidden command that is the helper.
pub const COMMAND: &str = "dns-program";
/// The file of the running executable, also after an update has replaced it.
const THIS: &str = "/proc/self/exe";
/// The search path of programs if the environment has none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Longest line between the processes, in bytes.
const LINE_BYTES_MAX: u64 = 8192;
/// Longest output of the program that is shown, in bytes.
const OUTPUT_BYTES_MAX: usize = 600;
/// How often, and how many times, the status of a helper is asked for after its connection has ended.
const STATUS_LOOK_EVERY: Duration = Duration::from_millis(10);
const STATUS_LOOKS_MAX: usize = 100;
/// Longest time of the helper itself for one request.
const GRACE: Duration = Duration::from_secs(10);

/// A change of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Add the record.
    Add,
    /// Remove the record, and leave others of the same name.
    Remove,
}

impl Action {
    /// Returns the name, which is the program's argument.
    pub fn name(self) -> &'static str {
        match self {
            Action::Add => "add",
            Action::Remove => "remove",
        }
    }
}

/// A request to the helper.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Request {
    /// A number that the response repeats.
    id: u64,
    action: Action,
    name: String,
    value: String,
}

/// A response of the helper.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Response {
    id: u64,
    /// The reason why the program has failed.
    error: Option<String>,
}

/// The helper process, which runs the program. Dropping this ends the process.
pub struct Helper {
    options: ProgramOptions,
    connection: Mutex<Connection>,
}

impl Helper {
    /// Starts the helper process. Call this while no thread runs, and before the sandbox starts.
    ///
    /// # Errors
    ///
    /// The process can't be started.
    pub fn start(options: &ProgramOptions) -> io::Result<Helper> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let path = std::env::var_os("PATH").unwrap_or_else(|| PATH.into());
        let child = Command::new(THIS)
            .arg0("sluice")
            .args([COMMAND, "--timeout-ms"])
            .arg(options.timeout.as_millis().to_string())
            .arg("--")
            .args(&options.command)
            .env_clear()
            .env("PATH", path)
            .stdin(OwnedFd::from(theirs.try_clone()?))
            .stdout(OwnedFd::from(theirs))
            // Signals from a terminal end Sluice, which then ends the helper.
            .process_group(0)
            .spawn()?;
        Ok(Helper {
            options: options.clone(),
            connection: Mutex::new(Connection {
                stream: Stream::Idle(Some(ours)),
                child,
                last_id: 0,
            }),
        })
    }

    /// Has the program add or remove a TXT record. The program never runs more than once at a time.
    ///
    /// # Errors
    ///
    /// The program failed or took too long, or the helper process has ended.
    pub async fn ask(&self, action: Action, name: &str, value: &str) -> Result<(), String> {
        let mut connection = self.connection.lock().await;
        let within = self.options.timeout + GRACE;
        match timeout(within, connection.ask(action, name, value)).await {
            Ok(Ok(response)) => response.error.map_or(Ok(()), Err),
            Ok(Err(error)) => Err(connection.lost(&error).await),
            Err(_) => Err("the process that runs the program of `dns` does not respond".to_owned()),
        }
    }
}

/// The connection with the helper process.
struct Connection {
    stream: Stream,
    child: Child,
    /// The id of the last request.
    last_id: u64,
}

/// The socket. The runtime that uses it exists only after the start.
enum Stream {
    Idle(Option<UnixStream>),
    Used(BufReader<tokio::net::UnixStream>),
}

impl Connection {
    async fn ask(&mut self, action: Action, name: &str, value: &str) -> io::Result<Response> {
        self.last_id += 1;
        let request = Request {
            id: self.last_id,
            action,
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let mut line = serde_json::to_string(&request)?;
        line.push('\n');
        if let Stream::Idle(socket) = &mut self.stream {
            let socket = socket.take().ok_or(io::ErrorKind::NotConnected)?;
            let socket = tokio::net::UnixStream::from_std(socket)?;
            self.stream = Stream::Used(BufReader::new(socket));
        }
        let Stream::Used(stream) = &mut self.stream else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        stream.get_mut().write_all(line.as_bytes()).await?;
        loop {
            let mut line = Vec::new();
            let mut bounded = (&mut *stream).take(LINE_BYTES_MAX);
            bounded.read_until(b'\n', &mut line).await?;
            if line.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let response: Response = serde_json::from_slice(&line)?;
            // A response to a request that was given up is ignored.
            if response.id == self.last_id {
                return Ok(response);
            }
        }
    }

    /// Describes the loss of the connection.
    async fn lost(&mut self, error: &io::Error) -> String {
        let mut status = self.child.try_wait();
        // The kernel closes the socket of a process a moment before the status of its end can be read.
        for _ in 0..STATUS_LOOKS_MAX {
            if !matches!(status, Ok(None)) {
                break;
            }
            sleep(STATUS_LOOK_EVERY).await;
            status = self.child.try_wait();
        }
        let why = match status {
            Ok(Some(status)) => status.to_string(),
            _ => error.to_string(),
        };
        format!("the process that runs the program of `dns` has ended ({why}): restart Sluice")
    }
}

/// Runs the helper: reads requests from `input` until its end, runs the program for each, and writes the responses.
///
/// # Errors
///
/// A request can't be read, or the response can't be written.
pub fn serve(options: &ProgramOptions, input: impl BufRead, output: impl Write) -> io::Result<()> {
    serve_with(input, output, |request| run(options, request))
}

fn serve_with(
    mut input: impl BufRead,
    mut output: impl Write,
    mut run: impl FnMut(&Request) -> Result<(), String>,
) -> io::Result<()> {
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut input).take(LINE_BYTES_MAX);
        if bounded.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let request: Request = serde_json::from_slice(&line)?;
        let response = Response {
            id: request.id,
            error: match is_record(&request.name, &request.value) {
                true => run(&request).err(),
                false => Some("this is not a record of a challenge".to_owned()),
            },
        };
        let mut line = serde_json::to_string(&response)?;
        line.push('\n');
        output.write_all(line.as_bytes())?;
        output.flush()?;
    }
}

/// Whether this is the name and the value of a challenge's record, without characters that a program may misread.
fn is_record(name: &str, value: &str) -> bool {
    let is_label = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_value = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    name.starts_with("_acme-challenge.")
        && name.bytes().all(is_label)
        && value.bytes().all(is_value)
}

fn run(options: &ProgramOptions, request: &Request) -> Result<(), String> {
    let Some((program, arguments)) = options.command.split_first() else {
        return Err("no program is configured".to_owned());
    };
    let own = [request.action.name(), &request.name, &request.value];
    let arguments = arguments.iter().map(String::as_str).chain(own);
    let finished = program::run(program, arguments, options.timeout, OUTPUT_BYTES_MAX);
    let finished = finished.map_err(|error| format!("{program} can't be run: {error}"))?;
    outcome(program, request.action, options.timeout, &finished)
}

fn outcome(
    program: &str,
    action: Action,
    within: Duration,
    finished: &Finished,
) -> Result<(), String> {
    let how = match finished.status {
        Some(status) if status.success() => return Ok(()),
        Some(status) => format!("failed ({status})"),
        None => format!("has not ended in {within:?}"),
    };
    let action = action.name();
    Err(match printable(&finished.output) {
        text if text.is_empty() => format!("`{program} {action}` {how}"),
        text => format!("`{program} {action}` {how}: {text}"),
    })
}

/// Returns output as one line of text without control characters.
fn printable(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    // Characters that change the direction of text could make a message look like another one.
    let is_odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let plain: String = text
        .chars()
        .map(|c| if is_odd(c) { ' ' } else { c })
        .collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn requests_are_answered_in_order_until_their_end() {
        let requests = "{\"id\":1,\"action\":\"add\",\"name\":\"_acme-challenge.a.example\",\"value\":\"x-_9\"}\n\
            {\"id\":2,\"action\":\"remove\",\"name\":\"_acme-challenge.a.example\",\"value\":\"x\"}\n\
            {\"id\":3,\"action\":\"add\",\"name\":\"_acme-challenge.a;b\",\"value\":\"x\"}\n";
        let (mut output, mut seen) = (Vec::new(), Vec::new());
        serve_with(requests.as_bytes(), &mut output, |request| {
            seen.push((request.action, request.value.clone()));
            match request.action {
                Action::Add => Ok(()),
                Action::Remove => Err("no".to_owned()),
            }
        })
        .expect("requests");
        assert_eq!(
            seen,
            [
                (Action::Add, "x-_9".to_owned()),
                (Action::Remove, "x".to_owned())
            ]
        );
        let lines = String::from_utf8(output).expect("text");
        assert_eq!(
            lines.lines().collect::<Vec<_>>(),
            [
                "{\"id\":1,\"error\":null}",
                "{\"id\":2,\"error\":\"no\"}",
                "{\"id\":3,\"error\":\"this is not a record of a challenge\"}",
            ]
        );
    }

    #[test]
    fn a_request_that_is_too_long_or_damaged_ends_the_helper() {
        for request in ["x\n".to_owned(), "\"".repeat(2 * LINE_BYTES_MAX as usize)] {
            let served = serve_with(request.as_bytes(), Vec::new(), |_| Ok(()));
            assert!(served.is_err());
        }
    }

    #[test]
    fn a_failure_has_the_output_in_one_line() {
        let outcome = |status, output: &[u8]| {
            let finished = Finished {
                status,
                output: output.to_vec(),
            };
            outcome("dns", Action::Add, Duration::from_secs(60), &finished)
        };
        assert_eq!(outcome(Some(ExitStatus::from_raw(0)), b"done"), Ok(()));
        assert_eq!(
            outcome(
                Some(ExitStatus::from_raw(256)),
                b"\x1b[31mno\r\n\n  such\xff zone\n\xe2\x80\xae"
            ),
            Err("`dns add` failed (exit status: 1): [31mno such\u{fffd} zone".to_owned())
        );
        assert_eq!(
            outcome(None, b""),
            Err("`dns add` has not ended in 60s".to_owned())
        );
    }
}
