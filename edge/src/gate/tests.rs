//! Tests of gates and of bandwidth limits. The gate passes admitted requests to a handler that
//! records their targets.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::signed::{Key, Names, Secret};
use super::*;
use crate::handler::{Body, BodyStream, Fault, FileRange, Frame, Head, Peer, Response};
use crate::http::{Fields, Method, Network, Scheme};
use crate::reason::Reason;

const NOW_S: u64 = 1_767_225_600;
const KEY: &[u8] = b"0123456789abcdef";

/// A handler that responds with a given body and records the targets of requests.
#[derive(Default)]
struct Inner {
    targets: RefCell<Vec<String>>,
    body: RefCell<Option<Body>>,
    later: bool,
}

impl Handler for Inner {
    fn handle(&self, request: Request) -> Answer {
        self.targets.borrow_mut().push(request.head.target.clone());
        let mut response = Response::new(200);
        response.body = self.body.take().unwrap_or_default();
        match self.later {
            true => Answer::later(async { Ok(response) }),
            false => Answer::Ready(Ok(response)),
        }
    }
}

struct Scene {
    gate: Gate,
    inner: Rc<Inner>,
    clock: Clock,
    counters: Arc<Counters>,
}

fn scene(options: Options, inner: Inner) -> Scene {
    let (inner, clock) = (Rc::new(inner), Clock::manual(NOW_S));
    let counters = Arc::new(Counters::default());
    let shared = Shared::open(options, [].iter()).expect("no files");
    Scene {
        gate: Gate::new(
            Arc::new(shared),
            clock.clone(),
            counters.clone(),
            inner.clone(),
        ),
        inner,
        clock,
        counters,
    }
}

fn request(method: Method, client: &str, target: &str) -> Request {
    let address = crate::sys::Address::from(([127, 0, 0, 1], 1));
    let mut head = Head::new();
    head.method = method;
    head.target.push_str(target);
    Request {
        head,
        body: Body::Empty,
        peer: Peer {
            address,
            client: client.parse().expect("an address"),
            local: address,
            scheme: Scheme::Http,
            tls: None,
            shared: false,
        },
        interim: None,
    }
}

impl Scene {
    fn ask(&self, client: &str, target: &str) -> Result<Response, Fault> {
        self.answer(request(Method::Get, client, target))
    }

    fn answer(&self, request: Request) -> Result<Response, Fault> {
        match self.gate.handle(request) {
            Answer::Ready(result) => result,
            Answer::Later(_) => panic!("it was to be ready"),
        }
    }

    fn reason(&self, client: &str, target: &str) -> Option<Reason> {
        self.ask(client, target).err().map(|fault| fault.reason)
    }
}

fn network(address: &str, bits: u8) -> Network {
    Network {
        address: address.parse().expect("an address"),
        bits,
    }
}

fn limit(requests: Option<BucketRate>, bytes: Option<BucketRate>) -> Option<Limit> {
    Some(Limit {
        scope: "here".to_owned(),
        requests,
        bytes,
        clients: 1024,
    })
}

/// Returns the rate of a bucket that is refilled completely every second.
fn a_second(size: u64) -> Option<BucketRate> {
    Some(BucketRate {
        tokens: size,
        per_ns: SECOND,
        size,
    })
}

fn signing() -> Option<signed::Options> {
    Some(signed::Options {
        keys: vec![Secret(KEY.into())],
        key_files: Vec::new(),
        client: false,
        prefix: false,
        names: Names::default(),
    })
}

fn sign(target: &str, until_s: u64) -> String {
    let key = Key::new(&Secret(KEY.into())).expect("a key");
    signed::signed(&key, &Names::default(), target, None, until_s, None)
}

