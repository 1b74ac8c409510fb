//! The plan of a run: the steps, their command lines, their durations and needs. No I/O.

use crate::report::values::duration;
use crate::report::{LeftOut, NOT_CHOSEN};

/// Seconds that a run may take with all experiments and nginx.
pub const LIMIT_SECONDS: u64 = 90 * 60;
/// Seconds that a quick run may take.
pub const QUICK_LIMIT_SECONDS: u64 = 25 * 60;

/// Bytes that the part of `placement` on this machine's disk needs at its usual size, with room for the rival's cache.
const REAL_BYTES: u64 = 10 << 30;
/// Bytes of memory that a purge among a million objects needs.
const PURGE_BYTES: u64 = 6 << 30;

/// Properties of the machine that decide which experiments can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Number of cores.
    pub cores: usize,
    /// Whether this process runs as root.
    pub is_root: bool,
    /// Whether this build has the experiments that need privileges.
    pub has_lab: bool,
    /// Whether this process may open `/dev/fuse`.
    pub has_fuse: bool,
    /// Whether `fusermount3` is installed.
    pub has_fusermount: bool,
    /// Whether `fio` is installed.
    pub has_fio: bool,
    /// Whether `mkfs.btrfs` is installed.
    pub has_mkfs_btrfs: bool,
    /// Whether this process may make loop devices.
    pub has_loop: bool,
    /// Whether the kernel can limit the unwritten bytes of one file system, as Linux does since 6.2.
    pub has_strict_limit: bool,
    /// Whether `ip` (iproute2) is installed.
    pub has_ip: bool,
    /// Whether `/dev/net/tun` exists.
    pub has_tun: bool,
    /// Free bytes in the folder for temporary files; `None`: unknown.
    pub free: Option<u64>,
    /// Memory in bytes; `None`: unknown.
    pub memory: Option<u64>,
}

/// Choices of the user that the plan depends on.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// Whether nginx is measured as well.
    pub nginx: bool,
    /// Whether the experiments have less time than usual.
    pub quick: bool,
    /// Names of the experiments to run; if empty, all.
    pub only: Vec<String>,
}

/// One experiment of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedStep {
    /// Name of the step, and of its file.
    pub name: &'static str,
    /// Description.
    pub what: &'static str,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Expected duration in seconds.
    pub seconds: u64,
    /// Rights and programs that the experiment uses, and parts of it that are left out.
    pub notes: Vec<String>,
}

impl PlannedStep {
    /// Returns the command line as a user would enter it.
    pub fn command(&self) -> String {
        format!("sluice {}", self.arguments.join(" "))
    }
}

/// The steps of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Steps to run, in their order.
    pub steps: Vec<PlannedStep>,
    /// Chosen experiments that can't run here.
    pub left_out: Vec<LeftOut>,
    /// All experiments that were not chosen.
    pub not_chosen: Vec<LeftOut>,
}

/// The definition of a step. Arguments are separated by spaces.
struct Definition {
    name: &'static str,
    what: &'static str,
    arguments: &'static str,
    quick: &'static str,
    /// Expected seconds for Sluice alone and with nginx, usual and quick.
    seconds: [u64; 4],
    /// Whether the experiment can be run beside nginx.
    compares: bool,
    needs: Needs,
}

/// Needs of an experiment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    TwoCores,
    Memory,
    SlowDisks,
    Link,
}

