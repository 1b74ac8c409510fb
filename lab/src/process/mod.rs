//! Servers as child processes: starts them, waits until they listen, pins them to a core, measures CPU time and
//! memory, and ends them.

mod listening;
mod proc;

use std::collections::HashMap;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::scratch;
use listening::Owner;
pub(crate) use listening::socket_address;
pub use proc::ignores;
pub(crate) use proc::{Identity, children_cpu, stolen};
use proc::{PARENT, cpu_of, field, memory_of, stat_fields};

/// Longest wait for the end of a child after its signal.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// Interval for polling states that cause no event.
const POLL: Duration = Duration::from_millis(5);

/// Pins the calling thread, and threads and processes that it starts afterwards, to one core.
pub fn pin_to_core(core: usize) -> anyhow::Result<()> {
    anyhow::ensure!(core < CpuSet::MAX_CPU, "core {core} does not exist");
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).with_context(|| format!("can't run on core {core}"))
}

/// Returns the numbers of the cores that the calling thread may use, in ascending order.
///
/// Errors: a failed system call, as on machines with more than 1024 cores.
pub fn permitted_cores() -> anyhow::Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("the permitted cores are unknown")?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .collect())
}

/// Runs `work` on a thread of its own, pinned to a core if there is one. Observers of a load run so on the load's core:
/// on the server's they would take time from it.
///
/// Errors: those of `work`, or the thread can't run on this core.
pub fn run_pinned<T: Send>(
    core: Option<usize>,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("lab-pinned".to_owned());
        let running = thread.spawn_scoped(scope, || {
            core.map_or(Ok(()), pin_to_core)?;
            work()
        })?;
        running
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The definition of a child process.
#[derive(Debug, Clone)]
pub struct Launch {
    /// A short name for messages and file names.
    pub name: String,
    /// Path or name of the program.
    pub program: PathBuf,
    /// Arguments of the program.
    pub args: Vec<String>,
    /// Additional environment variables.
    pub env: Vec<(String, String)>,
    /// Core to which the child and its children are pinned.
    pub core: Option<usize>,
    /// Whether the child has a process group of its own, so that Ctrl-C in a terminal does not reach it.
    pub own_group: bool,
    /// Signal that makes the child end when its [`Process`] is dropped; SIGTERM by default.
    pub end_signal: Signal,
    /// Folder for files with the child's output.
    pub folder: PathBuf,
}

impl Launch {
    /// `program` with output files in `folder`.
    pub fn new(name: &str, program: impl Into<PathBuf>, folder: impl Into<PathBuf>) -> Launch {
        Launch {
            name: name.to_owned(),
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            core: None,
            own_group: false,
            end_signal: Signal::TERM,
            folder: folder.into(),
        }
    }

    /// Appends arguments.
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Launch {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets the core.
    pub fn core(mut self, core: Option<usize>) -> Launch {
        self.core = core;
        self
    }

    /// Gives the child a process group of its own.
    pub fn own_group(mut self) -> Launch {
        self.own_group = true;
        self
    }

    /// Starts the child. Its standard input is a pipe that stays open until the [`Process`] is dropped.
    pub fn start(&self) -> anyhow::Result<Process> {
        let stdout = self.folder.join(format!("{}.stdout", self.name));
        let stderr = self.folder.join(format!("{}.stderr", self.name));
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?);
        if self.own_group {
            command.process_group(0);
        }
        let child = self.spawn(command).with_context(|| {
            let program = self.program.display();
            format!("can't start {}: is {program} installed?", self.name)
        })?;
        Ok(Process {
            name: self.name.clone(),
            child,
            end_signal: self.end_signal,
            stdout,
            stderr,
        })
    }

    /// Starts the child: for a core, from a thread that is already pinned, since a child inherits the cores of that thread.
    /// The child therefore never runs on another core. Otherwise the child is one of the caller's thread, whose end ends a
    /// step of `sluice lab all` (see [`scratch::end_with_parent`]).
    fn spawn(&self, mut command: Command) -> anyhow::Result<Child> {
        match self.core {
            None => Ok(scratch::spawn(&mut command)?),
            core => run_pinned(core, move || Ok(scratch::spawn(&mut command)?)),
        }
    }
}

/// A running child process. Dropping this value ends the child and its descendants.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    end_signal: Signal,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// Resident memory of a process and its children, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident memory.
    pub rss: u64,
    /// Resident memory, with each shared page divided by the number of processes that share it.
    pub pss: u64,
    /// Resident memory that is not backed by files.
    pub anonymous: u64,
}