#[test]
fn a_denied_address_is_refused_although_allowed() {
    let options = Options {
        allow: Some(vec![network("10.0.0.0", 8), network("2001:db8::", 32)]),
        deny: vec![network("10.1.0.0", 16)],
        ..Options::default()
    };
    let scene = scene(options, Inner::default());
    assert_eq!(scene.reason("10.2.0.1", "/"), None);
    assert_eq!(scene.reason("::ffff:10.2.0.1", "/"), None);
    assert_eq!(scene.reason("2001:db8::1", "/"), None);
    for client in ["10.1.0.1", "192.0.2.1", "2001:db9::1"] {
        assert_eq!(scene.reason(client, "/"), Some(Reason::AddressDenied));
    }
    assert_eq!(scene.counters.requests_denied.get(), 3);
    assert_eq!(scene.inner.targets.borrow().len(), 3);
}

#[test]
fn a_purge_from_a_listed_address_skips_the_gate() {
    let options = Options {
        deny: vec![network("0.0.0.0", 0)],
        purge_from: vec![network("127.0.0.1", 32)],
        ..Options::default()
    };
    let scene = scene(options, Inner::default());
    let purge = || Method::Other("PURGE".into());
    assert!(scene.answer(request(purge(), "127.0.0.1", "/")).is_ok());
    assert!(scene.answer(request(purge(), "127.0.0.2", "/")).is_err());
    assert!(scene.ask("127.0.0.1", "/").is_err());
}

#[test]
fn too_many_requests_get_429_with_retry_after() {
    let options = Options {
        limit: limit(
            Some(BucketRate {
                tokens: 6,
                per_ns: 60 * SECOND,
                size: 2,
            }),
            None,
        ),
        ..Options::default()
    };
    let scene = scene(options, Inner::default());
    let ask = || scene.ask("192.0.2.1", "/").map(|_| ());
    assert_eq!((ask(), ask()), (Ok(()), Ok(())));
    let fault = ask().expect_err("too many");
    assert_eq!(
        (fault.reason, fault.retry_after_s),
        (Reason::TooManyRequests, 10)
    );
    scene.clock.advance_us(9_500_000);
    assert_eq!(ask().map_err(|fault| fault.retry_after_s), Err(1));
    assert!(scene.ask("192.0.2.2", "/").is_ok(), "others are others");
    scene.clock.advance_us(500_000);
    assert_eq!(ask(), Ok(()));
    assert_eq!(scene.counters.requests_limited.get(), 2);
}

#[test]
fn all_methods_count_against_a_limit() {
    let options = Options {
        limit: limit(a_second(1), None),
        ..Options::default()
    };
    let scene = scene(options, Inner::default());
    let ask = |method| scene.answer(request(method, "::1", "/"));
    assert!(ask(Method::Head).is_ok());
    assert!(ask(Method::Options).is_err());
}

#[test]
fn the_handler_never_sees_a_signature() {
    let options = Options {
        signed_urls: signing(),
        ..Options::default()
    };
    let scene = scene(options, Inner::default());
    assert_eq!(scene.reason("::1", &sign("/a?x=1", NOW_S)), None);
    assert_eq!(*scene.inner.targets.borrow(), ["/a?x=1"]);
    let expired = sign("/a", NOW_S - 1);
    assert_eq!(
        scene.reason("::1", &expired),
        Some(Reason::SignatureExpired)
    );
    assert_eq!(scene.reason("::1", "/a"), Some(Reason::SignatureMissing));
    assert_eq!(scene.counters.requests_unsigned.get(), 2);
}

#[test]
fn a_signature_grants_reading_only() {
    let options = Options {
        signed_urls: signing(),
        ..Options::default()
    };
    let scene = scene(options, Inner::default());
    let ask = |method| scene.answer(request(method, "::1", &sign("/a", NOW_S)));
    assert!(ask(Method::Head).is_ok());
    for method in [
        Method::Post,
        Method::Options,
        Method::Other("DELETE".into()),
        Method::Other("PURGE".into()),
    ] {
        let reason = ask(method).err().map(|fault| fault.reason);
        assert_eq!(reason, Some(Reason::SignatureWrong));
    }
    assert_eq!(scene.counters.requests_unsigned.get(), 4);
}

