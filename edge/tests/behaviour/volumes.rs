//! Tests of responses that are served from a volume: complete bodies, ranges, variants, and many
//! concurrent clients.

use std::thread;

use sluice_lab::client::Reply;
use sluice_lab::noise::Dice;
use sluice_lab::origin::{Framing, Origin, Resource, Seen};

use crate::disks::{
    BLOCK, Disks, ENDS, End, File, MIB, again, ask, fill, get, is_hit, number_of, records, settled,
    shelf, start, store_x, sum, without_origin, written,
};
use crate::harness::{
    Edge, Setup, assert_has_parameter, assert_hit, cache_status, eventually, fresh, origin,
    serving, ttl,
};

const FILE: u64 = 2_500_000;

// The objects were evicted from memory, and are served from the volume.
#[test]
fn objects_evicted_from_memory_are_served_from_the_volume() {
    for mode in ["whole", "slice", "auto"] {
        let origin = shelf();
        let disks = Disks::new(1).sized(64 * MIB);
        let setup = disks.setup(&origin).cache("memory = \"8MiB\"");
        let edge = start(&setup.cache(&format!("fill = \"{mode}\"")));
        let large = File::row(0, 40, 400_000);
        let small = File::row(1000, 300, 20_000);
        let all = [large, small].concat();
        fill(&edge, &all);
        assert_eq!(sum(&edge, "shed"), 0, "{mode}");
        without_origin(&origin, mode, || {
            all.iter().for_each(|file| file.assert_stored(&edge));
        });
        // The files have 22 MB, and memory has 8 MiB, so most bytes must come from the volume.
        let read = number_of(&edge, 1, "read_bytes");
        assert!(read >= 12_000_000, "{mode}: {read} bytes were read");
        assert!(edge.cache_state("volume_hits") >= 40, "{mode}");
        assert!(edge.cache_state("bytes") <= edge.cache_state("limit"));
    }
}

// Bodies are as long as a page or a block, or one byte shorter or longer. After each kind of
// restart they must be complete.
#[test]
fn bodies_of_every_length_are_restored() {
    let lengths = [
        0, 1, 63, 64, 4095, 4096, 4097, 65_535, 65_536, 65_537, 131_072, 200_000, 262_143, 262_144,
        262_145, 524_288, 524_289, 1_048_576, 1_500_001,
    ];
    for (round, how) in ENDS.into_iter().enumerate() {
        let origin = shelf();
        let disks = Disks::new(1);
        let setup = disks.setup(&origin);
        let files: Vec<File> = (0..).zip(lengths).map(|(n, l)| File::new(n, l)).collect();
        let edge = start(&setup);
        fill(&edge, &files);
        let expected = lengths.into_iter().map(records).sum();
        written(&edge, expected);
        let edge = again(edge, how, &setup);
        without_origin(&origin, "stored", || {
            files.iter().for_each(|file| file.assert_stored(&edge));
            // The first requests have read the files into memory, so these requests are served from
            // memory.
            files.iter().for_each(|file| file.assert_stored(&edge));
        });
        assert_eq!(number_of(&edge, 1, "damaged"), 0, "{round}");
    }
}

/// Stores `/x` on a volume. Then, for each function, restarts the program, so that nothing is in
/// memory, and sends the function's request.
fn each_after_a_restart(length: u64, asks: &[&dyn Fn(&Edge) -> Reply]) {
    let origin = origin();
    let disks = Disks::new(1);
    let setup = disks.setup(&origin);
    let mut edge = start(&setup);
    store_x(&edge, &origin, length);
    for (n, one) in asks.iter().enumerate() {
        edge = again(edge, ENDS[n % 2], &setup);
        let what = format!("{length} {n}");
        let reply = without_origin(&origin, &what, || one(&edge));
        if reply.status < 300 {
            assert_hit(&reply);
        }
        // The first request has read the object into memory, so this one is served from memory.
        without_origin(&origin, &what, || one(&edge));
    }
}

