//! The placement experiment: bodies without repetition, through caches on slow disks, on tmpfs and on the machine's
//! disk. Measures the throughput of clients and disks, and the space that the cache uses.

mod real;
mod slow;
mod table;
mod test_bed;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::bench::raise_descriptor_limit;
use crate::caches::{self, Rival};
use crate::configurations::Configurations;
use crate::disk::{Profile, Usage};
use crate::figures::{self, Figure, Measured, Spec};
pub use slow::LayoutSpread;
use slow::Subject;
use test_bed::TestBed;

/// Distribution of objects over volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// One disk.
    Single,
    /// Two disks; each stores all objects.
    Mirror,
    /// Two disks; the blocks of each object are distributed over both.
    Stripe,
    /// Two disks; each object is stored on one of them.
    Hash,
}

impl Layout {
    /// All layouts, in the order of the table.
    pub const ALL: [Layout; 4] = [Layout::Single, Layout::Mirror, Layout::Stripe, Layout::Hash];

    fn name(self) -> &'static str {
        match self {
            Layout::Single => "single",
            Layout::Mirror => "mirror",
            Layout::Stripe => "stripe",
            Layout::Hash => "hash",
        }
    }

    fn disks(self) -> usize {
        match self {
            Layout::Single => 1,
            _ => 2,
        }
    }
}

/// A part of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Four layouts on slow disks.
    Slow,
    /// The cache on tmpfs.
    Tmpfs,
    /// The machine's disk.
    Real,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(name: &str) -> Result<Part, String> {
        match name {
            "slow" => Ok(Part::Slow),
            "tmpfs" => Ok(Part::Tmpfs),
            "real" => Ok(Part::Real),
            _ => Err("slow, tmpfs or real".to_owned()),
        }
    }
}

/// Options of the experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Whether nginx, which must be installed then, is measured as well.
    pub nginx: bool,
    /// Parts to run; if empty, all.
    pub parts: Vec<Part>,
    /// Bytes per second that a slow disk reads and writes.
    pub rate: u64,
    /// Additional time of each request to a slow disk.
    pub latency: Duration,
    /// Size in bytes of the cache on each slow disk and on tmpfs.
    pub size: u64,
    /// Folder on the machine's disk; `None`: the folder for temporary files.
    pub folder: Option<PathBuf>,
    /// Size in bytes of the cache in that folder.
    pub real_size: u64,
    /// Size in bytes of Sluice's cache in memory.
    pub memory: u64,
    /// Number of runs of each kind (without and with the cache). The medians are the result.
    pub rounds: usize,
    /// Duration in seconds of each run on slow disks and tmpfs.
    pub seconds: f64,
    /// Duration in seconds of each run on the machine's disk. The kernel buffers writes of many seconds.
    pub real_seconds: f64,
    /// Number of worker threads or processes.
    pub workers: usize,
}

impl Options {
    /// Returns options for disks with 40 MB/s, three rounds of 8 s and one worker per core.
    pub fn new(program: impl Into<PathBuf>) -> Options {
        Options {
            program: program.into(),
            nginx: false,
            parts: Vec::new(),
            rate: 40_000_000,
            latency: Duration::from_millis(1),
            size: 256 << 20,
            folder: None,
            real_size: 4 << 30,
            memory: 256 << 20,
            rounds: 3,
            seconds: 8.0,
            real_seconds: 20.0,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            (1 << 20..=10 << 30).contains(&self.rate),
            "slow disks of 1 MiB/s to 10 GiB/s"
        );
        anyhow::ensure!(
            (16 << 20..=8 << 30).contains(&self.size),
            "16 MiB to 8 GiB on each slow disk"
        );
        anyhow::ensure!(
            (16 << 20..=1 << 40).contains(&self.real_size),
            "16 MiB to 1 TiB on the machine's own disk"
        );
        anyhow::ensure!((1..=1000).contains(&self.rounds), "1 to 1000 rounds");
        anyhow::ensure!(
            [self.seconds, self.real_seconds]
                .iter()
                .all(|seconds| (0.1..=3600.0).contains(seconds)),
            "runs of 0.1 to 3600 seconds"
        );
        anyhow::ensure!(self.workers > 0, "at least one worker");
        Ok(())
    }

