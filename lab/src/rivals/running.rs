//! A running server of another project, and the parts of its start that all servers share.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Program;
use crate::process::{Launch, Process, free_port};
use crate::scratch::Folder;

/// A running server of another project. Dropping it ends it and removes its files.
#[derive(Debug)]
pub struct RunningRival {
    process: Process,
    address: SocketAddr,
    configuration: String,
    _folders: Vec<Folder>,
}

impl RunningRival {
    /// Returns the address on which the server listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns all settings with which the server was started and that are not defaults: the texts of its configuration
    /// files, environment variables, or its command line.
    pub fn configuration(&self) -> &str {
        &self.configuration
    }

    /// Returns the processes of the server.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// A server of another project that is about to start. Its folder and its address exist before its configuration, which
/// names them.
pub(super) struct RivalLaunch {
    /// Program, environment, core and folder of the server.
    pub(super) launch: Launch,
    /// Address on which the server has to listen.
    pub(super) address: SocketAddr,
    /// Text for [`RunningRival::configuration`], which [`RivalLaunch::write`] sets.
    pub(super) configuration: String,
    folders: Vec<Folder>,
}

impl RivalLaunch {
    /// Creates the server's folder, whose name begins with `prefix`, and chooses a free port. `core`: core to which the
    /// server will be pinned.
    ///
    /// Errors: the program is not installed.
    pub(super) fn new(
        program: &Program,
        prefix: &str,
        core: Option<usize>,
    ) -> anyhow::Result<RivalLaunch> {
        let path = program.find()?;
        let folder = Folder::new(prefix)?;
        Ok(RivalLaunch {
            launch: Launch::new(program.argument, path, folder.path()).core(core),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)),
            configuration: String::new(),
            folders: vec![folder],
        })
    }

    /// Creates a folder for a cache, on tmpfs if available. The folder is removed with the server's other files.
    /// Returns the path.
    pub(super) fn cache_folder(&mut self, prefix: &str) -> anyhow::Result<PathBuf> {
        let in_memory = Folder::new_in(prefix, Path::new("/dev/shm"));
        let folder = in_memory.or_else(|_| Folder::new(prefix))?;
        let path = folder.path().to_owned();
        self.folders.push(folder);
        Ok(path)
    }

    /// Writes the configuration file, which has this name in the folder. Returns its path.
    pub(super) fn write(&mut self, name: &str, text: String) -> anyhow::Result<String> {
        let file = self.launch.folder.join(name);
        fs::write(&file, &text)?;
        self.configuration = text;
        Ok(file.display().to_string())
    }

    /// Starts the server with these arguments, and waits until it listens.
    ///
    /// Errors: the server ended, or does not listen within `timeout`. If the folder has a file `error.log`, the error
    /// quotes it.
    pub(super) fn start<S: Into<String>>(
        self,
        args: impl IntoIterator<Item = S>,
        timeout: Duration,
    ) -> anyhow::Result<RunningRival> {
        let launch = self.launch.args(args);
        let mut process = launch.start()?;
        if let Err(error) = process.wait_listening(self.address, timeout) {
            let log = fs::read_to_string(launch.folder.join("error.log"));
            return Err(match log {
                Ok(log) => error.context(log),
                Err(_) => error,
            });
        }
        Ok(RunningRival {
            process,
            address: self.address,
            configuration: self.configuration,
            _folders: self.folders,
        })
    }
}
