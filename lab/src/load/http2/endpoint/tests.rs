//! Tests of the client's side of HTTP/2 with frames that a server might send.

use super::*;
use crate::load::LoadPlan;
use crate::raw_http2::Frames;

const GOOD: &[u8] = &[0x88];

struct Rig {
    fields: Fields,
    endpoint: Endpoint,
    expected: Expected,
    ended: Vec<(usize, End)>,
}

impl Rig {
    /// A connection with two requests at places 0 and 1, on the streams 1 and 3.
    fn new() -> Rig {
        let plan = LoadPlan::new("127.0.0.1:1".parse().expect("an address"), "/");
        let fields = Fields::of(&plan);
        let mut endpoint = Endpoint::new(&fields);
        for place in 0..2 {
            let number = endpoint.request(&fields, place, Chosen::default(), b"/");
            assert_eq!(number, 2 * place as u32 + 1);
        }
        Rig {
            fields,
            endpoint,
            expected: Expected {
                status: None,
                length: None,
                verify: false,
            },
            ended: Vec::new(),
        }
    }

    fn receive(&mut self, frames: &Frames) -> Result<(), Failure> {
        let (fields, expected) = (&self.fields, &self.expected);
        let endpoint = &mut self.endpoint;
        endpoint.receive(frames.bytes(), fields, expected, &mut self.ended)
    }

    fn ended(&mut self) -> Vec<(usize, End)> {
        std::mem::take(&mut self.ended)
    }
}

fn good(length: u64) -> End {
    End::Good {
        length,
        whole: None,
    }
}

#[test]
fn responses_may_arrive_byte_by_byte_and_in_any_order() {
    let mut rig = Rig::new();
    let mut frames = Frames::new();
    frames.settings(&[(MAX_CONCURRENT_STREAMS, 2)]);
    frames
        .header_block(3, GOOD, false)
        .header_block(1, GOOD, false);
    frames
        .data(3, b"abc", false)
        .data(1, b"", true)
        .data(3, b"de", true);
    for byte in frames.bytes() {
        let received = rig.endpoint.receive(
            std::slice::from_ref(byte),
            &rig.fields,
            &rig.expected,
            &mut rig.ended,
        );
        assert_eq!(received, Ok(()));
    }
    assert_eq!(rig.ended(), [(0, good(0)), (1, good(5))]);
    assert!(rig.endpoint.can_open());
}

#[test]
fn responses_may_arrive_in_two_parts() {
    let mut frames = Frames::new();
    frames.settings(&[]).header_block(1, GOOD, false);
    frames.data(1, b"abc", true).header_block(3, GOOD, false);
    frames.data(3, b"", true);
    for middle in 0..=frames.bytes().len() {
        let mut rig = Rig::new();
        let (first, second) = frames.bytes().split_at(middle);
        for part in [first, second] {
            let (fields, expected) = (&rig.fields, &rig.expected);
            let received = rig.endpoint.receive(part, fields, expected, &mut rig.ended);
            assert_eq!(received, Ok(()));
        }
        assert_eq!(rig.ended(), [(0, good(3)), (1, good(0))], "{middle}");
        assert!(rig.endpoint.partial.is_empty());
    }
}

#[test]
fn the_limit_of_streams_is_kept() {
    let mut rig = Rig::new();
    assert!(rig.endpoint.can_open());
    rig.receive(Frames::new().settings(&[(MAX_CONCURRENT_STREAMS, 2)]))
        .expect("valid");
    assert!(!rig.endpoint.can_open());
    rig.receive(Frames::new().header_block(1, GOOD, true))
        .expect("valid");
    assert!(rig.endpoint.can_open());
}

#[test]
fn interim_heads_and_trailers_are_skipped_and_bad_statuses_are_found() {
    let mut rig = Rig::new();
    let mut frames = Frames::new();
    // A literal status 103, and the indexed status 404.
    frames.header_block(1, b"\x08\x03103", false);
    frames.header_block(1, GOOD, false).data(1, b"abc", false);
    frames.header_block(1, b"\x00\x01a\x01b", true);
    frames
        .header_block(3, b"\x8d", false)
        .data(3, b"lost", true);
    rig.receive(&frames).expect("valid");
    let lost = End::Failed(Failure::Status(404));
    assert_eq!(rig.ended(), [(0, good(3)), (1, lost)]);
}

#[test]
fn lengths_and_content_are_checked() {
    let mut rig = Rig::new();
    rig.expected.verify = true;
    let mut frames = Frames::new();
    frames.header_block(1, b"\x88\x0f\x0d\x014", false);
    frames.data(1, &offset::offset_bytes(0, 3), true);
    frames.header_block(3, GOOD, false).data(3, b"?", true);
    rig.receive(&frames).expect("valid");
    let wrong = [Failure::Length, Failure::Content].map(End::Failed);
    assert_eq!(rig.ended(), [(0, wrong[0]), (1, wrong[1])]);
}

#[test]
fn unprocessed_requests_may_be_sent_again() {
    let mut rig = Rig::new();
    let goaway = [&1u32.to_be_bytes()[..], &[0; 4]].concat();
    rig.receive(Frames::new().frame(kind::GOAWAY, 0, 0, &goaway))
        .expect("valid");
    assert_eq!(rig.ended(), [(1, End::Refused)]);
    assert!(!rig.endpoint.can_open() && !rig.endpoint.is_done());
    rig.receive(Frames::new().reset(1, code::REFUSED_STREAM))
        .expect("valid");
    assert_eq!(rig.ended(), [(0, End::Refused)]);
    assert!(rig.endpoint.is_done());
}

#[test]
fn violations_end_the_connection() {
    let long = vec![0; PAYLOAD_MAX + 1];
    let part = vec![0; PAYLOAD_MAX];
    let wrong: [&dyn Fn(&mut Frames); 8] = [
        &|frames| _ = frames.frame(kind::DATA, 0, 1, &long),
        &|frames| _ = frames.header_block(1, b"\xbe", true),
        &|frames| _ = frames.frame(kind::CONTINUATION, 0, 1, b""),
        &|frames| _ = frames.frame(frames::PUSH_PROMISE, 0, 1, b"").ping([0; 8]),
        &|frames| _ = frames.frame(kind::SETTINGS, 0, 0, b"12345"),
        &|frames| _ = frames.frame(kind::HEADERS, 0, 1, GOOD).ping([0; 8]),
        &|frames| {
            frames.frame(kind::HEADERS, 0, 1, &part);
            for _ in 0..4 {
                frames.frame(kind::CONTINUATION, 0, 1, &part);
            }
        },
        &|frames| {
            for _ in 0..=ANSWERS_MAX {
                frames.ping([0; 8]);
            }
        },
    ];
    for (number, add) in wrong.iter().enumerate() {
        let mut rig = Rig::new();
        let mut frames = Frames::new();
        add(&mut frames);
        assert_eq!(rig.receive(&frames), Err(Failure::Malformed), "{number}");
    }
}

#[test]
fn windows_are_renewed() {
    let mut rig = Rig::new();
    rig.receive(Frames::new().header_block(1, GOOD, false))
        .expect("valid");
    rig.endpoint.out.clear();
    let content = vec![0; PAYLOAD_MAX];
    let mut frames = Frames::new();
    for _ in 0..64 {
        frames.data(1, &content, false);
    }
    for _ in 0..RENEWED as usize / PAYLOAD_MAX / 64 {
        rig.receive(&frames).expect("valid");
    }
    let mut renewed = Frames::new();
    renewed.window_update(0, RENEWED).window_update(1, RENEWED);
    assert_eq!(rig.endpoint.out, renewed.bytes());
}