    fn wants(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }

    fn specs(&self) -> Vec<Spec> {
        let slow = format!("disks of {:.0} MB/s", self.rate as f64 / 1e6);
        let slow = |what: &str| format!("{slow}: {what}");
        let own = |what: &str| format!("the machine's disk: {what}");
        let mut specs = Vec::new();
        if self.wants(Part::Slow) {
            specs.extend([
                Spec::new(
                    "clients",
                    slow("clients' throughput with the cache / without"),
                    "",
                )
                .least(0.95),
                Spec::new("mirror", slow("stored per second, mirror / single"), "").least(0.98),
                Spec::new("stripe", slow("stored per second, stripe / single"), "").least(1.95),
                Spec::new("hash", slow("stored per second, hash / single"), "").least(1.95),
                Spec::new("driven", slow("written per second / disk's rate"), "").least(0.9),
                Spec::new("over", slow("most bytes used / size"), "").most(1.0),
            ]);
        }
        if self.wants(Part::Tmpfs) {
            specs.push(Spec::new("tmpfs_over", "tmpfs: most bytes used / size", "").most(1.0));
        }
        if self.wants(Part::Real) {
            specs.extend([
                Spec::new(
                    "real_held",
                    own("throughput at a load of 70% of that without / load"),
                    "",
                )
                .least(0.98),
                Spec::new(
                    "real_stored",
                    own("share of these bytes that is stored"),
                    "",
                )
                .least(0.95),
                Spec::new(
                    "real_cpu_memory",
                    own("CPU per byte, storing / in memory"),
                    "",
                )
                .most(1.25),
                Spec::new(
                    "real_cpu_plain",
                    own("CPU per byte, storing / no cache"),
                    "",
                ),
                Spec::new("real_disk", own("written per second / fio's rate"), ""),
                Spec::new(
                    "real_disk_offered",
                    own("written per second / offered load, or fio's rate"),
                    "",
                )
                .least(0.9),
                Spec::new("real_over", own("most bytes used / size"), "").most(1.0),
            ]);
        }
        specs
    }
}

/// Result of the experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Bytes per second that a slow disk reads and writes.
    pub rate: u64,
    /// Size in bytes of the cache on each slow disk and on tmpfs.
    pub size: u64,
    /// Size in bytes of the cache on the machine's disk.
    pub real_size: u64,
    /// Number of runs whose medians count.
    pub rounds: usize,
    /// Duration in seconds of each run on slow disks and tmpfs.
    pub seconds: f64,
    /// Duration in seconds of each run on the machine's disk.
    pub real_seconds: f64,
    /// Number of worker threads or processes.
    pub workers: usize,
    /// Name and version of the rival, if one was measured.
    pub rival: Option<String>,
    /// Bytes per second that fio wrote to the machine's disk; `None`: not measured.
    pub fio: Option<f64>,
    /// Results of the layouts on slow disks, and of tmpfs.
    pub layouts: Vec<LayoutRow>,
    /// Results of the machine's disk with a closed loop.
    pub real: Vec<RealRow>,
    /// Figures with their goals.
    pub figures: Vec<Figure>,
    /// Configurations of the servers.
    pub configurations: Configurations,
    /// Remarks, including values that could not be measured and why.
    pub notes: Vec<String>,
}

