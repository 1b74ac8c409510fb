//! Checks of the machine that Sluice would fail on at its start: folders, logs, volumes, addresses, the
//! user and the sandbox.
//!
//! A reload does not need these checks: it fails for the same reasons (`unusable`) and changes
//! nothing, and the sandbox may forbid to read the user database.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;

use super::account::{Account, Purpose, with_account};
use super::certificates;
use super::checks::Checks;
use super::file::{File, RouteFile};
use super::obtained;
use super::plan::Plan;
use super::planner::parse_address;
use super::reach::folder_of;
use super::report::{Problem, without_error_numbers};
use super::served_folders;
use super::token_files;
use super::value::{Sandbox, show_size};
use crate::sys::disk::{self, access};
use crate::sys::memory;
use crate::sys::port::{self, Owner};
use crate::sys::sandbox;
use crate::sys::socket_file;
use crate::sys::user::ProcessUser;
use crate::volume;

const MIB: u64 = 1 << 20;

/// Adds the problems with which Sluice would not start on this machine. `name` is the path of the
/// configuration file.
pub fn check(name: &str, file: &File, plan: &Plan, purpose: Purpose, checks: &mut Checks) {
    user(file, checks);
    addresses(name, file, purpose, checks);
    memory(file, checks);
    let found = with_account(plan, purpose, |account| {
        let mut checks = Checks::default();
        certificates::check(file, plan, account, &mut checks);
        token_files::check(file, account, &mut checks);
        obtained::check(file, plan, purpose, account, &mut checks);
        logs(file, (purpose, account), &mut checks);
        volumes(name, file, plan, (purpose, account), &mut checks);
        buffer_folder(file, account, &mut checks);
        let sites = file.site.iter().flat_map(|site| &site.get_ref().route);
        for route in sites.chain(&file.route) {
            files(route, account, &mut checks);
        }
        checks.problems
    });
    checks.problems.extend(found);
}

/// Warns about caches that are together larger than the memory of this machine.
fn memory(file: &File, checks: &mut Checks) {
    let Some(available) = memory::available() else {
        return;
    };
    let mut sum: u64 = 0;
    let sites = file.site.iter().flat_map(|site| &site.get_ref().route);
    let files = sites.chain(&file.route);
    let files = files.filter_map(|route| route.get_ref().files.as_ref());
    let files = files.filter_map(|files| files.get_ref().0.memory.as_ref());
    let caches = file.cache.values();
    let caches = caches.filter_map(|cache| cache.memory.as_ref());
    for typed in caches.chain(files) {
        let before = sum;
        sum = sum.saturating_add(typed.get_ref().0);
        if sum > available {
            let others = match before {
                0 => "",
                _ => " with the sizes before it",
            };
            let (sum, available) = (show_size(sum), show_size(available / MIB * MIB));
            checks.push(
                Problem::warning("`memory` is more than this machine has")
                    .at(typed.span())
                    .label(format!("{sum}{others}, of {available}"))
                    .help("make it smaller: the kernel would end Sluice when the cache is full"),
            );
            return;
        }
    }
}

fn user(file: &File, checks: &mut Checks) {
    if let Some(typed) = &file.server.user {
        let (name, group) = match typed.get_ref().split_once(':') {
            Some((name, group)) => (name, Some(group)),
            None => (typed.get_ref().as_str(), None),
        };
        if let Err(why) = ProcessUser::find(name, group) {
            checks.push(
                Problem::error("`user` does not exist on this machine")
                    .at(typed.span())
                    .label(why)
                    .help("create the user, as with `useradd --system NAME`, or name another one"),
            );
        }
    }
    let required = file.server.sandbox.as_ref();
    let required = required.filter(|typed| *typed.get_ref() == Sandbox::Yes);
    if let Some(typed) = required.filter(|_| !sandbox::is_supported()) {
        checks.push(
            Problem::error("this kernel has no Landlock, or Landlock is disabled")
                .at(typed.span())
                .label("the sandbox is required")
                .help("write \"auto\" to run without a sandbox on such kernels"),
        );
    }
}