const STEPS: [Definition; 14] = [
    Definition {
        name: "byte-range",
        what: "ranges of an uncached file, all fill modes",
        arguments: "byte-range --rounds 3",
        quick: "byte-range --rounds 1",
        seconds: [150, 270, 50, 90],
        compares: true,
        needs: Needs::Nothing,
    },
    Definition {
        name: "storm",
        what: "random ranges from many clients, each byte verified",
        arguments: "storm --requests 100000",
        quick: "storm --rounds 1",
        seconds: [30, 90, 5, 15],
        compares: true,
        needs: Needs::Nothing,
    },
    Definition {
        name: "storm-changing",
        what: "the same while files change",
        arguments: "storm --change-every 20ms --requests 100000",
        quick: "storm --change-every 20ms --rounds 1",
        seconds: [30, 90, 5, 15],
        compares: true,
        needs: Needs::Nothing,
    },
    Definition {
        name: "budget",
        what: "single bytes of a file of 100 GB",
        arguments: "budget",
        quick: "budget --seconds 15",
        seconds: [62, 62, 17, 17],
        compares: false,
        needs: Needs::Nothing,
    },
    Definition {
        name: "caching",
        what: "crowds, failing origins, short lifetimes",
        arguments: "caching",
        quick: "caching --seconds 10",
        seconds: [260, 420, 80, 120],
        compares: true,
        needs: Needs::Nothing,
    },
    Definition {
        name: "purge",
        what: "a purge among many objects, and the cost of purge rules",
        arguments: "purge",
        quick: "purge --objects 100000 --memory 512MiB --rounds 1 --seconds 1",
        seconds: [150, 150, 30, 30],
        compares: false,
        needs: Needs::Memory,
    },
    Definition {
        name: "placement",
        what: "caches on slow disks, on tmpfs and on this machine's disk",
        arguments: "placement",
        quick: "placement --rounds 1 --seconds 4 --real-seconds 10",
        seconds: [600, 1400, 150, 400],
        compares: true,
        needs: Needs::SlowDisks,
    },
    Definition {
        name: "keepalive",
        what: "connections to a far server, opened for each request and reused",
        arguments: "keepalive --rounds 2",
        quick: "keepalive --quick",
        seconds: [320, 640, 55, 110],
        compares: true,
        needs: Needs::Link,
    },
    Definition {
        name: "static",
        what: "small static files, up to saturation",
        arguments: "static --rounds 3",
        quick: "static --rounds 1 --seconds 10",
        seconds: [170, 640, 35, 130],
        compares: true,
        needs: Needs::TwoCores,
    },
    Definition {
        name: "ramp",
        what: "short connections at a rising rate",
        arguments: "ramp",
        quick: "ramp --rounds 1 --seconds 10",
        seconds: [95, 230, 25, 60],
        compares: true,
        needs: Needs::TwoCores,
    },
    Definition {
        name: "slow-clients",
        what: "an ordinary client among thousands of slow ones",
        arguments: "slow-clients",
        quick: "slow-clients --each 200 --seconds 65",
        seconds: [85, 170, 75, 150],
        compares: true,
        needs: Needs::TwoCores,
    },
    Definition {
        name: "hit-ratio",
        what: "simulated hit ratios of the eviction policies",
        arguments: "hit-ratio",
        quick: "hit-ratio --objects 20000 --requests 200000",
        seconds: [10, 10, 3, 3],
        compares: false,
        needs: Needs::Nothing,
    },
    Definition {
        name: "what-if",
        what: "predicted hit ratios of other cache sizes",
        arguments: "what-if",
        quick: "what-if --objects 100000 --requests 500000 --sampled 8192",
        seconds: [60, 60, 8, 8],
        compares: false,
        needs: Needs::Nothing,
    },
    Definition {
        name: "wan",
        what: "the emulated long-distance link, wanted and measured",
        arguments: "wan",
        quick: "wan --seconds 2 --packets 20000",
        seconds: [30, 30, 15, 15],
        compares: false,
        needs: Needs::Link,
    },
];

/// Returns the names of all steps.
pub fn names() -> impl Iterator<Item = &'static str> {
    STEPS.iter().map(|step| step.name)
}

/// Returns the plan for this machine.
///
/// Errors: a wish names an unknown step.
pub fn plan(wishes: &Wishes, host: &Host) -> anyhow::Result<Plan> {
    for name in &wishes.only {
        let known: Vec<&str> = names().collect();
        anyhow::ensure!(
            known.contains(&&**name),
            "there is no experiment {name}; the names are {}",
            known.join(", ")
        );
    }
    let mut plan = Plan {
        steps: Vec::new(),
        left_out: Vec::new(),
        not_chosen: Vec::new(),
    };
    let is_wanted =
        |step: &str| wishes.only.is_empty() || wishes.only.iter().any(|name| name == step);
    for step in &STEPS {
        let is_wanted = is_wanted(step.name);
        let why = match step.on(wishes, host) {
            Ok(step) if is_wanted => {
                plan.steps.push(step);
                continue;
            }
            Ok(_) => NOT_CHOSEN.to_owned(),
            Err(why) => why,
        };
        let name = step.name.to_owned();
        match is_wanted {
            true => plan.left_out.push(LeftOut { name, why }),
            false => plan.not_chosen.push(LeftOut { name, why }),
        }
    }
    Ok(plan)
}

