//! Roles that this program runs as separate processes, each pinned to a core: load generator, floor server, origin.
//!
//! A program that starts roles calls [`entry`] first in its `main`, because roles are started as the same program
//! with other arguments.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::load::{self, LoadPlan, LoadResult};
use crate::origin::{Ending, Fault, Origin, OriginOptions, Resource};
use crate::process::{Launch, Process, pin_to_core, run_pinned};
use crate::rivals::{Floor, FloorOptions};

const LOAD: &str = "__lab-load";
const FLOOR: &str = "__lab-floor";
const ORIGIN: &str = "__lab-origin";

/// Longest options in bytes that fit into one argument on Linux, with a margin.
const OPTIONS_MAX: usize = 120_000;

/// Longest time until a role prints its address.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Conduct of an origin in its own process. A request for [`Conduct::path`] changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conduct {
    /// The origin sends what is requested.
    Serve,
    /// All responses are 500.
    Error,
    /// Connections are reset before the head of a response.
    Reset,
    /// Bodies end with their connection after 2,000 bytes.
    Cut,
    /// Responses arrive at a byte a second.
    Drip,
    /// Heads arrive at once, and bodies at a byte a second.
    DripBody,
}

impl Conduct {
    const ALL: [Conduct; 6] = [
        Conduct::Serve,
        Conduct::Error,
        Conduct::Reset,
        Conduct::Cut,
        Conduct::Drip,
        Conduct::DripBody,
    ];

    /// Returns the path of the request that changes the conduct to this one.
    pub fn path(self) -> String {
        format!("/conduct/{self:?}")
    }

    fn apply(self, resource: Resource) -> Resource {
        let cut = Fault::CutBody {
            after: 2000,
            ending: Ending::Fin,
        };
        let (bytes, every) = (1, Duration::from_secs(1));
        match self {
            Conduct::Serve => resource,
            Conduct::Error => Resource::status(500),
            Conduct::Reset => resource.fault(Fault::EndBeforeHead(Ending::Reset)),
            Conduct::Cut => resource.fault(cut),
            Conduct::Drip => resource.fault(Fault::Drip { bytes, every }),
            Conduct::DripBody => resource.fault(Fault::DripBody { bytes, every }),
        }
    }
}

/// Options of an origin in its own process, which serves offset bodies at `/offset/<bytes>`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OriginPlan {
    /// Address to listen on; port 0 selects a free port.
    pub address: SocketAddr,
    /// Bytes per second on each connection.
    pub rate: Option<u64>,
    /// Delay in milliseconds before each response head.
    pub delay_ms: u64,
    /// Additional headers of each response.
    pub headers: Vec<(String, String)>,
    /// Core to which the process is pinned.
    pub core: Option<usize>,
}

impl Default for OriginPlan {
    fn default() -> Self {
        OriginPlan {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            rate: None,
            delay_ms: 0,
            headers: vec![("Cache-Control".to_owned(), "max-age=3600".to_owned())],
            core: None,
        }
    }
}

/// A server role in its own process. Dropping this value ends the process.
#[derive(Debug)]
pub struct RoleServer {
    /// The process of the role.
    pub process: Process,
    /// Address on which the server listens.
    pub address: SocketAddr,
}

/// The line that a server role prints when it listens.
#[derive(Serialize, Deserialize)]
struct Listening {
    address: SocketAddr,
}

/// Runs a role if `args` (beginning with the program's name) request one: reads its options as JSON from `args[2]`,
/// prints JSON, and returns the exit code. Server roles end when their standard input is closed.
pub fn entry(args: &[OsString]) -> Option<ExitCode> {
    let role = args.get(1)?.to_str()?;
    let options = args.get(2).and_then(|options| options.to_str());
    let played = match role {
        LOAD => play_load(options),
        FLOOR => play_floor(options),
        ORIGIN => play_origin(options),
        _ => return None,
    };
    match played {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("{error:#}");
            Some(ExitCode::FAILURE)
        }
    }
}

fn play_load(options: Option<&str>) -> anyhow::Result<()> {
    let plan: LoadPlan = parse(options)?;
    print(&load::run(plan)?)
}

fn play_floor(options: Option<&str>) -> anyhow::Result<()> {
    let floor = Floor::start(parse(options)?)?;
    serve_until_stdin_closes(floor.addr())
}

fn play_origin(options: Option<&str>) -> anyhow::Result<()> {
    let plan: OriginPlan = parse(options)?;
    if let Some(core) = plan.core {
        pin_to_core(core)?;
    }
    let origin = Origin::start(OriginOptions {
        address: plan.address,
        forget: true,
        ..OriginOptions::default()
    })?;
    let current = Mutex::new(Conduct::Serve);
    origin.serve_rest(Resource::dynamic(move |seen| {
        let mut all = Conduct::ALL.into_iter();
        if let Some(conduct) = all.find(|conduct| conduct.path() == seen.path()) {
            *current.lock() = conduct;
            return Resource::status(200);
        }
        let length = seen.path().strip_prefix("/offset/").map(str::parse);
        let Some(Ok(length)) = length else {
            return Resource::status(404);
        };
        let mut resource =
            Resource::offset(length).delay_head(Duration::from_millis(plan.delay_ms));
        for (name, value) in &plan.headers {
            resource = resource.header(name, value);
        }
        if let Some(rate) = plan.rate {
            resource = resource.rate(rate);
        }
        current.lock().apply(resource)
    }));
    serve_until_stdin_closes(origin.addr())
}

fn parse<T: DeserializeOwned>(options: Option<&str>) -> anyhow::Result<T> {
    let options = options.context("a role needs options")?;
    serde_json::from_str(options).context("options of a role")
}

fn print(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

fn serve_until_stdin_closes(address: SocketAddr) -> anyhow::Result<()> {
    print(&Listening { address })?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Runs a load generator in its own process and returns its result. Files with its output are in `folder`.
pub fn run_load(plan: &LoadPlan, folder: &Path) -> anyhow::Result<LoadResult> {
    let mut process = start(LOAD, plan, plan.core, folder)?;
    let longest = plan.seconds.unwrap_or(600.0) + 4.0 * plan.timeout_seconds;
    let longest = Duration::from_secs_f64(longest);
    let line = run_pinned(plan.core, || process.wait_line("{", longest))?;
    serde_json::from_str(&line).context("result of the load generator")
}

/// Starts a floor server in its own process.
pub fn start_floor(options: &FloorOptions, folder: &Path) -> anyhow::Result<RoleServer> {
    listening(start(FLOOR, options, options.core, folder)?)
}

/// Starts an origin in its own process.
pub fn start_origin(plan: &OriginPlan, folder: &Path) -> anyhow::Result<RoleServer> {
    listening(start(ORIGIN, plan, plan.core, folder)?)
}

fn listening(mut process: Process) -> anyhow::Result<RoleServer> {
    let line = process.wait_line("{", START_TIMEOUT)?;
    let Listening { address } = serde_json::from_str(&line)?;
    Ok(RoleServer { process, address })
}

fn start(
    role: &str,
    options: &impl Serialize,
    core: Option<usize>,
    folder: &Path,
) -> anyhow::Result<Process> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let options = serde_json::to_string(options)?;
    anyhow::ensure!(
        options.len() <= OPTIONS_MAX,
        "{} bytes of options are too many for one argument",
        options.len()
    );
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}-{number}", role.trim_start_matches('_'));
    Launch::new(&name, std::env::current_exe()?, folder)
        .args([role, &options])
        .core(core)
        .start()
}
