//! The machine of a run: processor, memory, kernel, disk, and the versions of other servers.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;

use rustix::fs::{major, minor, statvfs};
use serde::{Deserialize, Serialize};

use crate::rivals;

/// The machine on which experiments ran. A value that can't be read is `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: Option<String>,
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Name and version of the distribution.
    pub distribution: Option<String>,
    /// Whether a hypervisor runs this machine.
    pub is_virtual: Option<bool>,
    /// The disk of the folder with the results.
    pub disk: Option<Disk>,
    /// The kernel's protections against attacks on the processor: names, and what the kernel says about each.
    pub mitigations: Vec<(String, String)>,
    /// Policy of the processor's clock.
    pub governor: Option<String>,
    /// Names and versions of the other servers that are installed.
    pub servers: Vec<(String, String)>,
}

/// A file system and its device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// Type of the file system.
    pub file_system: String,
    /// Device or source of the file system.
    pub source: String,
    /// Free bytes.
    pub free: u64,
    /// Whether the device is a rotating disk, as the kernel reports it. The kernel often calls a hypervisor's disk rotating
    /// that is none (see [`Machine::rotating_disk`]).
    pub rotates: Option<bool>,
}

/// The properties that tell one machine from another. A value that can't be read is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Model of the processor.
    pub processor: Option<String>,
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Release of the kernel.
    pub kernel: Option<String>,
}

impl Identity {
    /// Reads the identity of this machine.
    pub fn read() -> Identity {
        let cpuinfo = content("/proc/cpuinfo").unwrap_or_default();
        Identity {
            processor: value_of(&cpuinfo, "model name", ':'),
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory: memory(),
            kernel: content("/proc/sys/kernel/osrelease"),
        }
    }
}

impl Machine {
    /// Whether the disk is a rotating one; `None` if that is unknown, as in a virtual machine, whose kernel does not know the
    /// hypervisor's disk.
    pub fn rotating_disk(&self) -> Option<bool> {
        let disk = self.disk.as_ref().filter(|_| self.is_virtual != Some(true));
        disk?.rotates
    }

    /// Returns descriptions of the properties that differ from `other`, each with both values: first this one's. State, such
    /// as the free space of the disk, is no property.
    pub fn differences(&self, other: &Machine) -> Vec<String> {
        let (before, after) = (self.properties(), other.properties());
        let value = |all: &[(String, String)], name: &str| {
            let found = all.iter().find(|(known, _)| known == name);
            found.map_or_else(|| "unknown".to_owned(), |(_, value)| value.clone())
        };
        let only_after = after
            .iter()
            .filter(|(name, _)| before.iter().all(|(known, _)| known != name));
        let names = before.iter().chain(only_after).map(|(name, _)| name);
        names
            .map(|name| (name, value(&before, name), value(&after, name)))
            .filter(|(_, one, other)| one != other)
            .map(|(name, one, other)| format!("{name} ({one} and {other})"))
            .collect()
    }

    /// Returns the known properties that are no state: names and values.
    fn properties(&self) -> Vec<(String, String)> {
        let bytes = |bytes: u64| format!("{bytes} bytes");
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let disk = self.disk.as_ref();
        let known = [
            ("processor", self.processor.clone()),
            ("cores", Some(self.cores.to_string())),
            ("memory", self.memory.map(bytes)),
            ("kernel", self.kernel.clone()),
            ("distribution", self.distribution.clone()),
            ("virtual machine", self.is_virtual.map(yes)),
            ("file system", disk.map(|disk| disk.file_system.clone())),
            ("disk", disk.map(|disk| disk.source.clone())),
            ("rotating disk", self.rotating_disk().map(yes)),
            ("clock policy", self.governor.clone()),
        ];
        let known = known
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        known.chain(self.servers.iter().cloned()).collect()
    }

    /// Replaces versions of servers by those that were measured: a server may have been upgraded or removed since.
    pub(crate) fn set_versions<'a>(
        &mut self,
        measured: impl IntoIterator<Item = &'a (String, String)>,
    ) {
        for (name, version) in measured {
            match self.servers.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => known.clone_from(version),
                None => self.servers.push((name.clone(), version.clone())),
            }
        }
    }

    /// Reads the properties of this machine. `folder` is on the disk to describe.
    pub fn read(folder: &Path) -> Machine {
        let cpuinfo = content("/proc/cpuinfo").unwrap_or_default();
        let release = content("/etc/os-release").unwrap_or_default();
        let installed = rivals::Report::search().rivals.into_iter();
        let version = |entry: rivals::Entry| Some((entry.name.to_owned(), entry.version?));
        let identity = Identity::read();
        Machine {
            processor: identity.processor,
            cores: identity.cores,
            memory: identity.memory,
            kernel: identity.kernel,
            distribution: value_of(&release, "PRETTY_NAME", '='),
            is_virtual: value_of(&cpuinfo, "flags", ':')
                .map(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            disk: disk_of(folder),
            mitigations: mitigations(Path::new("/sys/devices/system/cpu/vulnerabilities")),
            governor: content("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            servers: installed.filter_map(version).collect(),
        }
    }
}

/// Returns the content of a small file without white space at its ends.
fn content(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// Returns the value of the first line with this name, without quotation marks.
fn value_of(text: &str, name: &str, separator: char) -> Option<String> {
    let mut lines = text.lines().filter_map(|line| line.split_once(separator));
    let (_, value) = lines.find(|(found, _)| found.trim() == name)?;
    Some(value.trim().trim_matches('"').to_owned())
}

fn kibibytes(meminfo: &str, name: &str) -> Option<u64> {
    let value = value_of(meminfo, name, ':')?;
    let number: u64 = value.split(' ').next()?.parse().ok()?;
    number.checked_mul(1024)
}

fn mitigations(folder: &Path) -> Vec<(String, String)> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut all: Vec<(String, String)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let text = fs::read_to_string(entry.path()).ok()?;
            let name = entry.file_name().to_string_lossy().into_owned();
            Some((name, text.trim().to_owned()))
        })
        .collect();
    all.sort();
    all
}