#[test]
fn a_purge_loses_its_signature() {
    let options = Options {
        signed_urls: signing(),
        purge_from: vec![network("127.0.0.1", 32)],
        ..Options::default()
    };
    let scene = scene(options, Inner::default());
    for target in [&*sign("/a?x=1", 5), "/a?x=1", "/a?x=1&signature=2"] {
        let purge = Method::Other("PURGE".into());
        assert!(scene.answer(request(purge, "127.0.0.1", target)).is_ok());
    }
    let expected = ["/a?x=1", "/a?x=1", "/a?x=1&signature=2"];
    assert_eq!(*scene.inner.targets.borrow(), expected);
}

#[test]
fn guessed_signatures_count_and_denied_addresses_do_not() {
    let options = Options {
        deny: vec![network("192.0.2.9", 32)],
        limit: limit(a_second(2), None),
        signed_urls: signing(),
        ..Options::default()
    };
    let scene = scene(options, Inner::default());
    for expected in [
        Reason::SignatureMissing,
        Reason::SignatureMissing,
        Reason::TooManyRequests,
    ] {
        assert_eq!(scene.reason("192.0.2.1", "/"), Some(expected));
        assert_eq!(scene.reason("192.0.2.9", "/"), Some(Reason::AddressDenied));
    }
    assert_eq!(scene.counters.requests_limited.get(), 1);
}

#[test]
fn a_limit_keeps_its_buckets_across_a_reload() {
    let options = |tokens| Options {
        limit: limit(a_second(tokens), None),
        ..Options::default()
    };
    let open = |options: Options, others: &[Arc<Shared>]| {
        Arc::new(Shared::open(options, others.iter()).expect("no files"))
    };
    let table = |shared: &Arc<Shared>| shared.requests().map(|(table, _)| Arc::as_ptr(table));
    let first = open(options(1), &[]);
    let faster = open(options(5), std::slice::from_ref(&first));
    assert_eq!(table(&first), table(&faster));
    let mut elsewhere = options(1);
    elsewhere.limit.as_mut().expect("a limit").scope = "there".to_owned();
    let elsewhere = open(elsewhere, &[first.clone(), faster]);
    assert_ne!(table(&first), table(&elsewhere));
}

/// A body that consists of the given frames.
struct Frames(std::collections::VecDeque<Frame>);