impl Definition {
    /// Returns the step on this machine, or the reason why it can't run, and how to change that.
    fn on(&self, wishes: &Wishes, host: &Host) -> Result<PlannedStep, String> {
        let given = if wishes.quick {
            self.quick
        } else {
            self.arguments
        };
        let mut arguments = vec!["lab".to_owned()];
        arguments.extend(given.split(' ').map(str::to_owned));
        let nginx = self.compares && wishes.nginx;
        match (self.name, nginx) {
            // Without `--alone`, this experiment compares with all installed servers.
            ("static", true) => {}
            ("static" | "byte-range", false) => arguments.push("--alone".to_owned()),
            (_, true) => arguments.extend(["--against", "nginx"].map(str::to_owned)),
            (_, false) => {}
        }
        let mut adapted = self.needs.on(wishes, host)?;
        if (self.name, nginx) == ("static", true) {
            let note = "also measures Apache and h2o if they are installed, as its article does";
            adapted.notes.push(note.to_owned());
        }
        arguments.extend(adapted.arguments.split_whitespace().map(str::to_owned));
        arguments.push("--json".to_owned());
        Ok(PlannedStep {
            name: self.name,
            what: self.what,
            arguments,
            seconds: self.seconds[usize::from(wishes.quick) * 2 + usize::from(nginx)],
            notes: adapted.notes,
        })
    }
}

/// Changes of a step for this machine.
#[derive(Default)]
struct Adapted {
    arguments: String,
    notes: Vec<String>,
}

impl Adapted {
    fn note(note: &str) -> Adapted {
        Adapted {
            notes: vec![note.to_owned()],
            ..Adapted::default()
        }
    }
}

impl Needs {
    fn on(self, wishes: &Wishes, host: &Host) -> Result<Adapted, String> {
        match self {
            Needs::Nothing => Ok(Adapted::default()),
            Needs::TwoCores if host.cores < 2 => {
                Err("needs two cores: one for the server, one for the load".to_owned())
            }
            Needs::TwoCores => Ok(Adapted::default()),
            Needs::Memory => Ok(purge(wishes, host)),
            Needs::SlowDisks => placement(wishes, host),
            Needs::Link => link(host),
        }
    }
}

/// Returns the settings of the purge experiment, with fewer objects if there is little memory.
fn purge(wishes: &Wishes, host: &Host) -> Adapted {
    let is_small = host.memory.is_some_and(|memory| memory < PURGE_BYTES);
    match is_small && !wishes.quick {
        true => Adapted {
            arguments: "--objects 200000 --memory 1GiB".to_owned(),
            notes: vec!["fewer objects, since a million need 6 GiB of memory".to_owned()],
        },
        false => Adapted::default(),
    }
}

fn placement(wishes: &Wishes, host: &Host) -> Result<Adapted, String> {
    if !host.has_lab {
        return Err(
            "this build does not have it (it was built without the feature lab)".to_owned(),
        );
    }
    let mut adapted = Adapted::default();
    match slow_disks(host) {
        Ok(note) => adapted.notes.push(note.to_owned()),
        Err(remedy) => {
            adapted.arguments.push_str("--only tmpfs --only real");
            adapted
                .notes
                .push(format!("without the slow disks: {remedy}"));
        }
    }
    if !host.has_fio {
        adapted
            .notes
            .push("without the disk's own rate: install fio (apt-get install fio)".to_owned());
    }
    if let Some(remedy) = joined_disks(host).filter(|_| wishes.nginx) {
        adapted
            .notes
            .push(format!("nginx without mirror and stripe: {remedy}"));
    }
    if host.free.is_some_and(|free| free < REAL_BYTES) {
        adapted.arguments.push_str(" --real-size 512MiB");
        adapted.notes.push(
            "a smaller cache on this machine's disk, since less than 10 GiB are free".to_owned(),
        );
    }
    Ok(adapted)
}

/// Returns a note about the slow disks, or how to make them possible.
fn slow_disks(host: &Host) -> Result<&'static str, &'static str> {
    match host {
        Host {
            has_fuse: false,
            is_root: true,
            ..
        } => Err("/dev/fuse can't be opened; load the kernel module fuse (modprobe fuse)"),
        Host {
            has_fuse: false, ..
        } => Err(
            "this user can't open /dev/fuse; run it as root, or load the kernel module fuse (modprobe fuse)",
        ),
        Host { is_root: true, .. } => Ok("mounts disks through FUSE, as root"),
        Host {
            has_fusermount: true,
            ..
        } => Ok("mounts disks through FUSE, with fusermount3"),
        _ => Err("run it as root, or install fuse3 (apt-get install fuse3)"),
    }
}

