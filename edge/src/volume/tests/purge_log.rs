//! Tests of the purge log of a volume.

use super::rig::Rig;
use super::{LogError, SIZE, Volume};

#[test]
fn a_purge_survives_a_power_failure() {
    let mut rig = Rig::new(SIZE);
    let volume = rig.open();
    volume.log_purge(7, 10, b"one").expect("logged");
    volume.log_purge(8, 11, b"other").expect("logged");
    volume.log_purge(7, 12, &[9; 5000]).expect("logged");
    let too_long = volume.log_purge(7, 13, &[9; 10_000]);
    assert!(matches!(too_long, Err(LogError::Full)));
    volume.mark_purged(7, 20).expect("logged");
    volume.drop_purges(7, 10);
    let check = |volume: &Volume, dropped: bool| {
        let numbers: Vec<u64> = volume.purges(7).iter().map(|rule| rule.number).collect();
        let expected: &[u64] = if dropped { &[12] } else { &[10, 12] };
        assert_eq!(numbers, expected);
        assert_eq!(&*volume.purges(7).last().expect("there").text, &[9; 5000]);
        assert_eq!(&*volume.purges(8)[0].text, b"other");
        assert_eq!(
            (volume.purged_upto(7), volume.purged_upto(8)),
            (Some(20), Some(11))
        );
        assert_eq!(volume.purged_upto(9), None);
    };
    check(&volume, true);
    rig.device = rig.device.crash(1);
    drop(volume);
    let volume = rig.open();
    check(&volume, false);
    volume.wipe("a test");
    assert!(volume.is_up());
    assert!(volume.purges(7).is_empty());
    assert_eq!(
        (volume.purged_upto(7), volume.purged_upto(8)),
        (Some(20), Some(11))
    );
}

#[test]
fn a_full_purge_log_is_compacted_or_reports_that_it_is_full() {
    let mut rig = Rig::new(SIZE);
    let volume = rig.open();
    let text = |number: u64| number.to_le_bytes().repeat(125);
    // Each half of the log has 128 KiB, so the log becomes full several times.
    for number in 1..1_000 {
        volume.log_purge(7, number, &text(number)).expect("logged");
        volume.drop_purges(7, number.saturating_sub(50));
    }
    let mut full = None;
    for number in 1_000..1_200 {
        if let Err(error) = volume.log_purge(7, number, &text(number)) {
            full = Some((number, error));
            break;
        }
    }
    let (first_refused, error) = full.expect("it is full at some time");
    assert!(matches!(error, LogError::Full));
    assert!(volume.is_up(), "that is no failure");
    rig.device = rig.device.crash(3);
    drop(volume);
    let volume = rig.open();
    assert_eq!(volume.purged_upto(7), Some(first_refused - 1));
    let numbers = volume.purges(7);
    assert!(
        numbers
            .windows(2)
            .all(|two| two[0].number + 1 == two[1].number)
    );
    assert!(numbers.len() > 50);
}

#[test]
fn a_repeated_purge_uses_the_space_of_one() {
    let rig = Rig::new(SIZE);
    let volume = rig.open();
    for number in 1..1_000 {
        let text = if number % 2 == 0 {
            [7; 1000]
        } else {
            [8; 1000]
        };
        volume.log_purge(7, number, &text).expect("logged");
    }
    drop(volume);
    let volume = rig.open();
    let rules = volume.purges(7);
    assert!((2..200).contains(&rules.len()), "{}", rules.len());
    assert_eq!(rules.last().map(|rule| rule.number), Some(999));
}