impl BodyStream for Frames {
    fn poll_frame(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame, Fault>>> {
        std::task::Poll::Ready(self.0.pop_front().map(Ok))
    }

    fn length(&self) -> Option<u64> {
        Some(self.0.iter().map(Frame::length).sum())
    }
}

/// Sends a request through a gate with this bandwidth limit, in front of a handler with this body.
/// Returns the frames, the body's remaining length before each, and the number of delayed
/// responses.
async fn paced(bytes: BucketRate, body: Body, later: bool) -> (Vec<Frame>, Vec<Option<u64>>, u64) {
    let inner = Inner {
        later,
        ..Inner::default()
    };
    inner.body.replace(Some(body));
    let options = Options {
        limit: limit(None, Some(bytes)),
        ..Options::default()
    };
    // Timers run on the system's clock, so the gate must read that clock too.
    let mut scene = scene(options, inner);
    scene.gate.clock = Clock::system();
    let answer = scene.gate.handle(request(Method::Get, "192.0.2.1", "/"));
    let mut body = answer.wait().await.expect("a response").body;
    let (mut frames, mut lengths) = (Vec::new(), vec![body.length()]);
    while let Some(frame) = body.frame().await {
        frames.push(frame.expect("no fault"));
        lengths.push(body.length());
    }
    (frames, lengths, scene.counters.responses_paced.get())
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().expect("a runtime");
    runtime.block_on(future)
}

#[test]
fn content_within_the_bucket_is_unchanged() {
    let body = Body::Bytes(Bytes::from_static(b"0123456789"));
    let (frames, lengths, waited) = run(paced(a_second(10).expect("a rate"), body, false));
    assert!(matches!(&frames[..], [Frame::Data(all)] if all == "0123456789"));
    assert_eq!((lengths[0], waited), (Some(10), 0));
}

#[test]
fn pieces_are_small_ordered_and_complete_with_trailers() {
    let file: Arc<OwnedFd> = Arc::new(tempfile::tempfile().expect("a file").into());
    let part = |range| {
        Frame::File(FileRange {
            file: file.clone(),
            range,
        })
    };
    let mut trailers = Fields::new();
    trailers.append("x-sum", "1");
    let data = Bytes::from((0..200_000_u32).map(|n| n as u8).collect::<Vec<_>>());
    for later in [false, true] {
        let frames = [
            Frame::Data(data.clone()),
            part(1_000..300_000),
            Frame::Trailers(trailers.clone()),
        ];
        let body = Body::stream(Frames(frames.into()));
        let fast = a_second(1 << 40).expect("a rate");
        let (frames, lengths, waited) = run(paced(fast, body, later));
        let (mut content, mut next) = (Vec::new(), 1_000);
        for frame in &frames {
            assert!(frame.length() <= 64 << 10, "{frame:?}");
            match frame {
                Frame::Data(piece) => content.extend_from_slice(piece),
                Frame::File(piece) => {
                    assert_eq!(piece.range.start, next);
                    next = piece.range.end;
                }
                Frame::Trailers(fields) => assert_eq!(fields.text(), trailers.text()),
            }
        }
        assert!(content == data);
        assert_eq!((next, waited), (300_000, 0));
        assert!(matches!(frames.last(), Some(Frame::Trailers(_))));
        let mut left = 200_000 + 299_000;
        assert_eq!(lengths[0], Some(left));
        for (frame, length) in frames.iter().zip(&lengths[1..]) {
            left -= frame.length();
            assert_eq!(*length, Some(left));
        }
    }
}

#[test]
fn content_takes_the_time_that_its_rate_requires() {
    let filling = BucketRate {
        tokens: 100_000,
        per_ns: SECOND,
        size: 5_000,
    };
    let began = Instant::now();
    let body = Body::Bytes(Bytes::from(vec![b'x'; 20_000]));
    let (frames, _, waited) = run(paced(filling, body, false));
    let least = Duration::from_millis(150);
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    assert_eq!(waited, 1);
    assert_eq!(frames.iter().map(Frame::length).sum::<u64>(), 20_000);
    assert!(frames.iter().all(|frame| frame.length() <= 12_500));
}

#[test]
fn a_fault_within_the_content_is_passed_on() {
    struct Broken(bool);
    impl BodyStream for Broken {
        fn poll_frame(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame, Fault>>> {
            let first = !std::mem::replace(&mut self.0, true);
            std::task::Poll::Ready(Some(match first {
                true => Ok(Frame::Data(Bytes::from_static(b"abc"))),
                false => Err(Reason::BodyCut.into()),
            }))
        }

        fn length(&self) -> Option<u64> {
            None
        }
    }
    let inner = Inner::default();
    inner.body.replace(Some(Body::stream(Broken(false))));
    let options = Options {
        limit: limit(None, a_second(1 << 30)),
        ..Options::default()
    };
    let scene = scene(options, inner);
    run(async {
        let mut body = scene.ask("::1", "/").expect("a response").body;
        assert_eq!(body.length(), None);
        assert!(matches!(body.frame().await, Some(Ok(Frame::Data(_)))));
        let fault = body.frame().await.and_then(Result::err);
        assert_eq!(fault.map(|fault| fault.reason), Some(Reason::BodyCut));
        assert!(body.frame().await.is_none());
    });
}
