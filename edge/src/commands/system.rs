//! `sluice check --system`: which settings of this machine hold many connections back, and how to
//! change them. docs/system.md says more of each.

use std::fmt::Write as _;
use std::path::Path;

use sluice::sys::{disk, limits};

/// Descriptors that are enough for whatever one process serves.
const DESCRIPTORS: u64 = 524_288;
/// Longest file that the kernel tells a setting, or its counters, in.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where settings are read.
pub trait Look {
    /// What a file of the kernel's says; `None` where there is none, or it may not be read.
    fn read(&self, path: &str) -> Option<String>;
    /// How many descriptors this process may raise its limit to.
    fn descriptors(&self) -> u64;
}

/// This machine.
pub struct Here;

impl Look for Here {
    fn read(&self, path: &str) -> Option<String> {
        disk::read_text(Path::new(path), FILE_BYTES_MAX).ok()
    }

    fn descriptors(&self) -> u64 {
        limits::hard_descriptors() as u64
    }
}

/// One setting: its name to sysctl, what would be better than a value, and why.
struct Setting {
    name: &'static str,
    better: fn(&dyn Look, &str) -> Option<String>,
    why: &'static str,
}

const SETTINGS: &[Setting] = &[
    Setting {
        name: "fs.nr_open",
        better: |_, value| at_least(value, DESCRIPTORS),
        why: "No process can have more file descriptors than this, whatever its own limit says.",
    },
    Setting {
        name: "fs.file-max",
        better: |_, value| at_least(value, 2 * DESCRIPTORS),
        why: "All processes together can't have more files and connections open than this.",
    },
    Setting {
        name: "net.core.somaxconn",
        better: |_, value| at_least(value, 4096),
        why: "More connections than this can't wait to be accepted: in a burst the others' first packets \
              are dropped, and sent again after a second.",
    },
    Setting {
        name: "net.ipv4.tcp_max_syn_backlog",
        better: |_, value| at_least(value, 4096),
        why: "More connections than this can't be half open without SYN cookies, which lose the window \
              scaling of clients that send no timestamps.",
    },
    Setting {
        name: "net.ipv4.tcp_syncookies",
        better: |_, value| (value == "0").then(|| "1".to_owned()),
        why: "Without SYN cookies a flood of first packets shuts everybody out.",
    },
    Setting {
        name: "net.ipv4.ip_local_port_range",
        better: |_, value| (ports(value)? < 50_000).then(|| "10240 65535".to_owned()),
        why: "Each connection to one address of an origin takes a port of ours, and for a minute after it \
              has ended. Keep listeners out of the range, or name them in net.ipv4.ip_local_reserved_ports.",
    },
    Setting {
        name: "net.ipv4.tcp_tw_reuse",
        better: |_, value| (value != "1").then(|| "1".to_owned()),
        why: "Ports of connections to origins that have ended can be used again after a second rather than \
              a minute. Connections from clients are not touched by it.",
    },
    Setting {
        name: "net.ipv4.tcp_fin_timeout",
        better: |_, value| at_most(value, 60),
        why: "Connections whose other end has gone without a word are kept for so many seconds after we \
              have closed them.",
    },
    Setting {
        name: "net.ipv4.tcp_slow_start_after_idle",
        better: |_, value| (value != "0").then(|| "0".to_owned()),
        why: "A connection that was idle for a moment begins as slowly as a new one: each file on a \
              keepalive connection to a far client takes more round trips.",
    },
    Setting {
        name: "net.ipv4.tcp_wmem",
        better: |_, value| window(value, 4 << 20),
        why: "The last number is the most that may be on its way to one client: 4 MiB are 335 Mbit/s over \
              100 ms.",
    },
    Setting {
        name: "net.ipv4.tcp_rmem",
        better: |_, value| window(value, 4 << 20),
        why: "The last number is the most that may be on its way from one origin, or from one who uploads.",
    },
    Setting {
        name: "net.core.netdev_max_backlog",
        better: |look, value| at_least(value, if dropped(look) > 0 { 16_384 } else { 1000 }),
        why: "Packets that wait for a processor beyond this are dropped; /proc/net/softnet_stat (second \
              column) tells whether any were.",
    },
    Setting {
        name: "net.netfilter.nf_conntrack_max",
        better: |_, value| at_least(value, DESCRIPTORS),
        why: "The firewall follows each connection, those that have ended for a while too; when its table is \
              full, new ones are dropped.",
    },
    Setting {
        name: "vm.max_map_count",
        better: |_, value| at_least(value, 65_530),
        why: "Memory can't be had any more when it lies in more pieces than this.",
    },
];

/// What is said of one setting.
struct Finding {
    name: String,
    value: String,
    /// A better value, and how to set it: now, and for good.
    advice: Option<Advice>,
}