/// Reports addresses that this machine does not have, and ports that this user may not listen on.
fn addresses(name: &str, file: &File, purpose: Purpose, checks: &mut Checks) {
    let short = file.listen.iter().flat_map(|typed| typed.get_ref());
    let short = short.map(|typed| (typed.get_ref().as_str(), typed.span(), true));
    let long = file.listener.iter().filter_map(|listener| {
        let listener = listener.get_ref();
        let typed = listener.address.as_ref()?;
        let ipv6_only = listener
            .ipv6_only
            .as_ref()
            .is_none_or(|only| *only.get_ref());
        Some((typed.get_ref().as_str(), typed.span(), ipv6_only))
    });
    let admin = file.admin.address.iter();
    let admin =
        admin.filter_map(|typed| Some((typed.get_ref().on()?.as_str(), typed.span(), true)));
    for (text, at, ipv6_only) in short.chain(long).chain(admin) {
        if let Some(path) = text.strip_prefix("unix:") {
            unix_address(Path::new(path), at, purpose, checks);
        } else if let Some(address) = parse_address(text) {
            ip_address(name, (address, ipv6_only), at, purpose, checks);
        }
    }
}

fn unix_address(path: &Path, at: Range<usize>, purpose: Purpose, checks: &mut Checks) {
    let what = "this socket can't be created";
    let folder = folder_of(path);
    if let Err(error) = access::folder(&folder) {
        let account = match purpose {
            Purpose::Start => Account::Serving(None),
            Purpose::Check | Purpose::Reload => Account::Checking,
        };
        let problem = account.unusable(what, &folder, &error, at);
        checks.problems.extend(problem);
    } else if let Err(error) = socket_file::check_kind(path) {
        checks.push(
            Problem::error(what)
                .at(at)
                .label(format!("{}: {error}", path.display()))
                .help("name another path, or remove what is there"),
        );
    }
}

fn ip_address(
    name: &str,
    (address, ipv6_only): (SocketAddr, bool),
    at: Range<usize>,
    purpose: Purpose,
    checks: &mut Checks,
) {
    let Err(error) = port::try_bind(address, ipv6_only) else {
        return;
    };
    match error.kind() {
        ErrorKind::AddrNotAvailable => checks.push(
            Problem::error("this machine does not have this address")
                .at(at)
                .label(format!("no interface has {}", address.ip()))
                .help(format!(
                    "write \":{}\" for all addresses of this machine, or one that `ip address` shows",
                    address.port()
                )),
        ),
        // `sluice serve` itself reports these two with the address, as errors.
        ErrorKind::PermissionDenied | ErrorKind::AddrInUse if purpose != Purpose::Check => {}
        ErrorKind::PermissionDenied => checks.push(
            Problem::warning("this user may not listen on this port")
                .at(at)
                .label("ports below 1024 need a privilege")
                .help(PRIVILEGE),
        ),
        ErrorKind::AddrInUse => {
            let owner = port::owner(address.port());
            if let Some(label) = other_program(name, owner) {
                checks.push(
                    Problem::warning("another program listens on this port")
                        .at(at)
                        .label(label)
                        .help("choose another port, or end that program before Sluice starts"),
                );
            }
        }
        _ => checks.push(
            Problem::error("no socket can listen on this address")
                .at(at)
                .label(without_error_numbers(&error.to_string()))
                .help(format!(
                    "write \":{}\" for all IPv4 addresses of this machine, or an address that `ip address` shows",
                    address.port()
                )),
        ),
    }
}

/// Describes the process that uses a port or file, unless the process is probably a running Sluice
/// with the configuration file `name`.
fn other_program(name: &str, owner: Option<Owner>) -> Option<String> {
    match owner {
        Some(owner) if owner.is_this_program() => {
            let other = other_configuration(name, &owner)?;
            Some(format!(
                "{} (process {}) with {other}",
                owner.name, owner.pid
            ))
        }
        Some(owner) => Some(format!("{} (process {})", owner.name, owner.pid)),
        // The process of another user is hidden. A running Sluice is the most probable one.
        None if port::runs_already() => None,
        None => Some("a process that this user may not see".to_owned()),
    }
}

/// Describes the configuration of a running Sluice, if that is known to be another one than the file
/// `name`.
fn other_configuration(name: &str, owner: &Owner) -> Option<String> {
    let arguments = owner.arguments();
    let has = |options: &[&str]| {
        let is_one = |argument: &String| options.contains(&argument.as_str());
        arguments.iter().position(is_one)
    };
    let given = match has(&["-c", "--config"]) {
        Some(at) => Some(arguments.get(at + 1)?.clone()),
        None if has(&["--origin", "--files", "demo"]).is_some() => {
            return Some("options instead of a file".to_owned());
        }
        None => owner.variable("SLUICE_CONFIG"),
    };
    let path = given.unwrap_or_else(|| "sluice.toml".to_owned());
    let theirs = owner.folder()?.join(path).canonicalize().ok()?;
    let ours = Path::new(name).canonicalize().ok()?;
    (theirs != ours).then(|| format!("the configuration {}", theirs.display()))
}

