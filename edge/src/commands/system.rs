//! `sluice check --system`: lists kernel settings that limit the number or speed of connections, and commands that
//! change them. docs/system.md explains each setting.

use std::fmt::Write as _;
use std::path::Path;

use super::output::say;
use crate::sys::{disk, limits};

/// Number of file descriptors that suffices for the connections of one process.
const DESCRIPTORS: u64 = 524_288;
/// Longest file under /proc that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Source of the kernel settings, which tests replace.
pub trait Settings {
    /// Returns the content of a file under /proc, or `None` if the file does not exist or can't be
    /// read.
    fn read(&self, path: &str) -> Option<String>;
    /// Returns this process's hard limit of file descriptors.
    fn descriptors(&self) -> u64;
}

/// Reads the settings of this machine.
pub struct ThisMachine;

impl Settings for ThisMachine {
    fn read(&self, path: &str) -> Option<String> {
        disk::read_text(Path::new(path), FILE_BYTES_MAX).ok()
    }

    fn descriptors(&self) -> u64 {
        limits::hard_descriptors() as u64
    }
}

/// A kernel setting: its sysctl name, a function that returns a better value if there is one, and
/// the reason.
struct Setting {
    name: &'static str,
    better: fn(&dyn Settings, &str) -> Option<String>,
    why: &'static str,
}

const SETTINGS: &[Setting] = &[
    Setting {
        name: "fs.nr_open",
        better: |_, value| at_least(value, DESCRIPTORS),
        why: "Upper bound for the file descriptors of each process, whatever its own limit.",
    },
    Setting {
        name: "fs.file-max",
        better: |_, value| at_least(value, 2 * DESCRIPTORS),
        why: "Upper bound for the open files and connections of all processes together.",
    },
    Setting {
        name: "net.core.somaxconn",
        better: |_, value| at_least(value, 4096),
        why: "Longest queue of connections that wait to be accepted. In a burst of more connections, SYN packets \
              are dropped, and clients send them again after a second.",
    },
    Setting {
        name: "net.ipv4.tcp_max_syn_backlog",
        better: |_, value| at_least(value, 4096),
        why: "With more half-open connections, the kernel uses SYN cookies, which lose the window scaling of \
              clients that send no timestamps.",
    },
    Setting {
        name: "net.ipv4.tcp_syncookies",
        better: |_, value| (value == "0").then(|| "1".to_owned()),
        why: "Without SYN cookies, a SYN flood keeps all clients from connecting.",
    },
    Setting {
        name: "net.ipv4.ip_local_port_range",
        better: |_, value| (ports(value)? < 50_000).then(|| "10240 65535".to_owned()),
        why: "Each connection to an origin's address uses a local port, also for a minute after its end. Keep \
              the ports of listeners outside the range, or list them in net.ipv4.ip_local_reserved_ports.",
    },
    Setting {
        name: "net.ipv4.tcp_tw_reuse",
        better: |_, value| (value != "1").then(|| "1".to_owned()),
        why: "Local ports of ended connections to origins can be used again after a second instead of a \
              minute. Connections from clients are not affected.",
    },
    Setting {
        name: "net.ipv4.tcp_fin_timeout",
        better: |_, value| at_most(value, 60),
        why: "Seconds for which the kernel keeps a connection that Sluice has closed and the peer has not.",
    },
    Setting {
        name: "net.ipv4.tcp_slow_start_after_idle",
        better: |_, value| (value != "0").then(|| "0".to_owned()),
        why: "After a short idle time, a connection sends as slowly as a new one, so each response on a \
              keepalive connection to a distant client takes more round trips.",
    },
    Setting {
        name: "net.ipv4.tcp_wmem",
        better: |_, value| window(value, 4 << 20),
        why: "The last number limits the bytes in flight to one client: 4 MiB allow 335 Mbit/s at a round-trip \
              time of 100 ms.",
    },
    Setting {
        name: "net.ipv4.tcp_rmem",
        better: |_, value| window(value, 4 << 20),
        why: "The last number limits the bytes in flight from one origin or one uploading client.",
    },
    Setting {
        name: "net.core.netdev_max_backlog",
        better: |settings, value| {
            at_least(value, if dropped(settings) > 0 { 16_384 } else { 1000 })
        },
        why: "If more packets wait for a CPU, they are dropped. The second column of /proc/net/softnet_stat \
              counts them.",
    },
    Setting {
        name: "net.netfilter.nf_conntrack_max",
        better: |_, value| at_least(value, DESCRIPTORS),
        why: "The firewall tracks each connection, also for a while after its end. When its table is full, new \
              connections are dropped.",
    },
    Setting {
        name: "vm.max_map_count",
        better: |_, value| at_least(value, 65_530),
        why: "A process with this many memory mappings can't allocate more memory.",
    },
];

