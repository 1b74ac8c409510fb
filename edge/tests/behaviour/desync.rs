//! Tests of origins that send more than was requested, or something else. No bytes may be taken for
//! the response to another request.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use sluice_lab::client::Client;

use crate::harness::{Edge, SOON, Setup, assert_reason};

/// An origin that answers each request, on any connection, with the next text of a list. After the
/// end of the list, the last text is repeated.
struct Scripted {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Scripted {
    fn start(answers: &'static [&'static str]) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        // Each thread ends when the edge closes its connections, or with the test process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = counted.clone();
                thread::spawn(move || answer(stream, answers, &counted));
            }
        });
        Scripted { address, asked }
    }

    /// Starts an edge with one worker in front of this origin. With one worker, the next request
    /// uses the same connection to the origin.
    fn edge(&self) -> Edge {
        self.setup().start()
    }

    fn setup(&self) -> Setup {
        Setup::of_servers(vec![format!("http://{}", self.address)]).workers(1)
    }
}

fn answer(mut stream: TcpStream, answers: &[&str], counted: &AtomicUsize) {
    let mut head = Vec::new();
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() {
        head.push(byte[0]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            let nth = counted.fetch_add(1, Ordering::SeqCst);
            let text = answers[nth.min(answers.len() - 1)];
            if stream.write_all(text.as_bytes()).is_err() {
                return;
            }
        }
    }
}

const PLAIN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright";

/// Asserts that the following responses on this client connection are right.
fn assert_right(client: &mut Client, target: &str) {
    for _ in 0..3 {
        let reply = client.get(target, &[]).expect("a reply");
        assert_eq!((reply.status, reply.text().as_str()), (200, "right"));
    }
}

// The origin sends a body after HEAD, 204 or 304, where none is allowed. The body must not be taken
// for the response to the next request.
#[test]
fn forbidden_bodies_are_not_taken_for_the_next_response() {
    const FORGED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 44\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
    const NO_CONTENT: &str =
        "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
    const NOT_MODIFIED: &str = "HTTP/1.1 304 Not Modified\r\nContent-Length: 44\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
    assert_eq!(FORGED.len(), 44);
    let cases: [(&str, u16, &'static [&'static str]); 3] = [
        ("HEAD", 200, &[HEAD, PLAIN]),
        ("GET", 204, &[NO_CONTENT, PLAIN]),
        ("GET", 304, &[NOT_MODIFIED, PLAIN]),
    ];
    for (method, status, answers) in cases {
        let origin = Scripted::start(answers);
        let edge = origin.edge();
        let mut client = edge.client();
        let first = client
            .request(method, "/pass/x", &[], b"")
            .expect("a reply");
        assert_eq!((first.status, first.body.len()), (status, 0), "{method}");
        assert_right(&mut client, "/pass/x");
    }
}