/// Advice for a port that a user may not listen on.
pub const PRIVILEGE: &str = "use a port from 1024 on, start Sluice as root with `user` in [server], or allow it once: \
     `setcap cap_net_bind_service=+ep PROGRAM`";

fn logs(file: &File, (purpose, account): (Purpose, Account<'_>), checks: &mut Checks) {
    let access_log = file.log.access.as_ref();
    let access_log = access_log.and_then(|typed| Some((typed.get_ref().on()?, typed.span())));
    let error_log = file.log.error.as_ref();
    let error_log = error_log.map(|typed| (typed.get_ref(), typed.span()));
    for (path, at) in access_log.into_iter().chain(error_log) {
        if path == "-" {
            continue;
        }
        let path = &access::link_target(Path::new(path));
        match access::append(path) {
            // Opening the pipe would show whether a program reads it, but would also disturb that program.
            Ok(()) if purpose == Purpose::Check && access::is_pipe(path) => checks.push(
                Problem::warning("this log is a named pipe")
                    .at(at)
                    .label("without a program that reads it, `sluice serve` fails")
                    .help("start that program first, or name a file"),
            ),
            Ok(()) => {}
            Err(error) => {
                let problem = account.unusable("this log can't be opened", path, &error, at);
                checks.problems.extend(problem);
            }
        }
    }
}

/// Reports volumes that this user may not open, and volumes with other contents, which `overwrite`
/// does not allow to overwrite.
fn volumes(
    name: &str,
    file: &File,
    plan: &Plan,
    (purpose, account): (Purpose, Account<'_>),
    checks: &mut Checks,
) {
    let config = name;
    for (name, section) in &file.volume {
        let (Some(typed), Some(options)) =
            (&section.path, plan.volumes.get(name.get_ref().as_str()))
        else {
            continue;
        };
        if purpose == Purpose::Check
            && let Some(owner) = disk::lock_owner(&options.path)
            && let Some(label) = other_program(config, Some(owner))
        {
            checks.push(
                Problem::warning("another program uses this volume")
                    .at(typed.span())
                    .label(label)
                    .help("name another file or device, or end that program before Sluice starts"),
            );
        }
        if let Err(error) = access::read_write(&options.path)
            && error.kind() == ErrorKind::PermissionDenied
            && !matches!(account, Account::Other)
        {
            let title = format!("volume `{}` can't be opened", name.get_ref());
            let label = account.label(&options.path, &error);
            let help = format!("{}; until then the volume is out of use", account.permit());
            checks.push(
                Problem::warning(title)
                    .at(typed.span())
                    .label(label)
                    .help(help),
            );
        }
        if options.overwrite {
            continue;
        }
        let start = disk::read_start(&options.path, volume::UNUSED_CHECK_BYTES);
        if let Some(what) = start.ok().and_then(|start| volume::other_content(&start)) {
            checks.push(
                Problem::error("this volume would overwrite other data")
                    .at(typed.span())
                    .label(format!("{} {what}", options.path.display()))
                    .help("name another file or device, or write `overwrite = true` to lose what is there"),
            );
        }
    }
}

fn buffer_folder(file: &File, account: Account<'_>, checks: &mut Checks) {
    let Some(typed) = &file.buffers.folder else {
        return;
    };
    let path = Path::new(typed.get_ref());
    if let Err(error) = access::create_in(path) {
        let what = "no buffered body can go on in this folder";
        let problem = account.unusable(what, path, &error, typed.span());
        checks.problems.extend(problem);
    }
}

fn files(route: &Spanned<RouteFile>, account: Account<'_>, checks: &mut Checks) {
    let Some(typed) = &route.get_ref().files else {
        return;
    };
    let files = &typed.get_ref().0;
    let Some(root) = &files.root else {
        return;
    };
    let at = match root.span() {
        span if span.is_empty() => typed.span(),
        span => span,
    };
    let path = PathBuf::from(root.get_ref());
    match access::folder(&path) {
        Ok(()) => served_folders::check(route.get_ref(), files, &path, checks),
        Err(error) => {
            let problem = account.unusable("this folder can't be served", &path, &error, at);
            checks.problems.extend(problem);
        }
    }
}
