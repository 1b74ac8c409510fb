//! Tests with flipped bits on the device: the affected records are missing, and no wrong bytes are read.

use super::super::*;
use super::rig::{Rig, block, content, head};
use super::{LONG, SIZE};
use crate::sys::disk::simulated::Simulated;
use crate::sys::random::Random;
use crate::volume::format::Geometry;

fn id(number: u128) -> Id {
    match number % 2 {
        0 => block(number, 1),
        _ => head(number, 1),
    }
}

fn length(number: u128) -> usize {
    match number % 2 {
        0 => 100_000,
        _ => 3_000,
    }
}

/// Returns the content of a device with several segments, after the volume was closed or the program was killed.
fn image(clean: bool) -> Vec<u8> {
    let rig = Rig::new(SIZE);
    let volume = rig.open();
    for number in 0..80 {
        rig.put(&volume, id(number), length(number));
        volume.flush();
    }
    for number in 1..=50 {
        volume.log_purge(7, number, b"a rule").expect("logged");
    }
    if clean {
        volume.close(LONG);
    }
    rig.device.kill().content()
}

#[test]
fn flipped_bits_are_never_served() {
    let geometry = Geometry::of(SIZE, 0).expect("a size that does");
    let random = Random::seeded(77);
    let images = [image(true), image(false)];
    for round in 0..16 * sluice_lab::soak::factor() as usize {
        let device = Simulated::of(images[round % 2].clone());
        // Each round flips bits in one of four parts: superblocks, purge log, and two parts of the segments.
        let (from, to) = match round % 4 {
            0 => (0, 8192),
            1 => (8192, 8192 + 4096 + 2_000),
            _ => (
                geometry.segment_place(0),
                geometry.segment_place(5).min(geometry.size()),
            ),
        };
        for _ in 0..[1, 200][round / 2 % 2] {
            device.flip(from + random.below(to - from), random.below(8) as u32);
        }
        let rig = Rig::on(device, SIZE);
        let Ok(volume) = rig.try_open() else {
            // Damaged superblocks may make the device unrecognizable, so that opening the volume is refused.
            assert!(from == 0);
            continue;
        };
        rig.wait_loaded(&volume);
        assert!(volume.is_up());
        check(&rig, &volume);
        // New records can still be written, also in place of damaged ones.
        for number in 1_000..1_100 {
            rig.put(&volume, id(number), length(number));
            volume.flush();
        }
        rig.has(&volume, id(1_099), length(1_099));
        check(&rig, &volume);
    }
}

fn check(rig: &Rig, volume: &Volume) {
    let mut found = 0;
    for number in 0..80 {
        if let Ok(read) = rig.read(volume, id(number)) {
            assert!(read == content(id(number), length(number)), "other bytes");
            found += 1;
        }
    }
    // If the last entry of the purge log is damaged, it is treated as one that was never acknowledged.
    let purges = volume.purges(7).len();
    assert!(
        purges >= 49 || found == 0,
        "{purges} purges, {found} records"
    );
}