/// Results of one layout of one server. Medians; rates in bytes per second.
#[derive(Debug, Clone, Serialize)]
pub struct LayoutRow {
    /// Server and layout.
    pub name: String,
    /// Bytes per second to clients, with the cache bypassed.
    pub plain: f64,
    /// Bytes per second to clients, with the cache.
    pub clients: f64,
    /// Median of `clients / plain` of each round.
    pub ratio: f64,
    /// Bytes per second stored by the cache. Bytes that a mirror writes twice count once.
    pub stored: f64,
    /// Bytes per second not stored because the write queue was full, by Sluice's counters.
    pub shed: f64,
    /// Share of the requests that did not reach the origin.
    pub hits: f64,
    /// Largest space used on a disk, divided by the configured size.
    pub over: f64,
    /// Activity of each disk.
    pub disks: Vec<Usage>,
    /// Values of all rounds; `None` if there are none.
    pub spread: Option<LayoutSpread>,
}

/// Results of the machine's disk with a closed loop. Medians; rates in bytes per second.
#[derive(Debug, Clone, Serialize)]
pub struct RealRow {
    /// Name of the server and of the cache.
    pub name: String,
    /// Bytes per second to clients.
    pub clients: f64,
    /// CPU time of the server in nanoseconds per byte sent to clients.
    pub cpu_ns: f64,
    /// Share of the bytes sent to clients that was stored during the load, by Sluice's counters.
    pub stored: f64,
    /// Activity of the disk.
    pub disk: Usage,
}

impl Report {
    /// Whether no part has a result.
    pub fn is_empty(&self) -> bool {
        self.layouts.is_empty() && self.real.is_empty()
    }

    /// Renders the tables and the notes.
    pub fn render(&self) -> String {
        table::render(self)
    }
}

/// Runs the experiment and reports progress to `progress`.
///
/// Errors: options out of bounds, or a rival that is not installed. A part that can't be measured becomes a note.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> anyhow::Result<Report> {
    options.check()?;
    raise_descriptor_limit()?;
    let required: &[Rival] = if options.nginx { &[Rival::Nginx] } else { &[] };
    let rivals = caches::rivals(required, &[])?;
    let mut trial = Trial {
        options,
        progress,
        bed: TestBed::new()?,
        sluice: Measured::default(),
        nginx: Measured::default(),
        layouts: Vec::new(),
        real: Vec::new(),
        fio: None,
    };
    if options.wants(Part::Slow) {
        trial.slow();
    }
    if options.wants(Part::Tmpfs) {
        trial.tmpfs();
    }
    if options.wants(Part::Real) {
        trial.on_own_disk();
    }
    let rival = options.nginx.then_some(&trial.nginx);
    let figures = figures::compare(options.specs(), &trial.sluice, rival);
    let mut notes = trial.sluice.notes;
    notes.extend(trial.nginx.notes);
    let mut configurations = trial.sluice.configurations;
    configurations.append(trial.nginx.configurations);
    Ok(Report {
        rate: options.rate,
        size: options.size,
        real_size: options.real_size,
        rounds: options.rounds,
        seconds: options.seconds,
        real_seconds: options.real_seconds,
        workers: options.workers,
        rival: rivals.versions.into_iter().next(),
        fio: trial.fio,
        layouts: trial.layouts,
        real: trial.real,
        figures,
        configurations,
        notes,
    })
}

struct Trial<'a> {
    options: &'a Options,
    progress: &'a dyn Fn(&str),
    bed: TestBed,
    sluice: Measured,
    nginx: Measured,
    layouts: Vec<LayoutRow>,
    real: Vec<RealRow>,
    fio: Option<f64>,
}

