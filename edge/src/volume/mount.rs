//! Mounting: reads a device and continues its volume, creates a new volume, or refuses to overwrite the device.

use std::io;
use std::sync::Arc;

use super::checksum::Salt;
use super::device_io::read_exactly;
use super::format::superblock::{NotOurs, Superblock};
use super::format::{BLOCK, Geometry, VERSION};
use super::mounted::{Context, Mounted, Parts, SEQUENCE_STEP, write_superblock};
use super::purges::PurgeLog;
use super::recover::find_position;
use crate::sys::disk::device::{Device, OpenError, Opened};

/// Number of bytes at the beginning of a device that must be zero for the device to count as unused.
pub const UNUSED_CHECK_BYTES: u64 = 1 << 20;

/// Whether an existing volume on the device is continued or replaced.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// Continue the existing volume with its records.
    Continue,
    /// Create an empty volume, because the existing one may have missed purges. The new volume's lap (number of the pass over the segments)
    /// and sequence numbers must be greater than those given.
    Create {
        /// The last known lap (number of the pass over the segments) of the existing volume; 0: none.
        lap: u64,
        /// The first sequence number (of fetches and purges) of the last known run with the existing volume; 0: none.
        sequence: u64,
    },
}

/// The content of the device before it is mounted.
enum DeviceContent {
    Ours(Superblock),
    Unused,
    Other(NotOurs),
}

/// Continues or creates a volume on a device.
///
/// # Errors
///
/// The device has content that must not be overwritten, or it fails.
pub fn mount(
    context: &Arc<Context>,
    opened: Opened,
    mode: Mode,
) -> Result<Arc<Mounted>, OpenError> {
    let geometry = geometry(context, &opened)?;
    let device = opened.device;
    let failed = |error: io::Error| {
        let path = context.options.path.display();
        OpenError::Failed(format!("{path} can't be read or written: {error}"))
    };
    let was = match opened.fresh {
        true => DeviceContent::Unused,
        false => look(&*device).map_err(failed)?,
    };
    refuse_foreign(context, &was)?;
    let has_room = device.size() >= geometry.size();
    let parts = match (&was, mode) {
        (DeviceContent::Ours(superblock), Mode::Continue)
            if superblock.geometry == geometry && has_room =>
        {
            fit(&*device, geometry, opened.is_block)?;
            go_on(&device, *superblock).map_err(failed)?
        }
        _ => None,
    };
    let parts = match parts {
        Some(parts) => parts,
        None => {
            fit(&*device, geometry, opened.is_block)?;
            let parts = make(context, device, geometry, &was, mode).map_err(failed)?;
            log_formatting(context, &was, geometry, mode);
            parts
        }
    };
    for (space, number) in parts.purges.marks() {
        context.note_purge(space, number);
    }
    Mounted::begin(Arc::clone(context), parts).map_err(failed)
}

fn geometry(context: &Context, opened: &Opened) -> Result<Geometry, OpenError> {
    let options = &context.options;
    let size = match (options.size, opened.is_block) {
        (0, true) => opened.device.size(),
        (size, _) => size,
    };
    Geometry::of(size, options.segment)
        .map_err(|why| OpenError::Refused(format!("volume {}: {why}", options.name)))
}

/// Sets the file of a volume to exactly its configured size.
fn fit(device: &dyn Device, geometry: Geometry, is_block: bool) -> Result<(), OpenError> {
    match device.size() == geometry.size() && !is_block {
        true => Ok(()),
        false => device.set_size(geometry.size()),
    }
}

fn look(device: &dyn Device) -> io::Result<DeviceContent> {
    let length = device.size().min(UNUSED_CHECK_BYTES) / BLOCK * BLOCK;
    if length < 2 * BLOCK {
        return Ok(DeviceContent::Other(NotOurs::Foreign));
    }
    let bytes = read_exactly(device, 0, length as usize)?;
    Ok(classify(bytes.filled()))
}

/// Classifies a device by its first bytes, at least two blocks.
fn classify(start: &[u8]) -> DeviceContent {
    let (a, rest) = start.split_at(BLOCK as usize);
    match Superblock::newest([a, &rest[..BLOCK as usize]]) {
        Ok(superblock) => DeviceContent::Ours(superblock),
        Err(NotOurs::Empty) if rest.iter().all(|byte| *byte == 0) => DeviceContent::Unused,
        Err(NotOurs::Empty) => DeviceContent::Other(NotOurs::Foreign),
        Err(not) => DeviceContent::Other(not),
    }
}

/// Describes the content of a device that only `overwrite` permits to overwrite, from the device's
/// first `UNUSED_CHECK_BYTES` bytes. Returns `None` for other devices.
pub fn other_content(start: &[u8]) -> Option<String> {
    match start.len() {
        0 => None,
        length if (length as u64) < 2 * BLOCK => {
            description(&DeviceContent::Other(NotOurs::Foreign))
        }
        _ => description(&classify(start)),
    }
}

