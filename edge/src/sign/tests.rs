//! Tests with the examples that AWS publishes for S3 ("Authenticating Requests: Using the Authorization Header").

use super::time::Time;
use super::*;

/// 24 May 2013, 00:00 UTC.
const TIME: u64 = 1_369_353_600;
const HOST: &str = "examplebucket.s3.amazonaws.com";

fn signer() -> Signer {
    Signer::new(Options {
        region: "us-east-1".to_owned(),
        access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
        secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
        session_token: None,
        query: true,
        writes: true,
    })
}

fn signature(method: &str, target: &str, headers: &[(&str, &str)], content: &str) -> String {
    let all = signer().authorization(method, target, headers, content, &Time::of(TIME));
    let (_, signature) = all.split_once(",Signature=").expect("a signature");
    signature.to_owned()
}

#[test]
fn published_examples_have_their_signatures() {
    let date = ("x-amz-date", "20130524T000000Z");
    let host = ("host", HOST);
    let empty = ("x-amz-content-sha256", EMPTY);
    let range = [host, ("range", "bytes=0-9"), empty, date];
    assert_eq!(
        signature("GET", "/test.txt", &range, EMPTY),
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    );
    let content = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    let put = [
        ("date", "Fri, 24 May 2013 00:00:00 GMT"),
        host,
        ("x-amz-content-sha256", content),
        date,
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
    ];
    for target in ["/test$file.text", "/test%24file.text"] {
        assert_eq!(
            signature("PUT", target, &put, content),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
    }
    let plain = [host, empty, date];
    assert_eq!(
        signature("GET", "/?lifecycle", &plain, EMPTY),
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
    );
    for target in ["/?max-keys=2&prefix=J", "/?prefix=J&max-keys=2"] {
        assert_eq!(
            signature("GET", target, &plain, EMPTY),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }
}

#[test]
fn a_request_is_signed_with_host_date_and_content() {
    let request = |has_content| Request {
        method: "GET",
        target: "/?lifecycle",
        host: HOST,
        has_content,
    };
    let signer = signer();
    for _ in 0..2 {
        let signed = signer.sign(&request(false), TIME);
        assert_eq!((&*signed.date, signed.content), ("20130524T000000Z", EMPTY));
        assert_eq!(
            signed.authorization,
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;x-amz-content-sha256;x-amz-date,\
             Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
    }
    assert_eq!(
        signer.sign(&request(true), TIME).content,
        "UNSIGNED-PAYLOAD"
    );
    let next = signer.sign(&request(false), TIME + 86_400);
    assert!(next.authorization.contains("/20130525/us-east-1/"));
    let mut options = signer.options.clone();
    assert!(!format!("{options:?}").contains("bPxRfi"));
    options.session_token = Some("token".to_owned());
    let signed = Signer::new(options).sign(&request(false), TIME);
    assert_eq!(signed.token.as_deref(), Some("token"));
    assert!(signed.authorization.contains(";x-amz-security-token,"));
}

#[test]
fn days_follow_the_calendar() {
    for (days, day) in [
        (0, "19700101"),
        (58, "19700228"),
        (59, "19700301"),
        (11_016, "20000229"),
        (20_453, "20251231"),
        (47_541, "21000301"),
    ] {
        assert_eq!(Time::of(days * 86_400).day(), day);
    }
    assert_eq!(Time::of(86_399).full(), "19700101T235959Z");
}
