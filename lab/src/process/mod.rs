//! Servers as child processes: start, wait until they listen, pin, measure CPU time and memory, end.

mod proc;

use std::collections::HashMap;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

use proc::{PARENT, cpu_of, field, memory_of, stat_fields};

/// How long a child is waited for after it was asked to end.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// How often a state is looked at that tells nobody when it changes.
const POLL: Duration = Duration::from_millis(5);

/// Pins the calling thread, and what it starts from now on, to one core.
pub fn pin_to_core(core: usize) -> anyhow::Result<()> {
    anyhow::ensure!(core < CpuSet::MAX_CPU, "there is no core {core}");
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).with_context(|| format!("can't run on core {core}"))
}

/// What to start.
#[derive(Debug, Clone)]
pub struct Launch {
    /// A short name, for messages and file names.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables that are added.
    pub env: Vec<(String, String)>,
    /// The core to run on, children included.
    pub core: Option<usize>,
    /// Folder for the files that take its output.
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
            folder: folder.into(),
        }
    }

    /// Arguments, added to those before.
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Launch {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// The core to run on.
    pub fn core(mut self, core: Option<usize>) -> Launch {
        self.core = core;
        self
    }

    /// Starts it. The child's standard input is a pipe that is open as long as the [`Process`] lives.
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
        let child = self.spawn(command).with_context(|| {
            let program = self.program.display();
            format!("can't start {}: is {program} installed?", self.name)
        })?;
        Ok(Process {
            name: self.name.clone(),
            child,
            stdout,
            stderr,
        })
    }

    /// A child inherits the cores of the thread that starts it, so a thread that is pinned starts it: no moment passes
    /// in which it runs elsewhere.
    fn spawn(&self, mut command: Command) -> anyhow::Result<Child> {
        let Some(core) = self.core else {
            return Ok(command.spawn()?);
        };
        std::thread::spawn(move || {
            pin_to_core(core)?;
            Ok(command.spawn()?)
        })
        .join()
        .map_err(|_| anyhow::anyhow!("the starting thread panicked"))?
    }
}

/// A running child. Dropping it ends it and its children.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// Resident memory of a process and its children, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident pages.
    pub rss: u64,
    /// Resident pages, each divided by the number of processes that share it.
    pub pss: u64,
    /// Resident pages that no file backs.
    pub anonymous: u64,
}

impl Process {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that it printed so far.
    pub fn stdout(&self) -> String {
        fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    /// All that it complained about so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Waits until a connect to `address` succeeds.
    pub fn wait_listening(&mut self, address: SocketAddr, timeout: Duration) -> anyhow::Result<()> {
        let what = format!("listens on {address}");
        self.wait(&what, timeout, |_| {
            TcpStream::connect_timeout(&address, timeout).ok().map(drop)
        })
    }

    /// Waits for a line on its standard output that contains `text`.
    pub fn wait_line(&mut self, text: &str, timeout: Duration) -> anyhow::Result<String> {
        self.wait(&format!("prints {text:?}"), timeout, |process| {
            let printed = process.stdout();
            let (lines, _) = printed.rsplit_once('\n')?;
            let found = lines.lines().find(|line| line.contains(text));
            found.map(str::to_owned)
        })
    }

    /// Waits for its end.
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
        look: impl Fn(&Process) -> Option<T>,
    ) -> anyhow::Result<T> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(found) = look(self) {
                return Ok(found);
            }
            if let Some(status) = self.child.try_wait()? {
                // It may have printed what is waited for as its last act.
                return look(self).with_context(|| {
                    format!(
                        "{} ended ({status}) before it {what}: {}",
                        self.name,
                        self.stderr()
                    )
                });
            }
            anyhow::ensure!(
                Instant::now() < deadline,
                "{} did not come to the point where it {what} within {timeout:?}: {}",
                self.name,
                self.stderr()
            );
            std::thread::sleep(POLL);
        }
    }

    /// Sends a signal to the process itself.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        let pid = pid.context("a child's process id")?;
        kill_process(pid, signal).with_context(|| format!("can't signal {}", self.name))
    }

    /// CPU time used so far by the process and its children, those that have ended included.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        let mut total = Duration::ZERO;
        for pid in self.tree()? {
            // A child may end between the listing and here; its time is then its parent's children's.
            total += cpu_of(pid).unwrap_or_default();
        }
        anyhow::ensure!(!total.is_zero(), "{} is gone", self.name);
        Ok(total)
    }

    /// Resident memory now.
    pub fn memory(&self) -> anyhow::Result<Memory> {
        let mut sum = Memory::default();
        for pid in self.tree()? {
            let one = memory_of(pid).unwrap_or_default();
            sum.rss += one.rss;
            sum.pss += one.pss;
            sum.anonymous += one.anonymous;
        }
        anyhow::ensure!(sum.rss > 0, "{} is gone", self.name);
        Ok(sum)
    }

    /// Process ids of the process and all its descendants.
    pub fn tree(&self) -> anyhow::Result<Vec<u32>> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for entry in fs::read_dir("/proc").context("the process file system")? {
            let name = entry?.file_name();
            let pid = name.to_str().and_then(|name| name.parse().ok());
            let Some(pid) = pid else { continue };
            if let Some(parent) = stat_fields(pid).and_then(|stat| field(&stat, PARENT)) {
                children.entry(parent as u32).or_default().push(pid);
            }
        }
        let mut tree = vec![self.pid()];
        let mut at = 0;
        while at < tree.len() {
            if let Some(mut more) = children.remove(&tree[at]) {
                tree.append(&mut more);
            }
            at += 1;
        }
        Ok(tree)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let tree = self.tree().unwrap_or_default();
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let _ = self.signal(Signal::TERM);
        if self.wait_exit(END_TIMEOUT).is_ok() {
            return;
        }
        // Not yet waited for, so the ids can't belong to anybody else but its own children.
        for pid in tree.iter().rev() {
            let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
        }
        let _ = self.child.wait();
    }
}

/// A port on loopback that nobody listens on, below those that the kernel hands out to clients.
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

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn output_is_caught_and_the_end_is_seen() {
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