/// The value of one setting, and how to improve it.
struct Finding {
    name: String,
    value: String,
    /// A better value, and the commands that set it. `None` if the present value is good.
    advice: Option<Advice>,
}

struct Advice {
    better: String,
    why: &'static str,
    now: String,
    always: String,
}

/// Prints the report for this machine. Returns the number of settings to change.
pub fn print(settings: &dyn Settings) -> anyhow::Result<u64> {
    let (text, changes) = report(settings);
    say(&text)?;
    Ok(changes)
}

/// Returns the report for this machine, as text, and the number of settings to change.
fn report(settings: &dyn Settings) -> (String, u64) {
    let mut findings = vec![descriptors(settings)];
    findings.extend(
        SETTINGS
            .iter()
            .filter_map(|setting| sysctl(setting, settings)),
    );
    let mut out = String::new();
    // Writing to a String can't fail.
    for finding in &findings {
        let _ = match &finding.advice {
            None => writeln!(out, "ok      {} = {}", finding.name, finding.value),
            Some(advice) => writeln!(
                out,
                "change  {} = {}, better {}\n        {}\n        now:       {}\n        permanent: {}",
                finding.name, finding.value, advice.better, advice.why, advice.now, advice.always
            ),
        };
    }
    let changes = findings.iter().filter(|f| f.advice.is_some()).count();
    let _ = match changes {
        0 => writeln!(out, "nothing to change"),
        1 => writeln!(out, "1 setting to change (see docs/system.md)"),
        n => writeln!(out, "{n} settings to change (see docs/system.md)"),
    };
    (out, changes as u64)
}

fn descriptors(settings: &dyn Settings) -> Finding {
    let hard = settings.descriptors();
    let advice = (hard < DESCRIPTORS).then(|| Advice {
        better: DESCRIPTORS.to_string(),
        why: "Each connection and each open file uses a file descriptor. Sluice raises its limit at the start, \
              but not above this one.",
        now: format!("ulimit -Hn {DESCRIPTORS} (as root, in the shell that starts it)"),
        always: format!("LimitNOFILE={DESCRIPTORS} in the [Service] section of its systemd unit"),
    });
    Finding {
        name: "file descriptors (hard limit)".to_owned(),
        value: hard.to_string(),
        advice,
    }
}

/// Checks one sysctl setting. Returns `None` if this kernel does not have it.
fn sysctl(setting: &Setting, settings: &dyn Settings) -> Option<Finding> {
    let path = format!("/proc/sys/{}", setting.name.replace('.', "/"));
    let text = settings.read(&path)?;
    let value: Vec<&str> = text.split_ascii_whitespace().collect();
    let value = value.join(" ");
    let advice = (setting.better)(settings, &value).map(|better| Advice {
        now: format!("sysctl -w {}={}", setting.name, quoted(&better)),
        always: format!(
            "echo '{} = {better}' >> /etc/sysctl.d/90-sluice.conf",
            setting.name
        ),
        why: setting.why,
        better,
    });
    Some(Finding {
        name: setting.name.to_owned(),
        value,
        advice,
    })
}

fn quoted(value: &str) -> String {
    match value.contains(' ') {
        true => format!("'{value}'"),
        false => value.to_owned(),
    }
}

fn at_least(value: &str, least: u64) -> Option<String> {
    let value: u64 = value.parse().ok()?;
    (value < least).then(|| least.to_string())
}

fn at_most(value: &str, most: u64) -> Option<String> {
    let value: u64 = value.parse().ok()?;
    (value > most).then(|| most.to_string())
}

/// Returns the number of ports in a range such as `32768 60999`.
fn ports(value: &str) -> Option<u64> {
    let (first, last) = value.split_once(' ')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    Some((last + 1).saturating_sub(first))
}

/// Returns a setting that consists of several numbers with the last one raised to at least `least`,
/// or `None` if it is large enough.
fn window(value: &str, least: u64) -> Option<String> {
    let (others, most) = value.rsplit_once(' ')?;
    let better = at_least(most, least)?;
    Some(format!("{others} {better}"))
}