fn range(edge: &Edge, first: u64, last: u64, length: u64) -> Reply {
    let bytes = format!("bytes={first}-{last}");
    let reply = ask(edge, "GET", "/x", &[("Range", &bytes)]);
    let right = reply.verify_range(first, last, length);
    right.unwrap_or_else(|wrong| panic!("{wrong} ({})", cache_status(&reply)));
    reply
}

// The ranges lie within a page, span pages and blocks, or have only the last byte. One request has
// several ranges.
#[test]
fn ranges_are_read_from_the_volume() {
    for length in [30_000, FILE] {
        let pick = move |a: u64, b: u64| (length * a / 1000, length * b / 1000);
        let ((a, b), (c, d)) = (pick(100, 101), pick(405, 700));
        let last = length - 1;
        let several = move |edge: &Edge| {
            let bytes = format!("bytes={a}-{b},{c}-{d},-1");
            let reply = ask(edge, "GET", "/x", &[("Range", &bytes)]);
            let right = reply.verify_parts(&[(a, b), (c, d), (last, last)], length);
            right.expect("three parts");
            reply
        };
        let suffix = move |edge: &Edge| {
            let reply = ask(edge, "GET", "/x", &[("Range", "bytes=-100")]);
            let right = reply.verify_range(length - 100, last, length);
            right.expect("the end");
            reply
        };
        each_after_a_restart(
            length,
            &[
                &|edge| range(edge, a, b, length),
                &|edge| range(edge, c, d, length),
                &|edge| range(edge, last, last, length),
                &|edge| range(edge, 0, 0, length),
                &|edge| range(edge, 0, last, length),
                &several,
                &suffix,
            ],
        );
    }
}

// Conditional requests, HEAD and ranges beyond the end need only the head from the volume.
#[test]
fn heads_and_conditions_are_answered_from_the_volume() {
    for length in [30_000, FILE] {
        let tag = format!("\"v0-{length}\"");
        let with = |edge: &Edge, method: &str, field: (&str, &str), status: u16| {
            let reply = ask(edge, method, "/x", &[field]);
            assert_eq!(reply.status, status, "{field:?}: {}", cache_status(&reply));
            assert!(reply.header("etag").is_some());
            reply
        };
        let none = ("X-Nothing", "1");
        let dated = "Thu, 01 Jan 2026 00:00:00 GMT";
        each_after_a_restart(
            length,
            &[
                &|edge| {
                    let head = with(edge, "HEAD", none, 200);
                    let said = head.header("content-length");
                    assert_eq!(said, Some(&*length.to_string()));
                    assert!(head.body.is_empty());
                    head
                },
                &|edge| with(edge, "GET", ("If-None-Match", &tag), 304),
                &|edge| with(edge, "GET", ("If-Modified-Since", dated), 304),
                &|edge| with(edge, "GET", ("If-None-Match", "\"other\""), 200),
                &|edge| with(edge, "GET", ("If-Match", "\"other\""), 412),
                &|edge| {
                    let reply = ask(edge, "GET", "/x", &[("Range", "bytes=9000000-")]);
                    assert_eq!(reply.status, 416);
                    reply
                },
            ],
        );
    }
}

