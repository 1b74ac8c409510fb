//! Tests of a volume on a simulated device: stored records are found, also after a restart.

mod crash;
mod decay;
mod purge_log;
mod rig;
mod service;

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::*;
use crate::sys::disk::device::Device;
use crate::sys::disk::simulated::Simulated;
use rig::{Rig, block, head, wait_until};

const SIZE: u64 = 16 << 20;
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_written_record_is_found_and_read() {
    let rig = Rig::new(SIZE);
    let volume = rig.open();
    rig.put(&volume, head(1, 1), 500);
    rig.put(&volume, block(1, 0), 300_000);
    volume.flush();
    rig.has(&volume, head(1, 1), 500);
    rig.has(&volume, block(1, 0), 300_000);
    assert_eq!(volume.find(&head(1, 2)), None);
    assert_eq!(volume.heads(7, 1).len(), 1);
    let status = volume.status();
    assert_eq!((status.numbers.records, status.numbers.queue_bytes), (2, 0));
    assert_eq!(
        status.numbers.size,
        rig.device.size(),
        "exactly of its size"
    );
    assert!(status.numbers.size <= SIZE);
    assert_eq!(rig.done.written.load(Ordering::SeqCst), 2);
}
#[test]
fn records_are_found_after_a_restart() {
    for ending in ["close", "kill"] {
        let mut rig = Rig::new(SIZE);
        let volume = rig.open();
        // These records take more than one segment.
        let ids: Vec<Id> = (0..40).map(|n| block(n, 0)).collect();
        for id in &ids {
            rig.put(&volume, *id, 100_000);
            volume.flush();
        }
        let sequence = volume.sequence();
        match ending {
            "close" => volume.close(LONG),
            _ => rig.device = rig.device.kill(),
        }
        drop(volume);
        let volume = rig.open();
        rig.wait_loaded(&volume);
        for id in &ids {
            rig.has(&volume, *id, 100_000);
        }
        assert!(volume.sequence() > sequence);
        // Records can be written after the restart, too.
        rig.put(&volume, block(100, 0), 100_000);
        volume.flush();
        rig.has(&volume, block(100, 0), 100_000);
    }
}
#[test]
fn the_newest_version_is_found_and_a_deleted_record_is_not() {
    let rig = Rig::new(SIZE);
    let volume = rig.open();
    rig.put(&volume, head(1, 1), 500);
    rig.put(&volume, head(2, 1), 500);
    rig.put(&volume, head(3, 1), 500);
    volume.flush();
    rig.put(&volume, head(1, 1), 600);
    // Deletes stored and queued records, and writes one of them again.
    assert!(volume.forget(&head(2, 1)));
    assert_eq!(volume.find(&head(2, 1)), None);
    rig.put(&volume, head(4, 1), 500);
    assert!(volume.forget(&head(4, 1)));
    assert!(volume.forget(&head(3, 1)));
    rig.put(&volume, head(3, 1), 700);
    assert!(!volume.forget(&head(5, 1)));
    volume.flush();
    let check = |volume: &Volume| {
        rig.has(volume, head(1, 1), 600);
        rig.has(volume, head(3, 1), 700);
        assert_eq!(volume.find(&head(2, 1)), None);
        assert_eq!(volume.find(&head(4, 1)), None);
    };
    check(&volume);
    let again = Rig::on(rig.device.kill(), SIZE);
    let volume = again.open();
    again.wait_loaded(&volume);
    check(&volume);
}
#[test]
fn the_log_wraps_around_and_keeps_records_that_were_read() {
    let rig = Rig::new(SIZE);
    let volume = rig.open();
    let read = block(1_000, 0);
    let unread = block(1_001, 0);
    rig.put(&volume, read, 100_000);
    rig.put(&volume, unread, 100_000);
    volume.flush();
    for n in 0..500 {
        rig.put(&volume, block(n, 0), 100_000);
        volume.flush();
        // Reads one record once per pass over the volume, so that it is copied each time.
        if n % 100 == 50 {
            rig.has(&volume, read, 100_000);
        }
    }
    rig.has(&volume, read, 100_000);
    assert_eq!(volume.find(&unread), None);
    rig.has(&volume, block(499, 0), 100_000);
    let status = volume.status();
    let live_bytes = volume.inner.mounted().expect("it is up").index.live_bytes();
    assert!(status.numbers.laps >= 2, "{status:?}");
    assert!((100_000..1_000_000).contains(&status.numbers.rewritten_bytes));
    assert!(
        live_bytes * 10 > status.numbers.size * 8,
        "the volume is in use"
    );
    for n in 0..500 {
        if volume.find(&block(n, 0)).is_some() {
            rig.has(&volume, block(n, 0), 100_000);
        }
    }
}
struct All;
impl Witness for All {
    fn is_in_use(&self, id: &Id) -> bool {
        id.key.is_multiple_of(10)
    }
}
#[test]
fn records_in_use_in_memory_count_as_read_up_to_a_share() {
    let rig = Rig::new(SIZE);
    let volume = rig.open();
    let witness: Arc<dyn Witness> = Arc::new(All);
    volume.set_witness(7, Arc::downgrade(&witness));
    for n in 0..300 {
        rig.put(&volume, block(n, 0), 100_000);
        volume.flush();
    }
    let found = |n: &u128| volume.find(&block(*n, 0)).is_some();
    assert_eq!((0..100).filter(found).count(), 10);
    let status = volume.status();
    assert!(status.numbers.rewritten_bytes * 4 < status.numbers.written_bytes);
}
#[test]
fn recency_survives_only_a_clean_stop() {
    for clean in [true, false] {
        let mut rig = Rig::new(SIZE);
        let volume = rig.open();
        for n in 0..10 {
            rig.put(&volume, block(n, 0), 100_000);
        }
        volume.flush();
        rig.has(&volume, block(3, 0), 100_000);
        match clean {
            true => volume.close(LONG),
            false => rig.device = rig.device.kill(),
        }
        drop(volume);
        let volume = rig.open();
        rig.wait_loaded(&volume);
        // Writes until every segment has been overwritten once.
        for n in 10..170 {
            rig.put(&volume, block(n, 0), 100_000);
            volume.flush();
        }
        let kept: Vec<u128> = (0..10)
            .filter(|n| volume.find(&block(*n, 0)).is_some())
            .collect();
        assert_eq!(kept, if clean { vec![3] } else { vec![] });
    }
}
#[test]
fn records_beyond_the_queue_and_on_request_are_shed() {
    let mut rig = Rig::new(SIZE);
    rig.options.queue = 1_000_000;
    let volume = rig.open();
    // Queues more records than the writer can write in time. On a new volume the writer starts at once, so many records are needed to fill
    // the queue.
    for n in 0..2_000 {
        rig.put(&volume, block(n, 0), 100_000);
    }
    volume.flush();
    let status = volume.status();
    let written = rig.done.written.load(Ordering::SeqCst) as u64;
    assert!(status.numbers.shed > 0 && written > 0);
    assert_eq!(written + status.numbers.shed, 2_000);
    assert_eq!(status.numbers.shed_bytes, status.numbers.shed * 100_000);
    assert_eq!(volume.shed(1), 0, "nothing waits");
}
#[test]
fn a_record_waits_for_others_at_most_for_the_write_delay() {
    let mut rig = Rig::new(SIZE);
    rig.options.write_delay = Duration::ZERO;
    let volume = rig.open();
    rig.put(&volume, block(1, 0), 1_000);
    wait_until(|| rig.done.written.load(Ordering::SeqCst) == 1);
    volume.close(LONG);
    rig.options.write_delay = Duration::from_secs(3600);
    let volume = rig.open();
    rig.put(&volume, block(2, 0), 1_000);
    assert!(volume.status().numbers.queue_bytes > 0);
    // A flush and a stop do not wait.
    volume.flush();
    assert_eq!(volume.status().numbers.queue_bytes, 0);
    rig.put(&volume, block(3, 0), 1_000);
    volume.close(LONG);
    drop(volume);
    let volume = rig.open();
    rig.wait_loaded(&volume);
    rig.has(&volume, block(3, 0), 1_000);
}