/// Returns the number of packets that were dropped because the queue of their CPU was full.
fn dropped(settings: &dyn Settings) -> u64 {
    let text = settings.read("/proc/net/softnet_stat").unwrap_or_default();
    let of_line = |line: &str| {
        let dropped = line.split_ascii_whitespace().nth(1)?;
        u64::from_str_radix(dropped, 16).ok()
    };
    text.lines().filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A made-up machine with these settings.
    struct Machine {
        files: BTreeMap<&'static str, &'static str>,
        descriptors: u64,
    }

    impl Settings for Machine {
        fn read(&self, path: &str) -> Option<String> {
            Some(format!("{}\n", self.files.get(path)?))
        }

        fn descriptors(&self) -> u64 {
            self.descriptors
        }
    }

    /// Returns a machine whose settings are all good.
    fn good() -> Machine {
        let files = [
            ("/proc/sys/fs/nr_open", "1048576"),
            ("/proc/sys/fs/file-max", "9223372036854775807"),
            ("/proc/sys/net/core/somaxconn", "4096"),
            ("/proc/sys/net/ipv4/tcp_max_syn_backlog", "4096"),
            ("/proc/sys/net/ipv4/tcp_syncookies", "1"),
            ("/proc/sys/net/ipv4/ip_local_port_range", "10240\t65535"),
            ("/proc/sys/net/ipv4/tcp_tw_reuse", "1"),
            ("/proc/sys/net/ipv4/tcp_fin_timeout", "60"),
            ("/proc/sys/net/ipv4/tcp_slow_start_after_idle", "0"),
            ("/proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304"),
            ("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456"),
            ("/proc/sys/net/core/netdev_max_backlog", "1000"),
            ("/proc/sys/vm/max_map_count", "65530"),
            (
                "/proc/net/softnet_stat",
                "0001 00000000 00\n0002 00000000 00",
            ),
        ];
        Machine {
            files: files.into(),
            descriptors: 1 << 20,
        }
    }

    #[test]
    fn a_good_machine_has_nothing_to_change() {
        let said = report(&good()).0;
        assert!(said.ends_with("nothing to change\n"), "{said}");
        assert!(!said.contains("change  "), "{said}");
        assert!(
            said.contains("ok      net.core.somaxconn = 4096\n"),
            "{said}"
        );
        assert!(!said.contains("nf_conntrack"), "there is none: {said}");
    }

    #[test]
    fn each_bad_setting_is_listed_with_its_command() {
        let worse = [
            ("/proc/sys/net/core/somaxconn", "128", "4096"),
            (
                "/proc/sys/net/ipv4/ip_local_port_range",
                "32768 60999",
                "'10240 65535'",
            ),
            ("/proc/sys/net/ipv4/tcp_tw_reuse", "2", "1"),
            (
                "/proc/sys/net/ipv4/tcp_wmem",
                "4096 16384 65536",
                "'4096 16384 4194304'",
            ),
            ("/proc/sys/net/ipv4/tcp_fin_timeout", "120", "60"),
            (
                "/proc/sys/net/netfilter/nf_conntrack_max",
                "65536",
                "524288",
            ),
        ];
        for (path, value, better) in worse {
            let mut machine = good();
            machine.files.insert(path, value);
            let said = report(&machine).0;
            let name = path["/proc/sys/".len()..].replace('/', ".");
            assert!(
                said.contains(&format!("change  {name} = {value}, better")),
                "{said}"
            );
            assert!(
                said.contains(&format!("sysctl -w {name}={better}\n")),
                "{said}"
            );
            let plain = better.replace('\'', "");
            assert!(
                said.contains(&format!("echo '{name} = {plain}' >> /etc")),
                "{said}"
            );
            assert!(
                said.ends_with("1 setting to change (see docs/system.md)\n"),
                "{said}"
            );
        }
    }

    #[test]
    fn dropped_packets_and_a_low_descriptor_limit_are_listed() {
        let mut machine = good();
        machine
            .files
            .insert("/proc/net/softnet_stat", "0001 0000000a 00");
        machine.descriptors = 1024;
        let said = report(&machine).0;
        assert!(
            said.contains("sysctl -w net.core.netdev_max_backlog=16384"),
            "{said}"
        );
        assert!(
            said.contains("change  file descriptors (hard limit) = 1024"),
            "{said}"
        );
        assert!(said.contains("LimitNOFILE=524288"), "{said}");
    }

    #[test]
    fn settings_that_cannot_be_parsed_cause_no_advice() {
        let mut machine = good();
        for value in machine.files.values_mut() {
            *value = "what?";
        }
        machine.files.insert("/proc/sys/net/ipv4/tcp_tw_reuse", "1");
        machine
            .files
            .insert("/proc/sys/net/ipv4/tcp_slow_start_after_idle", "0");
        assert!(report(&machine).0.ends_with("nothing to change\n"));
    }

    #[test]
    fn every_setting_is_explained_in_the_documentation() {
        let page = include_str!("../../../docs/system.md");
        for setting in SETTINGS {
            assert!(page.contains(setting.name), "{}", setting.name);
        }
    }
}
