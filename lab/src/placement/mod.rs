//! The placement experiment: bodies that are never asked for twice, through caches on slow disks, on tmpfs and on the
//! machine's own disk. What do clients get, what do the disks get, and how much room does the cache take?

mod bed;
mod real;
mod slow;
mod table;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::bench::raise_descriptor_limit;
use crate::caches::{self, Rival};
use crate::disk::Usage;
use crate::figures::{self, Figure, Measured, Spec};
use bed::Bed;
use slow::Who;

/// How objects are spread over volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// One disk.
    Single,
    /// Two, each of which has everything.
    Mirror,
    /// Two that share the blocks of each object.
    Stripe,
    /// Two that share the objects.
    Hash,
}

impl Layout {
    /// All, in the article's order.
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
    /// Four layouts over two slow disks.
    Slow,
    /// The cache on tmpfs.
    Tmpfs,
    /// The machine's own disk.
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

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Whether nginx goes through the same; it is an error then if it is not installed.
    pub nginx: bool,
    /// Which parts; all if there are none.
    pub parts: Vec<Part>,
    /// Bytes a second that a slow disk moves.
    pub rate: u64,
    /// What each of its requests takes beside that.
    pub latency: Duration,
    /// Bytes that the cache on each slow disk may take.
    pub size: u64,
    /// Folder on the machine's own disk; the one for temporary files without.
    pub folder: Option<PathBuf>,
    /// Bytes that the cache there may take.
    pub real_size: u64,
    /// Bytes of Sluice's memory tier.
    pub memory: u64,
    /// Runs without and with the cache, whose medians count.
    pub rounds: usize,
    /// Length of each run over slow disks and tmpfs.
    pub seconds: f64,
    /// Length of each run over the machine's own disk, for which the kernel holds back many seconds' worth of writes.
    pub real_seconds: f64,
    /// Worker threads or processes.
    pub workers: usize,
}

impl Options {
    /// 40 MB/s, three rounds of 8 s, as many workers as there are cores.
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
                Spec::new("mirror", slow("stored a second, mirror / single"), "").least(0.98),
                Spec::new("stripe", slow("stored a second, stripe / single"), "").least(1.95),
                Spec::new("hash", slow("stored a second, hash / single"), "").least(1.95),
                Spec::new("driven", slow("written a second / what one takes"), "").least(0.9),
                Spec::new("over", slow("bytes held / size, at most"), "").most(1.0),
            ]);
        }
        if self.wants(Part::Tmpfs) {
            specs.push(Spec::new("tmpfs_over", "tmpfs: bytes held / size, at most", "").most(1.0));
        }
        if self.wants(Part::Real) {
            specs.extend([
                Spec::new(
                    "real_held",
                    own("throughput held at 70% of that without"),
                    "",
                )
                .least(0.98),
                Spec::new("real_stored", own("share of it that is stored"), "").least(0.95),
                Spec::new(
                    "real_cpu_memory",
                    own("CPU a byte, storing / in memory"),
                    "",
                )
                .most(1.25),
                Spec::new("real_cpu_plain", own("CPU a byte, storing / no cache"), ""),
                Spec::new("real_disk", own("written a second / fio's rate"), ""),
                Spec::new(
                    "real_disk_offered",
                    own("written a second / what is offered, or fio's rate"),
                    "",
                )
                .least(0.9),
                Spec::new("real_over", own("bytes held / size, at most"), "").most(1.0),
            ]);
        }
        specs
    }
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Bytes a second that a slow disk moves.
    pub rate: u64,
    /// Bytes that the cache on each slow disk, and on tmpfs, may take.
    pub size: u64,
    /// Bytes that the cache on the machine's own disk may take.
    pub real_size: u64,
    /// Runs whose medians count.
    pub rounds: usize,
    /// Length of each, over slow disks and tmpfs.
    pub seconds: f64,
    /// Length of each over the machine's own disk.
    pub real_seconds: f64,
    /// Worker threads or processes.
    pub workers: usize,
    /// The rival's name and version, if one was measured.
    pub rival: Option<String>,
    /// Bytes a second that fio wrote to the machine's own disk.
    pub fio: Option<f64>,
    /// Layouts over slow disks, and tmpfs.
    pub layouts: Vec<LayoutRow>,
    /// The machine's own disk at saturation.
    pub real: Vec<RealRow>,
    /// Figures and goals.
    pub figures: Vec<Figure>,
    /// What else is worth knowing, and what could not be measured.
    pub notes: Vec<String>,
}

