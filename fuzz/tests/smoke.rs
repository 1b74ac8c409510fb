//! Runs every target on mutations of its seeds. The mutations are the same each time, so the test is deterministic.

use sluice_fuzz::TARGETS;

const INPUT_BYTES_MAX: usize = 4096;

/// Pseudorandom numbers from a fixed seed (xorshift, Marsaglia 2003).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit.max(1)
    }

    fn span(&mut self, input: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(input.len() + 1);
        let most = (input.len() - start).min(32);
        start..start + self.below(most + 1)
    }
}

/// Bytes and strings that are special to parsers.
const TOKENS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b",",
    b";",
    b"=",
    b"\"",
    b"\\",
    b"-",
    b"*",
    b"/",
    b".",
    b"..",
    b"%",
    b"%2e",
    b"%00",
    b":",
    b"@",
    b"#",
    b"?",
    b"[",
    b"]",
    b"0",
    b"9",
    b"\x7f",
    b"\xff",
    b"18446744073709551615",
    b"18446744073709551616",
    b"99999999999999999999999",
];

fn mutate(numbers: &mut Numbers, input: &mut Vec<u8>, seeds: &[&[u8]]) {
    let at = numbers.below(input.len() + 1);
    let span = numbers.span(input);
    match numbers.below(6) {
        0 if !input.is_empty() => {
            let at = numbers.below(input.len());
            input[at] ^= 1 << numbers.below(8);
        }
        1 => {
            input.drain(span);
        }
        2 => {
            let copy = input[span].to_vec();
            input.splice(at..at, copy);
        }
        3 => {
            let seed = seeds[numbers.below(seeds.len())];
            let part = numbers.span(seed);
            input.splice(at..at, seed[part].iter().copied());
        }
        _ => {
            let spice = TOKENS[numbers.below(TOKENS.len())];
            input.splice(at..at, spice.iter().copied());
        }
    }
    input.truncate(INPUT_BYTES_MAX);
}

#[test]
fn every_target_accepts_mutated_seeds() {
    for target in TARGETS {
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        target.seeds.iter().for_each(|seed| (target.run)(seed));
        let mut input = Vec::new();
        for run in 0..target.runs {
            // Every eight runs begin with a seed again, so that inputs stay nearly valid.
            if run % 8 == 0 {
                input = target.seeds[numbers.below(target.seeds.len())].to_vec();
            }
            mutate(&mut numbers, &mut input, target.seeds);
            let name = target.name;
            let result = std::panic::catch_unwind(|| (target.run)(&input));
            assert!(result.is_ok(), "{name}: {}", input.escape_ascii());
        }
    }
}

#[test]
fn every_target_has_a_file_and_a_binary() {
    let manifest = include_str!("../Cargo.toml");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz_targets");
    let files = std::fs::read_dir(folder).expect("the folder of targets");
    assert_eq!(files.count(), TARGETS.len());
    for target in TARGETS {
        let path = format!("fuzz_targets/{}.rs", target.name);
        assert!(manifest.contains(&format!("path = \"{path}\"")), "{path}");
        // The binaries are built only for a soak, so a path into another crate could break unnoticed.
        let text = std::fs::read_to_string(format!("{folder}/{}.rs", target.name));
        let text = text.expect("the file of a target");
        assert!(text.contains("|data: &[u8]| sluice_fuzz::"), "{path}");
    }
}