/// Returns how to make it possible that btrfs joins disks; `None` if it is.
fn joined_disks(host: &Host) -> Option<&'static str> {
    let needs = [
        (host.is_root, "run it as root"),
        (host.has_strict_limit, "it needs Linux 6.2 or later"),
        (host.has_loop, "load the module loop (modprobe loop)"),
        (
            host.has_mkfs_btrfs,
            "install btrfs-progs (apt-get install btrfs-progs)",
        ),
    ];
    let missing = needs.into_iter().find(|(is_there, _)| !is_there);
    missing.map(|(_, remedy)| remedy)
}

fn link(host: &Host) -> Result<Adapted, String> {
    if !host.has_lab {
        return Err(
            "this build does not have it (it was built without the feature lab)".to_owned(),
        );
    }
    let missing = match host {
        Host { is_root: false, .. } => "run it as root",
        Host { has_tun: false, .. } => "load the kernel module tun (modprobe tun)",
        Host { has_ip: false, .. } => "install iproute2 (apt-get install iproute2)",
        _ => {
            return Ok(Adapted::note(
                "emulates a link between network namespaces, as root",
            ));
        }
    };
    Ok(Adapted {
        arguments: "--relay".to_owned(),
        notes: vec![format!(
            "with a relay in place of the emulated link; for the link, {missing}"
        )],
    })
}

impl Plan {
    /// Returns the expected duration in seconds.
    pub fn seconds(&self) -> u64 {
        self.steps.iter().map(|step| step.seconds).sum()
    }