impl Trial<'_> {
    /// Measures a layout and adds its row. If that fails, adds a note.
    fn layout(&mut self, subject: Subject) -> Option<LayoutRow> {
        let mut row = None;
        let name = subject.name();
        self.sluice.part(&name, self.progress, |measured| {
            row = Some(slow::measure(
                self.options,
                &mut self.bed,
                subject,
                &mut measured.configurations,
                self.progress,
            )?);
            Ok(())
        });
        self.layouts.extend(row.clone());
        row
    }

    fn slow(&mut self) {
        let rows = Layout::ALL.map(|layout| self.layout(Subject::Sluice(layout)));
        let [single, mirror, stripe, hash] = &rows;
        if let Some(single) = single {
            self.sluice.put("clients", single.ratio);
            let driven = single.stored / self.options.rate as f64;
            self.sluice.put("driven", driven);
            for (key, row) in [("mirror", mirror), ("stripe", stripe), ("hash", hash)] {
                if let Some(row) = row {
                    self.sluice.put(key, row.stored / single.stored.max(1.0));
                }
            }
        }
        if let Some(over) = most_over(rows.iter().flatten()) {
            self.sluice.put("over", over);
        }
        if self.options.nginx {
            self.slow_nginx();
        }
    }

    /// Measures nginx, which has only one layout of its own: a cache on each disk. Of two configurations, writes in the
    /// workers or in threads, the one that is faster on one disk counts for all figures. btrfs makes mirrors and stripes;
    /// they are compared with one disk that has btrfs, too.
    fn slow_nginx(&mut self) {
        let mut both =
            |disks| [false, true].map(|threads| self.layout(Subject::Nginx(disks, threads)));
        let (single, hash) = (both(1), both(2));
        let rows = single.into_iter().zip(hash).zip([false, true]);
        let rows = rows.filter_map(|((single, hash), threads)| Some((single?, hash, threads)));
        let faster = rows.max_by(|(one, ..), (other, ..)| one.ratio.total_cmp(&other.ratio));
        let Some((single, hash, threads)) = faster else {
            return;
        };
        let joined = |profile| Subject::NginxJoined(profile, threads);
        let base = self.layout(joined(Profile::Single));
        let others = base.as_ref().map(|_| {
            [Profile::Mirror, Profile::Stripe].map(|profile| self.layout(joined(profile)))
        });
        let nginx = &mut self.nginx;
        nginx.put("clients", single.ratio);
        nginx.put("driven", single.stored / self.options.rate as f64);
        if let Some(over) = most_over(self.layouts.iter().filter(|row| is_of_nginx(row))) {
            nginx.put("over", over);
        }
        if let Some(hash) = hash {
            nginx.put("hash", hash.stored / single.stored.max(1.0));
        }
        for (base, rows) in base.into_iter().zip(others) {
            for (key, row) in ["mirror", "stripe"].into_iter().zip(rows) {
                if let Some(row) = row {
                    nginx.put(key, row.stored / base.stored.max(1.0));
                }
            }
        }
    }

    fn tmpfs(&mut self) {
        if let Some(row) = self.layout(Subject::SluiceTmpfs) {
            self.sluice.put("tmpfs_over", row.over);
        }
        if self.options.nginx
            && let Some(row) = self.layout(Subject::NginxTmpfs)
        {
            self.nginx.put("tmpfs_over", row.over);
        }
    }

    fn on_own_disk(&mut self) {
        let (options, progress) = (self.options, self.progress);
        let mut ground = None;
        self.sluice.part("the machine's disk", progress, |_| {
            ground = Some(real::Ground::new(options, progress)?);
            Ok(())
        });
        let Some(ground) = ground else {
            return;
        };
        self.fio = Some(ground.disk_rate);
        let (bed, rows) = (&mut self.bed, &mut self.real);
        self.sluice
            .part("Sluice on the machine's disk", progress, |measured| {
                rows.extend(real::sluice(options, bed, &ground, progress, measured)?);
                Ok(())
            });
        if options.nginx {
            self.nginx
                .part("nginx on the machine's disk", progress, |measured| {
                    rows.extend(real::nginx(options, bed, &ground, progress, measured)?);
                    Ok(())
                });
        }
    }
}

fn is_of_nginx(row: &LayoutRow) -> bool {
    row.name.starts_with("nginx")
}

fn most_over<'a>(rows: impl Iterator<Item = &'a LayoutRow>) -> Option<f64> {
    rows.map(|row| row.over).reduce(f64::max)
}