#[test]
fn headers_and_age_are_restored() {
    let aged = fresh(5000)
        .header("Age", "100")
        .header("Content-Type", "image/png")
        .header("X-Twice", "one")
        .header("X-Twice", "two")
        .header("Link", "</a>; rel=preload");
    let origin = serving("/x", aged);
    let mut edge = Disks::new(1).start(&origin);
    get(&edge, "/x");
    written(&edge, 1);
    let before = get(&edge, "/x");
    assert_hit(&before);
    for how in ENDS {
        edge.restart(how);
        let after = without_origin(&origin, "stored", || get(&edge, "/x"));
        assert_hit(&after);
        after.verify_whole(5000).expect("the body");
        let steady = |reply: &Reply| {
            let passing = |name: &str| {
                let name = name.to_ascii_lowercase();
                ["date", "age", "cache-status"].contains(&&*name)
            };
            let mut fields = reply.headers.clone();
            fields.retain(|(name, _)| !passing(name));
            fields
        };
        assert_eq!(steady(&before), steady(&after));
        let age: i64 = after.header("age").expect("Age").parse().expect("seconds");
        assert!((100..200).contains(&age), "{age}");
        assert!((3400..=3500).contains(&ttl(&after)), "{}", ttl(&after));
    }
}

#[test]
fn error_responses_are_restored() {
    let origin = origin();
    let statuses = [404, 410, 301, 308, 204];
    for status in statuses {
        let resource = Resource::status(status)
            .cache_control("max-age=3600")
            .header("Location", "/elsewhere");
        origin.serve(&format!("/{status}"), resource);
    }
    let mut edge = Disks::new(1).start(&origin);
    let first = statuses.map(|status| get(&edge, &format!("/{status}")).body);
    written(&edge, statuses.len() as u64);
    for how in ENDS {
        edge.restart(how);
        without_origin(&origin, "stored", || {
            for (status, body) in statuses.iter().zip(&first) {
                let reply = get(&edge, &format!("/{status}"));
                assert_eq!((reply.status, &reply.body), (*status, body));
                assert_hit(&reply);
                assert_eq!(reply.header("location"), Some("/elsewhere"));
            }
        });
    }
}

// Several variants of a URL are on the volume. A request for a variant that is not stored causes a
// fetch.
#[test]
fn variants_are_kept_apart_on_the_volume() {
    let origin = origin();
    for (path, length) in [("/small", 500), ("/large", 300_000)] {
        let flavoured = move |seen: &Seen| {
            let flavour = seen.header("x-flavour").unwrap_or("plain");
            let body: String = flavour.chars().cycle().take(length).collect();
            let tag = format!("\"{flavour}\"");
            Resource::bytes(body)
                .tag(sluice_lab::origin::Tag::Fixed(tag))
                .cache_control("max-age=3600")
                .vary("X-Flavour")
        };
        origin.serve(path, Resource::dynamic(flavoured));
    }
    let check = |edge: &Edge, path: &str, flavour: &str| {
        let reply = ask(edge, "GET", path, &[("X-Flavour", flavour)]);
        let body = reply.text();
        assert!(body.starts_with(flavour), "{path} {flavour}");
        assert!(body.len() >= 500 && body.replace(flavour, "").len() < flavour.len());
        reply
    };
    let mut edge = Disks::new(1).start(&origin);
    let flavours = ["cherry", "lemon", "mint"];
    let both = ["/small", "/large"];
    for path in both {
        for flavour in flavours {
            check(&edge, path, flavour);
        }
    }
    written(&edge, 3 + 3 * records(300_000));
    for (how, new) in ENDS.into_iter().zip(["anise", "orange"]) {
        edge.restart(how);
        without_origin(&origin, "stored", || {
            for path in both {
                for flavour in flavours {
                    assert_hit(&check(&edge, path, flavour));
                }
            }
        });
        for path in both {
            assert!(!is_hit(&check(&edge, path, new)), "{path} {new}");
            assert_hit(&check(&edge, path, new));
            for flavour in flavours {
                assert_hit(&check(&edge, path, flavour));
            }
        }
        settled(&edge);
    }
}