impl Process {
    /// Returns the child's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything that the child has written to standard output so far.
    pub fn stdout(&self) -> String {
        fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    /// Everything that the child has written to standard error so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Waits until the child or one of its descendants listens on `address`, and a connect succeeds. The listener of
    /// another process does not count.
    pub fn wait_listening(&mut self, address: SocketAddr, timeout: Duration) -> anyhow::Result<()> {
        let what = format!("listens on {address}");
        let waited = self.wait(&what, timeout, |process| {
            (process.owner(address) == Owner::Own).then_some(())?;
            TcpStream::connect_timeout(&address, timeout).ok().map(drop)
        });
        waited.map_err(|error| match self.owner(address) {
            Owner::Other => error.context(format!("another process listens on {address}")),
            Owner::Nobody | Owner::Own => error,
        })
    }

    /// Returns the owner of the sockets that listen on `address`: `Own` for the child and its descendants.
    fn owner(&self, address: SocketAddr) -> Owner {
        listening::owner(address, &self.tree().unwrap_or_default())
    }

    /// Waits for a line on standard output that contains `text`.
    pub fn wait_line(&mut self, text: &str, timeout: Duration) -> anyhow::Result<String> {
        self.wait(&format!("prints {text:?}"), timeout, |process| {
            let printed = process.stdout();
            let (lines, _) = printed.rsplit_once('\n')?;
            let found = lines.lines().find(|line| line.contains(text));
            found.map(str::to_owned)
        })
    }

    /// Waits until the child has written `text` to standard error.
    pub fn wait_logged(&mut self, text: &str, timeout: Duration) -> anyhow::Result<()> {
        self.wait(&format!("logs {text:?}"), timeout, |process| {
            process.stderr().contains(text).then_some(())
        })
    }

    /// Waits until the child ends.
    pub fn wait_exit(&mut self, timeout: Duration) -> anyhow::Result<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            anyhow::ensure!(
                Instant::now() < deadline,
                "{} did not end within {timeout:?}",
                self.name
            );
            std::thread::sleep(POLL);
        }
    }

    fn wait<T>(
        &mut self,
        what: &str,
        timeout: Duration,
        check: impl Fn(&Process) -> Option<T>,
    ) -> anyhow::Result<T> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(found) = check(self) {
                return Ok(found);
            }
            if let Some(status) = self.child.try_wait()? {
                // The child may have printed the line just before its end.
                return check(self).with_context(|| {
                    format!(
                        "{} ended ({status}) before it {what}: {}",
                        self.name,
                        self.stderr()
                    )
                });
            }
            anyhow::ensure!(
                Instant::now() < deadline,
                "within {timeout:?} {} has not reached the state in which it {what}: {}",
                self.name,
                self.stderr()
            );
            std::thread::sleep(POLL);
        }
    }

    /// Sends a signal to the child, not to its descendants.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        let pid = pid.context("process id of a child")?;
        kill_process(pid, signal).with_context(|| format!("can't signal {}", self.name))
    }

    /// Returns the CPU time used so far by the child and its descendants, including those that have ended.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        let total = tree_cpu(self.pid())?;
        anyhow::ensure!(!total.is_zero(), "{} has ended", self.name);
        Ok(total)
    }

    /// Present resident memory.
    pub fn memory(&self) -> anyhow::Result<Memory> {
        let sum = tree_memory(self.pid())?;
        anyhow::ensure!(sum.rss > 0, "{} has ended", self.name);
        Ok(sum)
    }

    /// Returns the process ids of the child and all its descendants.
    pub fn tree(&self) -> anyhow::Result<Vec<u32>> {
        tree(self.pid())
    }
}

/// Returns the process ids of a process and all its descendants.
fn tree(root: u32) -> anyhow::Result<Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").context("reading /proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid else { continue };
        if let Some(parent) = stat_fields(pid).and_then(|stat| field(&stat, PARENT)) {
            children.entry(parent as u32).or_default().push(pid);
        }
    }
    let mut tree = vec![root];
    let mut at = 0;
    while at < tree.len() {
        if let Some(mut more) = children.remove(&tree[at]) {
            tree.append(&mut more);
        }
        at += 1;
    }
    Ok(tree)
}

/// Returns all descendants of this process.
pub(crate) fn descendants() -> Vec<Identity> {
    let tree = tree(std::process::id()).unwrap_or_default();
    tree.into_iter().skip(1).filter_map(Identity::of).collect()
}

/// Returns the CPU time used so far by a process and its descendants, including those that have ended.
fn tree_cpu(root: u32) -> anyhow::Result<Duration> {
    // A descendant may end after it was listed. The kernel then adds its CPU time to that of its parent.
    let cpu = |pid: u32| cpu_of(pid).unwrap_or_default();
    Ok(tree(root)?.into_iter().map(cpu).sum())
}

/// Returns the present memory of a process and its descendants.
fn tree_memory(root: u32) -> anyhow::Result<Memory> {
    let mut sum = Memory::default();
    for pid in tree(root)? {
        let one = memory_of(pid).unwrap_or_default();
        sum.rss += one.rss;
        sum.pss += one.pss;
        sum.anonymous += one.anonymous;
    }
    Ok(sum)
}