fn description(content: &DeviceContent) -> Option<String> {
    match content {
        DeviceContent::Other(NotOurs::Foreign) => {
            Some("contains data that is not a volume".to_owned())
        }
        DeviceContent::Other(NotOurs::Version(other)) => Some(format!(
            "is a volume of format version {other}, and this program supports version {VERSION}"
        )),
        _ => None,
    }
}

fn refuse_foreign(context: &Context, was: &DeviceContent) -> Result<(), OpenError> {
    let options = &context.options;
    let Some(what) = description(was).filter(|_| !options.overwrite) else {
        return Ok(());
    };
    Err(OpenError::Refused(format!(
        "{} {what}: nothing of it was changed. Give the volume {} another `path`, or set `overwrite = true` \
         to lose what is there",
        options.path.display(),
        options.name,
    )))
}

/// Logs that a volume was formatted, and why.
fn log_formatting(context: &Context, was: &DeviceContent, geometry: Geometry, mode: Mode) {
    let name = &context.options.name;
    let why = match (was, mode) {
        (DeviceContent::Unused, _) => "the file or device was empty",
        (DeviceContent::Other(NotOurs::Damaged), _) => "its superblocks were damaged",
        (DeviceContent::Other(_), _) => {
            "`overwrite` is set, and the previous content was not a usable volume"
        }
        (_, Mode::Create { .. }) => "it may have missed purges",
        (DeviceContent::Ours(superblock), _) if superblock.geometry != geometry => {
            "its `size` or `segment` was changed"
        }
        _ => "its purge log was damaged, or its file was truncated",
    };
    tracing::info!(target: "sluice::event::volume::formatted", volume = %name, size = geometry.size(), "a volume was formatted and starts empty: {why}");
}

/// Continues an existing volume; `None` if its purge log is damaged.
fn go_on(device: &Arc<dyn Device>, found: Superblock) -> io::Result<Option<Parts>> {
    let salt = Salt::of(found.uuid);
    let log = PurgeLog::read(&**device, found.geometry, salt, found.log_generation)?;
    let Ok(purges) = log else {
        return Ok(None);
    };
    let position = find_position(&**device, &found)?;
    let mut superblock = Superblock {
        sequence: found.sequence + SEQUENCE_STEP,
        clean: false,
        open: position.segment,
        lap: position.lap,
        log_generation: purges.generation(),
        ..found
    };
    // Both superblocks are written, so that the new sequence number is found even if one of them is damaged later.
    write_superblock(&**device, &mut superblock)?;
    write_superblock(&**device, &mut superblock)?;
    Ok(Some(Parts {
        device: Arc::clone(device),
        superblock,
        purges,
        clean_run: found.clean.then_some(found.sequence),
        is_empty: false,
    }))
}

/// Creates an empty volume on the device.
fn make(
    context: &Context,
    device: Arc<dyn Device>,
    geometry: Geometry,
    was: &DeviceContent,
    mode: Mode,
) -> io::Result<Parts> {
    let (mut generation, mut lap, mut sequence) = (0, 0, 0);
    if let DeviceContent::Ours(superblock) = was {
        (generation, lap, sequence) = (superblock.generation, superblock.lap, superblock.sequence);
    }
    if let Mode::Create {
        lap: known,
        sequence: counted,
    } = mode
    {
        (lap, sequence) = (lap.max(known), sequence.max(counted));
    }
    // The new volume contains nothing older than the purges since the start of the program, so their numbers are its first marks, on
    // whichever volume these purges were logged.
    let marks = context.purged.lock().clone();
    if let Some(greatest) = marks.values().max() {
        sequence = sequence.max(greatest / SEQUENCE_STEP * SEQUENCE_STEP);
    }
    let random = &context.random;
    let mut superblock = Superblock {
        uuid: u128::from(random.next_u64()) << 64 | u128::from(random.next_u64()),
        generation,
        geometry,
        sequence: sequence + SEQUENCE_STEP,
        clean: false,
        open: 0,
        // Records are valid only with the lap (pass over the volume) in which they were written, so a new lap makes those of an earlier
        // volume on this device invalid.
        lap: lap + 2,
        log_generation: 1,
        made_s: context.clock.unix_ms() / 1000,
    };
    // The superblock is written twice. The first write makes the device recognizable as a volume even if the following writes are lost; the
    // last one, after the other structures, completes the volume.
    write_superblock(&*device, &mut superblock)?;
    let salt = Salt::of(superblock.uuid);
    let purges = PurgeLog::make(&*device, geometry, salt, (1, random.next_u64()), &marks)?;
    device.sync()?;
    write_superblock(&*device, &mut superblock)?;
    Ok(Parts {
        device,
        superblock,
        purges,
        clean_run: None,
        is_empty: true,
    })
}
