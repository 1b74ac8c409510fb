//! Tests of volumes that go out of service, and of devices with failures, foreign content or another size.

use super::rig::{Rig, block, wait_until};
use super::*;

const EIO: i32 = 5;

#[test]
fn a_failed_device_is_out_of_service_and_returns_empty() {
    let rig = Rig::new(SIZE);
    let volume = rig.open();
    rig.put(&volume, block(1, 0), 1_000);
    volume.log_purge(7, 1, b"rule").expect("logged");
    volume.flush();
    rig.device.fail_writes(Some(EIO));
    rig.put(&volume, block(2, 0), 1_000);
    volume.flush();
    wait_until(|| !volume.is_up());
    assert!(matches!(volume.status().state, State::Out(why) if why.contains("write")));
    rig.put(&volume, block(3, 0), 1_000);
    assert_eq!(volume.find(&block(1, 0)), None);
    assert!(matches!(volume.log_purge(7, 2, b""), Err(LogError::Out)));
    assert_eq!(rig.done.not_written.load(Ordering::SeqCst), 2);
    assert_eq!(volume.status().numbers.shed, 1);
    rig.device.fail_writes(None);
    wait_until(|| volume.is_up());
    assert_eq!(volume.find(&block(1, 0)), None);
    assert!(volume.purges(7).is_empty());
    assert_eq!(volume.purged_upto(7), Some(2), "nothing here is older");
    rig.put(&volume, block(4, 0), 1_000);
    volume.flush();
    rig.has(&volume, block(4, 0), 1_000);
}

/// Records whether a volume has sent the notification that it is out of service.
#[derive(Default)]
struct Notice(std::sync::atomic::AtomicBool);

impl Witness for Notice {
    fn is_in_use(&self, _: &Id) -> bool {
        false
    }

    fn is_out(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn caches_with_records_are_notified_that_a_volume_is_out() {
    let rig = Rig::new(SIZE);
    let volume = rig.open();
    let notice = Arc::<Notice>::default();
    let witness: Weak<dyn Witness> = Arc::<Notice>::downgrade(&notice);
    volume.set_witness(7, witness);
    rig.put(&volume, block(1, 0), 1_000);
    volume.flush();
    assert!(!notice.0.load(Ordering::SeqCst));
    rig.device.fail_writes(Some(EIO));
    rig.put(&volume, block(2, 0), 1_000);
    wait_until(|| notice.0.load(Ordering::SeqCst));
}

#[test]
fn a_device_that_fails_at_the_start_is_opened_again() {
    let rig = Rig::new(SIZE);
    rig.device.fail_writes(Some(EIO));
    let volume = rig.open();
    assert!(!volume.is_up());
    rig.device.fail_writes(None);
    wait_until(|| volume.is_up());
    rig.put(&volume, block(4, 0), 1_000);
    volume.flush();
    rig.has(&volume, block(4, 0), 1_000);
}

#[test]
fn foreign_content_is_kept_unless_it_may_be_overwritten() {
    let mut foreign = vec![0; 3 << 20];
    foreign[70_000] = 1;
    let mut rig = Rig::on(Simulated::of(foreign.clone()), SIZE);
    let Err(refused) = rig.try_open() else {
        panic!("it is refused");
    };
    assert!(refused.0.contains("overwrite"), "{refused}");
    assert_eq!(rig.device.content(), foreign);
    rig.options.overwrite = true;
    let volume = rig.open();
    rig.put(&volume, block(1, 0), 1_000);
    volume.flush();
    drop(volume);
    // After the volume was created, a restart does not overwrite it again.
    let volume = rig.open();
    rig.wait_loaded(&volume);
    rig.has(&volume, block(1, 0), 1_000);
    drop(volume);
    // Sets another format version in both superblocks.
    let mut other = rig.device.content();
    (other[8], other[4096 + 8]) = (9, 9);
    rig.device = Simulated::of(other);
    rig.options.overwrite = false;
    let Err(refused) = rig.try_open() else {
        panic!("it is refused");
    };
    assert!(refused.0.contains("version 9"), "{refused}");
}

#[test]
fn a_volume_of_another_size_starts_empty() {
    let mut rig = Rig::new(SIZE);
    let volume = rig.open();
    rig.put(&volume, block(1, 0), 1_000);
    volume.flush();
    drop(volume);
    rig.options.size = 2 * SIZE;
    let volume = rig.open();
    assert_eq!(volume.find(&block(1, 0)), None);
    assert_eq!(volume.status().numbers.size, rig.device.size());
    assert!(volume.status().numbers.size > SIZE);
}

#[test]
fn a_volume_that_is_closed_while_it_is_out_or_wiped_stays_out() {
    let rig = Rig::new(SIZE);
    let volume = rig.open();
    rig.put(&volume, block(1, 0), 1_000);
    volume.flush();
    rig.device.fail_writes(Some(EIO));
    rig.put(&volume, block(2, 0), 1_000);
    volume.flush();
    volume.close(LONG);
    rig.device.fail_writes(None);
    volume.wipe("a test");
    assert_eq!(volume.status().state, State::Out("it is closed".into()));
    assert_eq!(rig.done.not_written.load(Ordering::SeqCst), 1);
}
