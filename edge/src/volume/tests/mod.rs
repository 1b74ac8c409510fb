//! A volume on a simulated device: what is put is found, also after it was opened again.

mod rig;

use std::time::Duration;

use super::*;
use rig::{Rig, block, content, head};

#[test]
fn what_is_put_is_found_and_read() {
    let rig = Rig::new(16 << 20);
    let volume = rig.open();
    rig.put(&volume, head(1, 1), 500);
    rig.put(&volume, block(1, 0), 300_000);
    volume.flush();
    assert_eq!(rig.read(&volume, head(1, 1)), Ok(content(head(1, 1), 500)));
    assert_eq!(
        rig.read(&volume, block(1, 0)),
        Ok(content(block(1, 0), 300_000))
    );
    assert_eq!(volume.find(&head(1, 2)), None);
    assert_eq!(volume.heads(7, 1).len(), 1);
    assert_eq!(volume.status().records, 2);
}

#[test]
fn what_was_put_is_found_when_it_is_opened_again() {
    for ending in ["close", "kill"] {
        let mut rig = Rig::new(16 << 20);
        let volume = rig.open();
        // More than a segment.
        let ids: Vec<Id> = (0..40).map(|n| block(n, 0)).collect();
        for id in &ids {
            rig.put(&volume, *id, 100_000);
            volume.flush();
        }
        let sequence = volume.sequence();
        match ending {
            "close" => volume.close(Duration::from_secs(60)),
            _ => rig.device = rig.device.kill(),
        }
        drop(volume);
        let volume = rig.open();
        rig.wait_loaded(&volume);
        for id in &ids {
            assert_eq!(
                rig.read(&volume, *id),
                Ok(content(*id, 100_000)),
                "{ending}"
            );
        }
        assert!(volume.sequence() > sequence);
        // It goes on.
        rig.put(&volume, block(100, 0), 100_000);
        volume.flush();
        assert!(volume.find(&block(100, 0)).is_some());
    }
}