    /// Renders the plan. `is_done` says whether a step has a result already.
    pub fn render(&self, is_done: impl Fn(&PlannedStep) -> bool) -> String {
        let (mut text, mut rest) = (String::new(), 0);
        for step in &self.steps {
            let is_done = is_done(step);
            rest += if is_done { 0 } else { step.seconds };
            let takes = match is_done {
                true => "done".to_owned(),
                false => duration(step.seconds as f64),
            };
            text.push_str(&format!("{:<15}{takes:>7}   {}\n", step.name, step.what));
        }
        text.push_str(&format!("\nIn total about {}.\n", duration(rest as f64)));
        for step in self.steps.iter().filter(|step| !step.notes.is_empty()) {
            text.push_str(&format!("{}: {}\n", step.name, step.notes.join("; ")));
        }
        for one in &self.left_out {
            text.push_str(&format!("{} is left out: {}\n", one.name, one.why));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host {
            cores: 2,
            is_root: true,
            has_lab: true,
            has_fuse: true,
            has_fusermount: true,
            has_fio: true,
            has_mkfs_btrfs: true,
            has_loop: true,
            has_strict_limit: true,
            has_ip: true,
            has_tun: true,
            free: Some(100 << 30),
            memory: Some(16 << 30),
        }
    }

    fn wishes(nginx: bool, quick: bool) -> Wishes {
        Wishes {
            nginx,
            quick,
            only: Vec::new(),
        }
    }

    #[test]
    fn all_experiments_fit_into_their_time() {
        for (quick, limit) in [(false, LIMIT_SECONDS), (true, QUICK_LIMIT_SECONDS)] {
            let plan = plan(&wishes(true, quick), &host()).expect("no unknown name");
            assert_eq!((plan.steps.len(), plan.left_out.len()), (STEPS.len(), 0));
            assert!(plan.seconds() < limit, "{} s", plan.seconds());
        }
    }

    #[test]
    fn commands_name_the_rival_and_print_json() {
        let with = plan(&wishes(true, true), &host()).expect("a plan");
        assert_eq!(
            with.steps[0].command(),
            "sluice lab byte-range --rounds 1 --against nginx --json"
        );
        let alone = plan(&wishes(false, false), &host()).expect("a plan");
        assert_eq!(
            alone.steps[0].command(),
            "sluice lab byte-range --rounds 3 --alone --json"
        );
        assert!(alone.seconds() < with.seconds() * 6);
    }

    #[test]
    fn missing_rights_and_programs_are_named_with_a_remedy() {
        let poor = Host {
            cores: 1,
            is_root: false,
            has_fusermount: false,
            has_fio: false,
            has_mkfs_btrfs: false,
            free: Some(1 << 30),
            memory: Some(1 << 30),
            ..host()
        };
        let plan = plan(&wishes(false, false), &poor).expect("a plan");
        let left_out: Vec<&str> = plan.left_out.iter().map(|one| &*one.name).collect();
        assert_eq!(left_out, ["static", "ramp", "slow-clients"]);
        let text = plan.render(|step| step.name == "budget");
        for part in [
            "ramp is left out: needs two cores",
            "apt-get install fuse3",
            "apt-get install fio",
            "run it as root",
            "fewer objects",
            "In total about ",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let command = |name| {
            let step = plan.steps.iter().find(|step| step.name == name);
            step.map(PlannedStep::command).unwrap_or_default()
        };
        assert!(command("wan").contains("--relay"));
        assert!(command("placement").contains("--only tmpfs --only real --real-size 512MiB"));
    }

    #[test]
    fn disks_are_joined_only_if_the_kernel_and_the_programs_can() {
        type Lack = fn(&mut Host);
        let lacks: [(Lack, &str); 4] = [
            (|host| host.is_root = false, "run it as root"),
            (|host| host.has_strict_limit = false, "Linux 6.2 or later"),
            (|host| host.has_loop = false, "modprobe loop"),
            (|host| host.has_mkfs_btrfs = false, "install btrfs-progs"),
        ];
        for (lack, remedy) in lacks {
            let mut poor = host();
            lack(&mut poor);
            for nginx in [false, true] {
                let plan = plan(&wishes(nginx, false), &poor).expect("a plan");
                let text = plan.render(|_| false);
                let note = text.split_once("nginx without mirror and stripe: ");
                let is_named = note.is_some_and(|(_, rest)| rest.contains(remedy));
                assert_eq!((note.is_some(), is_named), (nginx, nginx), "{text}");
            }
        }
        let plan = plan(&wishes(true, false), &host()).expect("a plan");
        assert!(!plan.render(|_| false).contains("without mirror"));
    }

    #[test]
    fn slow_disks_are_promised_only_if_fuse_can_be_opened() {
        for (has_fuse, is_root, has_fusermount, expected) in [
            (true, true, false, "through FUSE, as root"),
            (true, false, true, "through FUSE, with fusermount3"),
            (true, false, false, "apt-get install fuse3"),
            (false, false, true, "this user can't open /dev/fuse"),
            (false, true, true, "modprobe fuse"),
        ] {
            let host = Host {
                has_fuse,
                is_root,
                has_fusermount,
                ..host()
            };
            let plan = plan(&wishes(false, false), &host).expect("a plan");
            let text = plan.render(|_| false);
            assert!(text.contains(expected), "{text}");
            let promised = expected.contains("through FUSE");
            assert_eq!(text.contains("through FUSE"), promised, "{text}");
            let step = plan.steps.iter().find(|step| step.name == "placement");
            let command = step.map(PlannedStep::command).unwrap_or_default();
            assert_eq!(command.contains("--only tmpfs"), !promised, "{command}");
        }
    }

    #[test]
    fn the_plan_says_which_servers_the_static_files_have() {
        for nginx in [false, true] {
            let plan = plan(&wishes(nginx, true), &host()).expect("a plan");
            let text = plan.render(|_| false);
            let says = text.contains("static: also measures Apache and h2o");
            assert_eq!(says, nginx, "{text}");
            assert!(!text.contains("all installed"), "{text}");
        }
    }

    #[test]
    fn experiments_that_were_not_chosen_have_a_reason_and_are_not_in_the_plans_text() {
        let poor = Host { cores: 1, ..host() };
        let wishes = Wishes {
            only: vec!["budget".to_owned()],
            ..Wishes::default()
        };
        let plan = plan(&wishes, &poor).expect("a plan");
        assert_eq!((plan.steps.len(), plan.left_out.len()), (1, 0));
        assert_eq!(plan.not_chosen.len(), STEPS.len() - 1);
        let why = |name: &str| {
            let found = plan.not_chosen.iter().find(|one| one.name == name);
            found.map(|one| one.why.clone()).unwrap_or_default()
        };
        assert_eq!(why("storm"), NOT_CHOSEN);
        assert!(why("ramp").contains("needs two cores"));
        assert!(!plan.render(|_| false).contains("left out"));
    }

    #[test]
    fn an_unknown_experiment_is_an_error_that_names_the_known_ones() {
        let wishes = Wishes {
            only: vec!["storm".to_owned(), "rain".to_owned()],
            ..Wishes::default()
        };
        let error = plan(&wishes, &host()).expect_err("unknown").to_string();
        assert!(
            error.contains("rain") && error.contains("byte-range"),
            "{error}"
        );
    }
}