/// Returns the size of this machine's memory in bytes.
pub(crate) fn memory() -> Option<u64> {
    kibibytes(&content("/proc/meminfo")?, "MemTotal")
}

/// Returns the number of free bytes on the disk of a folder.
pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    let stat = statvfs(folder).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

fn disk_of(folder: &Path) -> Option<Disk> {
    let device = fs::metadata(folder).ok()?.dev();
    let device = format!("{}:{}", major(device), minor(device));
    let mounts = content("/proc/self/mountinfo")?;
    let (file_system, source) = mount_of(&mounts, &device)?;
    // A partition has no queue of its own; its disk is the folder above.
    let queue = |above: &str| content(&format!("/sys/dev/block/{device}/{above}queue/rotational"));
    let rotates = queue("").or_else(|| queue("../"));
    Some(Disk {
        file_system,
        source,
        free: free_bytes(folder)?,
        rotates: rotates.map(|value| value == "1"),
    })
}

/// Returns the type and the source of the last mounted file system with this device number (see proc_pid_mountinfo(5)).
fn mount_of(mounts: &str, device: &str) -> Option<(String, String)> {
    let mut lines = mounts.lines().rev();
    lines.find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        (before.split(' ').nth(2)? == device).then_some(())?;
        let mut words = after.split(' ');
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_a_disk_and_memory() {
        let machine = Machine::read(&std::env::temp_dir());
        assert!(machine.cores > 0 && machine.kernel.is_some(), "{machine:?}");
        assert!(machine.memory > Some(1 << 20), "{machine:?}");
        let text = serde_json::to_string(&machine).expect("JSON");
        assert_eq!(
            serde_json::from_str::<Machine>(&text).expect("a machine"),
            machine
        );
    }

    #[test]
    fn properties_that_differ_are_named_and_state_is_not() {
        let disk = |free| Disk {
            file_system: "ext4".to_owned(),
            source: "/dev/sda".to_owned(),
            free,
            rotates: None,
        };
        let server = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        let before = Machine {
            kernel: Some("6.1".to_owned()),
            disk: Some(disk(7)),
            servers: vec![server("nginx", "1.22.1"), server("h2o", "2.2.5")],
            ..Machine::default()
        };
        let mut after = before.clone();
        after.disk = Some(disk(8));
        after.mitigations = vec![server("meltdown", "Not affected")];
        assert_eq!(before.differences(&after), Vec::<String>::new());
        after.kernel = Some("6.2".to_owned());
        after.servers = vec![server("nginx", "1.24.0"), server("Squid", "5.7")];
        assert_eq!(
            before.differences(&after),
            [
                "kernel (6.1 and 6.2)",
                "nginx (1.22.1 and 1.24.0)",
                "h2o (2.2.5 and unknown)",
                "Squid (unknown and 5.7)",
            ]
        );
    }

    #[test]
    fn the_measured_versions_of_servers_count() {
        let server = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        let mut machine = Machine {
            servers: vec![server("nginx", "1.24.0"), server("Squid", "5.7")],
            ..Machine::default()
        };
        machine.set_versions(&[server("nginx", "1.22.1"), server("h2o", "2.2.5")]);
        let expected = [
            server("nginx", "1.22.1"),
            server("Squid", "5.7"),
            server("h2o", "2.2.5"),
        ];
        assert_eq!(machine.servers, expected);
    }

    #[test]
    fn the_kind_of_a_hypervisors_disk_is_unknown() {
        let mut machine = Machine {
            is_virtual: Some(false),
            disk: Some(Disk {
                file_system: "ext4".to_owned(),
                source: "/dev/vda".to_owned(),
                free: 7,
                rotates: Some(true),
            }),
            ..Machine::default()
        };
        assert_eq!(machine.rotating_disk(), Some(true));
        let other = Machine {
            is_virtual: Some(true),
            ..machine.clone()
        };
        assert_eq!(other.rotating_disk(), None);
        assert_eq!(
            machine.differences(&other),
            [
                "virtual machine (no and yes)",
                "rotating disk (yes and unknown)"
            ]
        );
        machine.is_virtual = None;
        assert_eq!(machine.rotating_disk(), Some(true));
    }

    #[test]
    fn values_are_read_from_the_kernels_files() {
        let text = "processor\t: 0\nmodel name\t: A Processor: fast\nflags\t: fpu hypervisor\n";
        let name = value_of(text, "model name", ':');
        assert_eq!(name.as_deref(), Some("A Processor: fast"));
        let release = "NAME=\"x\"\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n";
        let name = value_of(release, "PRETTY_NAME", '=');
        assert_eq!(name.as_deref(), Some("Debian GNU/Linux 12"));
        assert_eq!(kibibytes("MemTotal:  2048 kB\n", "MemTotal"), Some(2 << 20));
        let mounts =
            "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n30 22 0:25 / /x rw - tmpfs tmpfs rw\n";
        let found = mount_of(mounts, "8:1");
        assert_eq!(found, Some(("ext4".to_owned(), "/dev/sda1".to_owned())));
        assert_eq!(mount_of(mounts, "9:9"), None);
    }
}