/// Starts an origin that answers HEAD with a head alone. If another request follows on the same
/// connection, the origin first sends the body that it owes to HEAD, which looks like a response.
fn owing_a_body() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut owes = false;
                while let Some(head) = read_head(&mut stream) {
                    let right = match head.starts_with("HEAD") {
                        true => {
                            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 70\r\n\r\n"
                        }
                        false => CACHEABLE,
                    };
                    let answer = if owes { FORGED } else { right };
                    owes |= head.starts_with("HEAD");
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

const CACHEABLE: &str =
    "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nright";
const FORGED: &str =
    "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 6\r\n\r\nforged";

/// Reads a request head; `None` at the end of the connection.
fn read_head(stream: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

// The body after HEAD arrives late, when the edge would already have sent its next request on the
// same connection. The edge uses another connection.
#[test]
fn a_late_body_after_head_is_not_taken_for_the_next_response() {
    for target in ["/pass/x", "/x"] {
        let edge = Setup::of_servers(vec![format!("http://{}", owing_a_body())])
            .workers(1)
            .start();
        let mut client = edge.client();
        let first = client.request("HEAD", target, &[], b"").expect("a reply");
        assert_eq!((first.status, first.body.len()), (200, 0), "{target}");
        assert_right(&mut client, &format!("{target}?other"));
        assert_eq!(edge.counter("upstream_idle_now"), 1, "{target}");
    }
}

/// A request that a client sends as the body of another request.
const SMUGGLED: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// Starts an origin that reads no bodies, and so takes the bytes of a body for the next request. The
/// response to `SMUGGLED` is sent only when another request follows on the same connection. If
/// `early` is set, the response to a POST begins before its body is read, and ends after that.
fn ignoring_bodies(early: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let (mut owes, mut posted) = (false, false);
                while let Some(head) = read_head(&mut stream) {
                    let smuggled = head.starts_with("GET /smuggled");
                    posted |= early && head.starts_with("POST");
                    let answer = match (smuggled, owes) {
                        (true, _) if posted => "ht",
                        (true, _) => "",
                        (false, true) => FORGED,
                        (false, false) if posted => &CACHEABLE[..CACHEABLE.len() - 2],
                        (false, false) => CACHEABLE,
                    };
                    owes |= smuggled;
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

// The origin does not read content that has no meaning for the method (RFC 9110 9.3.1), and takes it
// for another request. Its response must not be taken for the response to the next request.
#[test]
fn the_response_to_ignored_content_is_not_taken_for_the_next_response() {
    for method in ["GET", "HEAD", "OPTIONS", "DELETE"] {
        for target in ["/pass/x", "/x"] {
            let edge = Setup::of_servers(vec![format!("http://{}", ignoring_bodies(false))])
                .workers(1)
                .start();
            let mut client = edge.client();
            let first = client
                .request(method, target, &[], SMUGGLED)
                .expect("a reply");
            assert_eq!(first.status, 200, "{method} {target}");
            assert_right(&mut client, &format!("{target}?other"));
        }
    }
}

// The origin responds before it has received the content, and then takes the content for another
// request.
#[test]
fn a_connection_is_not_used_again_after_a_response_to_half_a_request() {
    for target in ["/pass/x", "/x"] {
        let edge = Setup::of_servers(vec![format!("http://{}", ignoring_bodies(true))])
            .workers(1)
            .start();
        let mut client = edge.client();
        let length = SMUGGLED.len();
        let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        client.send_raw(head.as_bytes()).expect("sent");
        assert_eq!(client.read_head().expect("a head").status, 200);
        client.send_raw(SMUGGLED).expect("sent");
        assert_eq!(client.read_some(5).expect("the body"), b"right");
        assert_right(&mut edge.client(), &format!("{target}?other"));
    }
}

// The origin sends a response before the edge has sent a request. The edge must not use it for its
// next request.
#[test]
fn responses_sent_before_their_request_are_dropped() {
    const TWO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nrightHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
    let origin = Scripted::start(&[TWO]);
    let edge = origin.edge();
    let mut client = edge.client();
    assert_right(&mut client, "/pass/x");
    assert_right(&mut client, "/x");
}

// The origin sends 101 although the request has no Upgrade. This is a fault of the origin.
#[test]
fn switching_protocols_unasked_is_a_fault() {
    const SWITCH: &str =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n";
    for target in ["/pass/x", "/x"] {
        let origin = Scripted::start(&[SWITCH]);
        let edge = origin.edge();
        let reply = edge.get(target, &[]);
        assert_eq!(reply.status, 502, "{target}");
        assert!(reply.header("upgrade").is_none());
    }
}

// The origin sends interim responses (1xx) without end.
#[test]
fn endless_interim_responses_are_a_fault() {
    const INTERIM: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n\
                           HTTP/1.1 102 Processing\r\n\r\n";
    let origin = Scripted::start(&[INTERIM]);
    let setup = origin.setup().upstream("read_timeout = \"1500ms\"");
    let edge = setup.start();
    for target in ["/pass/x", "/x"] {
        let reply = edge.get(target, &[]);
        assert_eq!(reply.status, 504, "{target}");
        assert_reason(&reply, "head-timeout");
        assert!(
            reply
                .interim
                .iter()
                .all(|head| head.status == 103 || head.status == 102)
        );
    }
}

// The final response arrives in one TCP segment together with interim responses.
#[test]
fn a_final_response_after_interim_ones_is_found() {
    const BOTH: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n\
                        HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright";
    let origin = Scripted::start(&[BOTH]);
    let edge = origin.edge();
    assert_right(&mut edge.client(), "/pass/x");
    assert_right(&mut edge.client(), "/x");
}

// An HTTP/1.0 origin ends each response by closing the connection, even if the response has headers
// that announce a persistent connection.
#[test]
fn connections_to_http_1_0_origins_are_not_reused() {
    const OLD: &str = "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nright";
    let origin = Scripted::start(&[OLD]);
    let edge = origin.edge();
    let mut client = edge.client();
    assert_right(&mut client, "/pass/x");
    let reply = client.get("/pass/x", &[]).expect("a reply");
    assert_eq!(reply.header("via"), Some("1.0 sluice"));
    assert_eq!(edge.counter("upstream_reuses"), 0);
    assert_eq!(origin.asked.load(Ordering::SeqCst), 4);
}

// Header values of the origin with line breaks could end the head early, so the response is
// refused.
#[test]
fn response_heads_can_not_be_split() {
    const SPLIT: &str =
        "HTTP/1.1 200 OK\r\nX-One: a\rSet-Cookie: forged\r\nContent-Length: 5\r\n\r\nright";
    let origin = Scripted::start(&[SPLIT]);
    let edge = origin.edge();
    for target in ["/pass/x", "/x"] {
        let mut client = edge.client();
        client.send("GET", target, &[], b"").expect("sent");
        let head = client.read_head().expect("a head");
        assert_eq!(head.status, 502);
        assert_eq!(head.header("set-cookie"), None);
    }
}

/// Starts an origin that accepts one connection, responds before it has read the request body, and
/// then reads to the end. The origin reports the body to the test.
fn hasty() -> (SocketAddr, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut seen, mut byte) = (Vec::new(), [0]);
        while !seen.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
            seen.push(byte[0]);
        }
        let early = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello";
        stream.write_all(early).expect("an edge that reads");
        seen.clear();
        // The body may end with a reset of the connection.
        let _ = stream.read_to_end(&mut seen);
        let _ = tell.send(seen);
    });
    (address, told)
}

// The origin responds early, and the client then breaks off its upload. The edge must not end the
// body towards the origin as if it were complete.
#[test]
fn an_upload_that_breaks_after_an_early_answer_is_never_completed() {
    let breaks: [fn(&mut Client); 3] = [
        |client| client.send_raw(b"zz\r\n").expect("sent"),
        |client| client.stream().shutdown(Shutdown::Both).expect("open"),
        |client| client.stream().shutdown(Shutdown::Write).expect("open"),
    ];
    for (which, broken) in breaks.iter().enumerate() {
        let (address, told) = hasty();
        let edge = Setup::of_servers(vec![format!("http://{address}")]).start();
        let mut client = edge.client();
        let begin =
            b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n";
        client.send_raw(begin).expect("sent");
        assert_eq!(client.read_head().expect("a head").status, 200);
        if which > 0 {
            client.send_raw(b"9\r\nmid").expect("sent");
        }
        broken(&mut client);
        let seen = told.recv_timeout(SOON).expect("the edge closes");
        let text = String::from_utf8_lossy(&seen);
        assert!(text.starts_with("5\r\nbegin\r\n"), "{text:?}");
        assert!(!text.contains("0\r\n\r\n"), "{text:?}");
    }
}