/// One layout of one server. Medians; bytes a second.
#[derive(Debug, Clone, Serialize)]
pub struct LayoutRow {
    /// Server and layout.
    pub name: String,
    /// To clients, past the cache.
    pub plain: f64,
    /// To clients, through the cache.
    pub clients: f64,
    /// The second over the first, by rounds.
    pub ratio: f64,
    /// Stored; what a mirror stores twice counts once.
    pub stored: f64,
    /// Not stored, since the queue was full; by Sluice's account.
    pub shed: f64,
    /// Share of the requests that did not reach the origin.
    pub hits: f64,
    /// The most that a disk held, over what the cache may take there.
    pub over: f64,
    /// What each disk did.
    pub disks: Vec<Usage>,
}

/// The machine's own disk at saturation. Medians; bytes a second.
#[derive(Debug, Clone, Serialize)]
pub struct RealRow {
    /// Server and cache.
    pub name: String,
    /// To clients.
    pub clients: f64,
    /// Nanoseconds of CPU time for each byte to clients.
    pub cpu_ns: f64,
    /// Share of those bytes that was stored meanwhile; by Sluice's account.
    pub stored: f64,
    /// What the disk did.
    pub disk: Usage,
}

impl Report {
    /// The tables and the notes.
    pub fn render(&self) -> String {
        table::render(self)
    }
}

/// Measures, with lines of progress for `tell`.
///
/// Errors: options out of bounds, or a rival that is not installed. What can't be measured is a note.
pub fn run(options: &Options, tell: &dyn Fn(&str)) -> anyhow::Result<Report> {
    options.check()?;
    raise_descriptor_limit()?;
    let asked: &[Rival] = if options.nginx { &[Rival::Nginx] } else { &[] };
    let rivals = caches::rivals(asked, &[])?;
    let mut trial = Trial {
        options,
        tell,
        bed: Bed::new()?,
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
        notes,
    })
}

struct Trial<'a> {
    options: &'a Options,
    tell: &'a dyn Fn(&str),
    bed: Bed,
    sluice: Measured,
    nginx: Measured,
    layouts: Vec<LayoutRow>,
    real: Vec<RealRow>,
    fio: Option<f64>,
}

impl Trial<'_> {
    /// A row more, if it can be measured; else a note.
    fn layout(&mut self, who: Who) -> Option<LayoutRow> {
        let mut row = None;
        let name = who.name();
        self.sluice.part(&name, self.tell, |_| {
            row = Some(slow::measure(self.options, &mut self.bed, who, self.tell)?);
            Ok(())
        });
        self.layouts.extend(row.clone());
        row
    }

    fn slow(&mut self) {
        let rows = Layout::ALL.map(|layout| self.layout(Who::Sluice(layout)));
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

    /// nginx has no other layouts of its own. What is faster with a disk counts: its workers writing, or threads.
    fn slow_nginx(&mut self) {
        let mut faster = |disks| {
            let rows = [false, true].map(|threads| self.layout(Who::Nginx(disks, threads)));
            let rows: Vec<LayoutRow> = rows.into_iter().flatten().collect();
            let over = most_over(rows.iter());
            let mut rows = rows.into_iter();
            let first = rows.next()?;
            let best = rows.fold(first, |best, row| match row.ratio > best.ratio {
                true => row,
                false => best,
            });
            over.map(|over| (best, over))
        };
        let (single, hash) = (faster(1), faster(2));
        if let Some((single, over)) = single {
            let nginx = &mut self.nginx;
            nginx.put("clients", single.ratio);
            nginx.put("driven", single.stored / self.options.rate as f64);
            nginx.put("over", over);
            if let Some((hash, _)) = hash {
                nginx.put("hash", hash.stored / single.stored.max(1.0));
            }
        }
    }

    fn tmpfs(&mut self) {
        if let Some(row) = self.layout(Who::SluiceTmpfs) {
            self.sluice.put("tmpfs_over", row.over);
        }
        if self.options.nginx
            && let Some(row) = self.layout(Who::NginxTmpfs)
        {
            self.nginx.put("tmpfs_over", row.over);
        }
    }

    fn on_own_disk(&mut self) {
        let (options, tell) = (self.options, self.tell);
        let mut ground = None;
        self.sluice.part("the machine's disk", tell, |_| {
            ground = Some(real::Ground::new(options, tell)?);
            Ok(())
        });
        let Some(ground) = ground else {
            return;
        };
        self.fio = Some(ground.disk_rate);
        let (bed, rows) = (&mut self.bed, &mut self.real);
        self.sluice.part("Sluice on it", tell, |measured| {
            rows.extend(real::sluice(options, bed, &ground, tell, measured)?);
            Ok(())
        });
        if options.nginx {
            self.nginx.part("nginx on it", tell, |measured| {
                rows.extend(real::nginx(options, bed, &ground, tell, measured)?);
                Ok(())
            });
        }
    }
}

fn most_over<'a>(rows: impl Iterator<Item = &'a LayoutRow>) -> Option<f64> {
    rows.map(|row| row.over).reduce(f64::max)
}