/// Returns CPU time and memory of any process and its descendants.
///
/// Errors: there is no such process, or this user may not see its memory.
pub fn usage(pid: u32) -> anyhow::Result<(Duration, Memory)> {
    anyhow::ensure!(cpu_of(pid).is_some(), "there is no process {pid}");
    let memory = tree_memory(pid)?;
    anyhow::ensure!(memory.rss > 0, "the memory of process {pid} can't be read");
    Ok((tree_cpu(pid)?, memory))
}

impl Drop for Process {
    fn drop(&mut self) {
        let tree = self.tree().unwrap_or_default();
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let _ = self.signal(self.end_signal);
        if self.wait_exit(END_TIMEOUT).is_ok() {
            return;
        }
        // The child has not been waited for yet, so the kernel can't have given these process ids to other processes.
        for pid in tree.iter().rev() {
            let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
        }
        let _ = self.child.wait();
    }
}

/// Returns a free loopback port below the range of ephemeral ports.
pub fn free_port() -> anyhow::Result<u16> {
    use std::sync::atomic::{AtomicU16, Ordering};
    const FIRST: u16 = 18_000;
    const COUNT: u16 = 14_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = (std::process::id() % 1000) as u16 * 14;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + begin.wrapping_add(step) % COUNT;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no port is free")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn shell(folder: &Path, script: &str) -> Process {
        let launch = Launch::new("shell", "sh", folder).args(["-c", script]);
        launch.start().expect("sh is installed")
    }

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn a_pinned_thread_may_use_one_core() {
        let all = permitted_cores().expect("known");
        let last = *all.last().expect("a core");
        let pinned = std::thread::spawn(move || {
            pin_to_core(last).expect("a permitted core");
            permitted_cores().expect("known")
        });
        assert_eq!(pinned.join().expect("no panic"), [last]);
    }

    #[test]
    fn the_time_that_the_hypervisor_took_only_grows() {
        let before = stolen().expect("/proc/stat has the column");
        assert!(stolen().expect("/proc/stat has the column") >= before);
    }

    #[test]
    fn output_is_captured_and_the_end_is_detected() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut shell = shell(folder.path(), "echo one; echo two >&2; exit 3");
        assert_eq!(shell.wait_line("on", SOON).expect("a line"), "one");
        assert_eq!(shell.wait_exit(SOON).expect("an end").code(), Some(3));
        assert_eq!(shell.stderr(), "two\n");
        let gone = shell.wait_line("three", SOON).expect_err("it has ended");
        assert!(gone.to_string().contains("ended"), "{gone}");
    }

    #[test]
    fn cpu_time_counts_children_that_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = "(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done); echo done; read x";
        let mut shell = shell(folder.path(), script);
        shell.wait_line("done", SOON).expect("a line");
        let cpu = shell.cpu().expect("alive");
        assert!(cpu >= Duration::from_millis(10), "{cpu:?}");
        assert!(shell.memory().expect("alive").rss > 100_000);
    }

    #[test]
    fn a_child_listens_only_with_a_socket_of_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let mut other = shell(folder.path(), "read x");
        let refused = other.wait_listening(address, Duration::from_millis(200));
        let refused = format!(
            "{:#}",
            refused.expect_err("the listener is not the child's")
        );
        let expected = format!("another process listens on {address}");
        assert!(refused.starts_with(&expected), "{refused}");
        // The grandchild inherits the listener.
        rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty()).expect("an open file");
        let mut own = shell(folder.path(), "(read x; :)");
        drop(listener);
        own.wait_listening(address, SOON).expect("its own listener");
    }

    #[test]
    fn an_ignored_signal_is_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut shell = shell(folder.path(), "trap '' HUP; echo ready; read x");
        shell.wait_line("ready", SOON).expect("a line");
        assert!(ignores(shell.pid(), Signal::HUP));
        assert!(!ignores(shell.pid(), Signal::TERM));
    }

    #[test]
    fn work_is_pinned_and_its_caller_is_not() {
        let cores = || {
            rustix::thread::sched_getaffinity(None)
                .expect("cores")
                .count()
        };
        let before = cores();
        let inside = run_pinned(Some(0), || Ok(cores())).expect("core 0");
        assert_eq!((inside, cores()), (1, before));
    }

    #[test]
    fn a_process_is_pinned_and_ends_with_its_children() {
        let folder = tempfile::tempdir().expect("a folder");
        let launch = Launch::new("shell", "sh", folder.path())
            .args(["-c", "sleep 1000 & echo $!; wait"])
            .core(Some(0));
        let mut shell = launch.start().expect("sh is installed");
        let sleeper = shell.wait_line("", SOON).expect("a line");
        assert_eq!(shell.tree().expect("a tree").len(), 2);
        let status = fs::read_to_string(format!("/proc/{sleeper}/status")).expect("alive");
        assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
        let pid = Pid::from_raw(sleeper.parse().expect("a number")).expect("not zero");
        kill_process(pid, Signal::TERM).expect("alive");
        drop(shell);
    }
}
