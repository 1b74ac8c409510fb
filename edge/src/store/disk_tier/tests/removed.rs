//! Tests of objects that are purged or replaced: volumes do not return them.

use std::cell::RefCell;
use std::sync::atomic::AtomicU64;

use super::*;
use crate::store::Names;

#[test]
fn purged_objects_stay_purged() {
    let folder = tempfile::tempdir().expect("a folder");
    let number = {
        let volumes = [volume_in(folder.path(), "a")];
        let store = store_on(&volumes, &Options::default());
        bring(&store, 1, versioned(5000, 0), 0..5000);
        bring(&store, 2, versioned(5000, 0), 0..5000);
        flush(&volumes);
        let rule = Rule::Resource(1);
        let number = store.purge(&rule, false, 0).expect("room");
        let lasting = store.durable_purge(&rule, None, number).expect("volumes");
        lasting.log().expect("a volume that is up");
        forget_memory(&store, 1);
        assert!(recalled(&store, 1).is_none());
        number
    };
    let volumes = [volume_in(folder.path(), "a")];
    let store = store_on(&volumes, &Options::default());
    volumes.iter().for_each(|volume| wait_until_loaded(volume));
    assert!(store.purged_upto() >= number);
    assert!(recalled(&store, 1).is_none());
    assert!(recalled(&store, 2).is_some());
    // Fetches after the restart have numbers greater than those of the restored purges.
    let object = bring(&store, 1, versioned(5000, 0), 0..5000);
    assert!(object.born_seq > number);
    flush(&volumes);
    forget_memory(&store, 1);
    assert!(recalled(&store, 1).is_some());
}

fn wait_until_loaded(volume: &Volume) {
    while volume.status().state != volume::State::Up {
        std::thread::yield_now();
    }
}

#[test]
fn a_superseded_object_is_not_recalled() {
    let (_folder, volumes, store) = with_one_volume();
    let old = bring(&store, 1, versioned(5000, 3), 0..5000);
    flush(&volumes);
    assert!(store.supersede(table_key(1), &old, None));
    assert!(matches!(old.phase(), Phase::Retired));
    forget_memory(&store, 1);
    assert!(recalled(&store, 1).is_none());
}

#[test]
fn a_volume_that_missed_a_purge_is_wiped() {
    let folder = tempfile::tempdir().expect("a folder");
    let both = Options {
        placement: Placement {
            kind: PlacementKind::Mirror,
            weights: Vec::new(),
        },
        ..Options::default()
    };
    {
        let volumes = ["a", "b"].map(|name| volume_in(folder.path(), name));
        let store = store_on(&volumes, &both);
        bring(&store, 1, versioned(5000, 0), 0..5000);
        flush(&volumes);
    }
    {
        let volumes = [volume_in(folder.path(), "a")];
        wait_until_loaded(&volumes[0]);
        let store = store_on(&volumes, &Options::default());
        let number = store.purge(&Rule::All, false, 0).expect("room");
        let lasting = store
            .durable_purge(&Rule::All, None, number)
            .expect("volumes");
        lasting.log().expect("a volume that is up");
    }
    let volumes = ["a", "b"].map(|name| volume_in(folder.path(), name));
    volumes.iter().for_each(|volume| wait_until_loaded(volume));
    let store = store_on(&volumes, &both);
    assert!(recalled(&store, 1).is_none());
    assert_eq!(volumes[1].status().numbers.records, 0);
}

#[test]
fn blocks_purged_by_a_tag_are_not_found_under_a_head_with_another_tag() {
    let (_folder, volumes, store) = with_one_volume();
    let block = 128 << 10;
    let tagged = |tag| Head {
        tags: Box::from([tag]),
        ..versioned(4 * block, 9)
    };
    bring(&store, 1, tagged(41), 0..2 * block);
    flush(&volumes);
    store.purge(&Rule::Tag(41), false, 0).expect("room");
    assert!(store.enter(1, |locked| locked.find(0)).is_none());
    let same = bring(&store, 1, tagged(42), 3 * block..4 * block);
    assert!(!same.has(0..1));
}

#[test]
fn a_softly_purged_object_is_recalled_stale() {
    let (_folder, volumes, store) = with_one_volume();
    let fresh = Head {
        fresh_until_ms: 9000,
        ..versioned(5000, 9)
    };
    bring(&store, 1, fresh, 0..5000);
    flush(&volumes);
    forget_memory(&store, 1);
    store.purge(&Rule::All, true, 4000).expect("room");
    let spare = placed(&store, 1);
    let recall = store
        .recall(&spare, table_key(1), 0)
        .expect("the object is on a volume");
    block_on(recall.run());
    // The object is stale without any lookup: the purge rule could be dropped before the first lookup.
    let shard = store.shard(1).lock();
    let object = &shard.entries[&1].variants[0].object;
    assert!(!Arc::ptr_eq(object, &spare));
    assert_eq!(object.head().map(|head| head.fresh_until_ms), Some(4000));
}

thread_local! {
    /// Runs once, while an object's disk copy is created: after heads were deleted from the volumes, before the object gets its head.
    static DURING_DISK_COPY: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

struct HookedNames;

impl Names for HookedNames {
    fn resource(&self, primary: u128, _: &[u8]) -> u128 {
        if let Some(hook) = DURING_DISK_COPY.take() {
            hook();
        }
        primary
    }

    fn texts(&self, key: &[u8], each: &mut dyn FnMut(&[u8])) {
        each(key);
    }
}

/// Creates a store with one volume that runs `DURING_DISK_COPY`.
fn hooked() -> (tempfile::TempDir, [Arc<Volume>; 1], Arc<Store>) {
    let folder = tempfile::tempdir().expect("a folder");
    let volumes = [volume_in(folder.path(), "a")];
    let store = Store::named(&SIZES, &HookedNames, Arc::new(AtomicU64::new(1)));
    add_volumes(&store, &volumes, &Options::default());
    // Keys are compared with purge rules only if there are any.
    store.purge(&Rule::Tag(9), false, 0).expect("room");
    (folder, volumes, store)
}

#[test]
fn an_object_that_another_variants_object_replaced_is_not_recalled() {
    let (_folder, volumes, store) = hooked();
    let mut old = launch(&store, 1, varied(5), 0..5000);
    assert!(block_on(old.write(&content(0, 4000), 0)).is_ok());
    let mut new = begin(&store, table_key(1), 0..5000);
    let written = volumes.clone();
    DURING_DISK_COPY.set(Some(Box::new(move || {
        assert!(block_on(old.write(&content(4000, 5000), 0)).is_ok());
        old.land();
        flush(&written);
    })));
    open(&store, &mut new, varied(5));
    assert!(DURING_DISK_COPY.take().is_none());
    drop(new);
    flush(&volumes);
    assert!(volumes[0].heads(7, 1).is_empty());
}

#[test]
fn heads_with_other_vary_names_are_deleted_before_an_object_gets_its_head() {
    let (_folder, volumes, store) = hooked();
    bring(&store, 1, varied_by("cookie", 5), 0..5000);
    flush(&volumes);
    assert_eq!(volumes[0].heads(7, 1).len(), 1);
    let mut new = begin(&store, table_key(1), 0..5000);
    let (object, volume) = (new.object().clone(), volumes[0].clone());
    DURING_DISK_COPY.set(Some(Box::new(move || {
        assert!(object.head().is_none());
        assert!(volume.heads(7, 1).is_empty());
    })));
    open(&store, &mut new, varied_by("user-agent", 6));
    assert!(DURING_DISK_COPY.take().is_none());
}