// Each content coding is a variant on the volume. The edge selects the variant without a request to
// the origin.
#[test]
fn codings_are_variants_on_the_volume() {
    let origin = serving("/x", fresh(500).encoded("gzip", "zipped"));
    let mut edge = Disks::new(1).start(&origin);
    let codings = |edge: &Edge| {
        let zipped = ask(edge, "GET", "/x", &[("Accept-Encoding", "gzip, br")]);
        assert_eq!(zipped.text(), "zipped");
        assert_eq!(zipped.header("content-encoding"), Some("gzip"));
        let plain = get(edge, "/x");
        plain.verify_whole(500).expect("the body");
        [zipped, plain]
    };
    codings(&edge);
    written(&edge, 2);
    for how in ENDS {
        edge.restart(how);
        let replies = without_origin(&origin, "stored", || codings(&edge));
        replies.iter().for_each(assert_hit);
    }
}

// The key of a record contains host and query, as in memory.
#[test]
fn keys_are_kept_apart_on_the_volume() {
    let origin = origin();
    let told = |seen: &Seen| {
        let text = format!("{} {}", seen.header("host").unwrap_or(""), seen.target);
        Resource::bytes(text).cache_control("max-age=3600")
    };
    origin.serve_rest(Resource::dynamic(told));
    let mut edge = Disks::new(1).start(&origin);
    let hosts = ["a.example", "b.example", "a.example:81"];
    let targets = ["/x", "/x?", "/x?a=1", "/x?a=2", "/x/?a=1", "/X"];
    let check = |edge: &Edge| {
        for host in hosts {
            for target in targets {
                let reply = edge.get(target, &[("Host", host)]);
                assert_eq!(reply.text(), format!("{host} {target}"));
            }
        }
    };
    check(&edge);
    written(&edge, 18);
    for how in ENDS {
        edge.restart(how);
        without_origin(&origin, "stored", || check(&edge));
    }
}

/// Returns the number of bytes of `/x` that the origin has sent.
fn sent(origin: &Origin) -> u64 {
    origin.read_record(|record| record.sent_for("/x"))
}

// A fetch was interrupted, and its complete blocks are on the volume. A later request fetches only
// the other blocks.
#[test]
fn only_what_is_not_on_the_volume_is_fetched() {
    for mode in ["slice", "auto"] {
        let origin = serving("/x", fresh(FILE));
        let mut edge = Disks::new(1).start_with(&origin, &format!("fill = \"{mode}\""));
        range(&edge, 300_000, 300_009, FILE);
        range(&edge, 800_000, 800_009, FILE);
        written(&edge, 3);
        assert_eq!(sent(&origin), 2 * BLOCK, "{mode}");
        edge.restart(End::Killed);
        without_origin(&origin, mode, || {
            assert_hit(&range(&edge, BLOCK, 2 * BLOCK - 1, FILE));
            assert_hit(&range(&edge, 800_100, 810_000, FILE));
        });
        // Blocks 1 and 3 are stored. This range spans the blocks 0 to 4.
        range(&edge, 100, 4 * BLOCK + 10, FILE);
        settled(&edge);
        assert_eq!(sent(&origin), 5 * BLOCK, "{mode}");
        written(&edge, 6);
        edge.restart(End::Stopped);
        get(&edge, "/x").verify_whole(FILE).expect("all of it");
        settled(&edge);
        assert_eq!(sent(&origin), FILE, "{mode}");
        written(&edge, records(FILE));
        edge.restart(End::Killed);
        without_origin(&origin, mode, || {
            let whole = get(&edge, "/x");
            whole.verify_whole(FILE).expect("all of it");
            assert_hit(&whole);
        });
    }
}

// The length of a chunked body is known only at its end.
#[test]
fn chunked_bodies_are_restored() {
    let origin = origin();
    for (path, length) in [("/small", 5000), ("/large", 700_000)] {
        origin.serve(path, fresh(length).framing(Framing::Chunked(3000)));
    }
    let mut edge = Disks::new(1).start(&origin);
    let check = |edge: &Edge| {
        let small = get(edge, "/small");
        small.verify_whole(5000).expect("the body");
        let large = get(edge, "/large");
        large.verify_whole(700_000).expect("the body");
        [small, large]
    };
    check(&edge);
    written(&edge, 1 + records(700_000));
    for how in ENDS {
        edge.restart(how);
        let replies = without_origin(&origin, "stored", || check(&edge));
        replies.iter().for_each(assert_hit);
        assert_eq!(replies[1].header("content-length"), Some("700000"));
    }
}