#[test]
fn the_smallest_birth_number_is_known() {
    let mut rig = Rig::new(SIZE);
    let volume = rig.open();
    assert_eq!(volume.oldest_born(), u64::MAX);
    let base = volume.sequence();
    rig.put_born(&volume, block(1, 0), 100_000, base + 5);
    assert_eq!(volume.oldest_born(), base + 5);
    rig.put_born(&volume, block(2, 0), 100_000, base + 3);
    volume.flush();
    assert_eq!(volume.oldest_born(), base + 3);
    // This number is much greater than all numbers of this volume, as if it came from another one.
    let far = base + (1 << 50);
    rig.put_born(&volume, block(3, 0), 100_000, far);
    volume.flush();
    rig.device = rig.device.crash(0);
    drop(volume);
    let volume = rig.open();
    rig.wait_loaded(&volume);
    assert_eq!(volume.oldest_born(), base + 3);
    assert!(volume.sequence() > far, "no number comes twice");
    for n in 10..300 {
        rig.put_born(&volume, block(n, 0), 100_000, far + 7);
        volume.flush();
    }
    assert_eq!(volume.oldest_born(), far + 7);
}
#[test]
fn inactive_records_are_dropped_unless_in_use() {
    let mut rig = Rig::new(SIZE);
    rig.clock = Clock::manual(1_000_000);
    let volume = rig.open();
    let witness: Arc<dyn Witness> = Arc::new(All);
    volume.set_witness(7, Arc::downgrade(&witness));
    volume.set_inactive(7, Duration::from_secs(100));
    for n in 1..11 {
        rig.put(&volume, block(n, 0), 1_000);
    }
    volume.flush();
    rig.clock.advance_us(99_000_000);
    rig.has(&volume, block(1, 0), 1_000);
    rig.clock.advance_us(2_000_000);
    wait_until(|| volume.status().numbers.records == 2);
    assert!(volume.find(&block(1, 0)).is_some() && volume.find(&block(10, 0)).is_some());
    // The dropped record does not reappear after a restart.
    volume.flush();
    rig.device = rig.device.kill();
    drop(volume);
    let volume = rig.open();
    rig.wait_loaded(&volume);
    assert_eq!(volume.status().numbers.records, 2);
}
#[test]
fn a_record_deleted_after_damage_stays_deleted() {
    let mut rig = Rig::new(SIZE);
    let volume = rig.open();
    rig.put(&volume, block(1, 0), 1_000);
    volume.flush();
    let first = format::Geometry::of(SIZE, 0)
        .expect("it does")
        .segment_place(0)
        + 4096;
    // Damages the record's data and not its header: a start reads only headers.
    rig.device.flip(first + 600, 1);
    assert_eq!(rig.read(&volume, block(1, 0)), Err(Missing::Damaged));
    assert!(!volume.forget(&block(1, 0)));
    assert!(!volume.forget(&block(2, 0)));
    volume.flush();
    rig.device = rig.device.kill();
    drop(volume);
    let volume = rig.open();
    rig.wait_loaded(&volume);
    assert_eq!(volume.find(&block(1, 0)), None);
}
#[test]
fn a_record_that_does_not_fit_at_reclaim_is_gone_for_good() {
    let rig = Rig::new(SIZE);
    let volume = rig.open();
    let read = block(1_000, 0);
    rig.put(&volume, read, 300_000);
    volume.flush();
    rig.has(&volume, read, 300_000);
    // The new records are larger than all old ones. When the record that was read is due to be copied, the open segment is therefore too
    // full.
    for n in 0..3 {
        rig.put(&volume, block(n, 0), 1_000);
    }
    let mut n = 10;
    while volume.find(&read).is_some() && n < 200 {
        rig.put(&volume, block(n, 0), 480_000);
        volume.flush();
        n += 1;
    }
    assert_eq!(volume.find(&read), None);
    assert_eq!(
        volume.status().numbers.rewritten_bytes,
        0,
        "it was not written"
    );
    assert!(!volume.forget(&read));
    for n in 500..503 {
        rig.put(&volume, block(n, 0), 150_000);
        volume.flush();
    }
    volume.close(LONG);
    let volume = rig.open();
    rig.wait_loaded(&volume);
    assert_eq!(volume.find(&read), None, "forgotten, and back");
}
#[test]
fn blocks_of_1_mib_fit_into_the_smallest_suitable_segments() {
    let mut rig = Rig::new(40 << 20);
    for segment in [0, 5 << 20] {
        rig.options.segment = segment;
        rig.options.size = if segment == 0 { 40 << 20 } else { 64 << 20 };
        let volume = rig.open();
        let read = block(1_000, 0);
        rig.put(&volume, read, 1 << 20);
        volume.flush();
        for n in 0..60 {
            if n % 20 == 0 {
                rig.has(&volume, read, 1 << 20);
            }
            rig.put(&volume, block(n, 0), 1 << 20);
            volume.flush();
        }
        rig.has(&volume, read, 1 << 20);
        assert!(volume.status().numbers.rewritten_bytes > 0);
        volume.close(LONG);
    }
}