struct Advice {
    better: String,
    why: &'static str,
    now: String,
    always: String,
}

/// What this machine should change, in words.
pub fn report(look: &dyn Look) -> String {
    let mut findings = vec![descriptors(look)];
    findings.extend(SETTINGS.iter().filter_map(|setting| sysctl(setting, look)));
    let mut out = String::new();
    // Writing to a String can't fail.
    for finding in &findings {
        let _ = match &finding.advice {
            None => writeln!(out, "ok      {} = {}", finding.name, finding.value),
            Some(advice) => writeln!(
                out,
                "change  {} = {}, better {}\n        {}\n        now:     {}\n        for good: {}",
                finding.name, finding.value, advice.better, advice.why, advice.now, advice.always
            ),
        };
    }
    let changes = findings.iter().filter(|f| f.advice.is_some()).count();
    let _ = match changes {
        0 => writeln!(out, "nothing to change"),
        1 => writeln!(out, "1 setting to change (docs/system.md says more)"),
        n => writeln!(out, "{n} settings to change (docs/system.md says more)"),
    };
    out
}

fn descriptors(look: &dyn Look) -> Finding {
    let hard = look.descriptors();
    let advice = (hard < DESCRIPTORS).then(|| Advice {
        better: DESCRIPTORS.to_string(),
        why: "A connection is a file descriptor, and so is each open file. The limit is raised as far as it \
              goes at the start: this is how far.",
        now: format!("ulimit -Hn {DESCRIPTORS} (as root, in the shell that starts it)"),
        always: format!("LimitNOFILE={DESCRIPTORS} in the [Service] section of its systemd unit"),
    });
    Finding {
        name: "file descriptors (hard limit)".to_owned(),
        value: hard.to_string(),
        advice,
    }
}

/// `None` where this kernel has no such setting.
fn sysctl(setting: &Setting, look: &dyn Look) -> Option<Finding> {
    let path = format!("/proc/sys/{}", setting.name.replace('.', "/"));
    let text = look.read(&path)?;
    let value: Vec<&str> = text.split_ascii_whitespace().collect();
    let value = value.join(" ");
    let advice = (setting.better)(look, &value).map(|better| Advice {
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

/// How many ports a range has.
fn ports(value: &str) -> Option<u64> {
    let (first, last) = value.split_once(' ')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    Some((last + 1).saturating_sub(first))
}

/// The last of three numbers, raised to this.
fn window(value: &str, least: u64) -> Option<String> {
    let (others, most) = value.rsplit_once(' ')?;
    let better = at_least(most, least)?;
    Some(format!("{others} {better}"))
}

/// Packets that found the queue of their processor full.
fn dropped(look: &dyn Look) -> u64 {
    let text = look.read("/proc/net/softnet_stat").unwrap_or_default();
    let of_line = |line: &str| {
        let word = line.split_ascii_whitespace().nth(1)?;
        u64::from_str_radix(word, 16).ok()
    };
    text.lines().filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A machine with these settings.
    struct Machine {
        files: BTreeMap<&'static str, &'static str>,
        descriptors: u64,
    }

    impl Look for Machine {
        fn read(&self, path: &str) -> Option<String> {
            Some(format!("{}\n", self.files.get(path)?))
        }

        fn descriptors(&self) -> u64 {
            self.descriptors
        }
    }

    /// A machine on which there is nothing to change.
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
        let said = report(&good());
        assert!(said.ends_with("nothing to change\n"), "{said}");
        assert!(!said.contains("change  "), "{said}");
        assert!(
            said.contains("ok      net.core.somaxconn = 4096\n"),
            "{said}"
        );
        assert!(!said.contains("nf_conntrack"), "there is none: {said}");
    }

    #[test]
    fn what_holds_it_back_is_said_with_the_command() {
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
            let said = report(&machine);
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
                said.ends_with("1 setting to change (docs/system.md says more)\n"),
                "{said}"
            );
        }
    }

    #[test]
    fn drops_and_few_descriptors_are_seen() {
        let mut machine = good();
        machine
            .files
            .insert("/proc/net/softnet_stat", "0001 0000000a 00");
        machine.descriptors = 1024;
        let said = report(&machine);
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
    fn nonsense_is_no_advice() {
        let mut machine = good();
        for value in machine.files.values_mut() {
            *value = "what?";
        }
        machine.files.insert("/proc/sys/net/ipv4/tcp_tw_reuse", "1");
        machine
            .files
            .insert("/proc/sys/net/ipv4/tcp_slow_start_after_idle", "0");
        assert!(report(&machine).ends_with("nothing to change\n"));
    }

    #[test]
    fn every_setting_is_explained() {
        let page = include_str!("../../../docs/system.md");
        for setting in SETTINGS {
            assert!(page.contains(setting.name), "{}", setting.name);
        }
    }
}