// Many clients request an object that is only on the volume. Each receives every byte, without a
// request to the origin.
#[test]
fn a_crowd_is_served_from_the_volume() {
    let origin = shelf();
    let mut edge = Disks::new(1).start(&origin);
    let files = [File::new(1, 30_000), File::new(2, 2_000_000)];
    fill(&edge, &files);
    written(&edge, 1 + records(2_000_000));
    edge.restart(End::Killed);
    without_origin(&origin, "stored", || {
        thread::scope(|scope| {
            for n in 0..24 {
                let (edge, files) = (&edge, &files);
                scope.spawn(move || match n % 4 {
                    0 => files[1].assert_stored(edge),
                    1 => drop(files[1].get_range(edge, 70_000 * n, 70_000 * n + 80_000)),
                    _ => files[0].assert_stored(edge),
                });
            }
        });
    });
    assert_eq!(edge.counter("responses_5xx"), 0);
}

// The file is larger than memory, so the volume stores it in blocks.
#[test]
fn a_file_larger_than_memory_is_kept_in_blocks() {
    const LENGTH: u64 = 12 * MIB + 12_345;
    let origin = shelf();
    let disks = Disks::new(1).sized(64 * MIB);
    let setup = disks
        .setup(&origin)
        .cache("memory = \"8MiB\"")
        .cache("fill = \"slice\"");
    let edge = start(&setup);
    let file = File::new(7, LENGTH);
    for first in (0..LENGTH).step_by(MIB as usize) {
        file.get_range(&edge, first, (first + MIB).min(LENGTH) - 1);
        settled(&edge);
    }
    written(&edge, records(LENGTH));
    without_origin(&origin, "stored", || {
        for _ in 0..2 {
            assert_hit(&file.get(&edge));
        }
        let mut dice = Dice::new(1, 1);
        for _ in 0..50 {
            let first = dice.below(LENGTH - 5000);
            assert_hit(&file.get_range(&edge, first, first + dice.below(5000)));
        }
    });
    assert!(edge.cache_state("bytes") <= edge.cache_state("limit"));
}

// Some clients disconnect while their object is being read from the volume. The other clients must
// receive every byte.
#[test]
fn disconnecting_readers_do_not_affect_others() {
    let origin = shelf();
    let mut edge = Disks::new(1).start(&origin);
    let file = File::new(3, 3_000_000);
    fill(&edge, &[file]);
    written(&edge, records(3_000_000));
    edge.restart(End::Killed);
    without_origin(&origin, "stored", || {
        for _ in 0..10 {
            let mut client = edge.slow_reader();
            let fields = [("Host", crate::disks::HOST)];
            client
                .send("GET", &file.path(), &fields, b"")
                .expect("sent");
            client.read_head().expect("a head");
        }
        file.assert_stored(&edge);
        eventually("all are gone", || edge.counter("requests_now") == 0);
        file.assert_stored(&edge);
    });
}

// The status of an edge without volumes lists none. A cache without volumes works next to one that
// has a volume.
#[test]
fn a_cache_without_volumes_works_as_before() {
    let origin = shelf();
    let disks = Disks::new(1);
    let setup = Setup::cached(&origin).tables(&disks.tables());
    let edge = start(&setup);
    File::new(1, 5000).get(&edge);
    File::new(1, 5000).assert_stored(&edge);
    assert_eq!(number_of(&edge, 1, "records"), 0);
    let edge = again(edge, End::Stopped, &setup);
    let reply = File::new(1, 5000).get(&edge);
    assert_has_parameter(&reply, "fwd=uri-miss");
}
