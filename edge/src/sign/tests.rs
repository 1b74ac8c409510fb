//! Tests with the examples that AWS publishes for S3 ("Authenticating Requests: Using the Authorization Header"), as far as
//! they sign the headers that Sluice signs.

use std::collections::HashMap;

use super::*;

/// 24 May 2013, 00:00 UTC.
const TIME: u64 = 1_369_353_600;
const HOST: &str = "examplebucket.s3.amazonaws.com";
/// SHA-256 of no content.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn options() -> Options {
    Options {
        region: "us-east-1".to_owned(),
        access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
        secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
        secret_key_file: None,
        session_token: None,
        query: true,
        writes: true,
    }
}

fn request(target: &str) -> Request<'_> {
    Request {
        method: "GET",
        target,
        host: HOST,
        has_content: false,
    }
}

fn headers(signer: &Signer, request: &Request<'_>, unix_s: u64) -> HashMap<String, String> {
    let signature = signer.sign(request, unix_s);
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    signature.headers().map(owned).collect()
}

fn authorization(target: &str) -> String {
    headers(&Signer::new(options()), &request(target), TIME)["authorization"].clone()
}

#[test]
fn published_examples_have_their_signatures() {
    let signed = headers(&Signer::new(options()), &request("/?lifecycle"), TIME);
    assert_eq!(signed["x-amz-date"], "20130524T000000Z");
    assert_eq!(signed["x-amz-content-sha256"], EMPTY);
    assert_eq!(
        signed["authorization"],
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
         SignedHeaders=host;x-amz-content-sha256;x-amz-date, \
         Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
    );
    for target in ["/?max-keys=2&prefix=J", "/?prefix=J&max-keys=2"] {
        let signed = authorization(target);
        let signature = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        assert!(signed.ends_with(signature), "{signed}");
    }
}

#[test]
fn spellings_of_one_target_have_one_signature() {
    for [one, other] in [
        ["/a$b c\u{e4}", "/a%24b%20c%C3%A4"],
        ["/a/~b.c", "/%61/%7eb%2ec"],
        ["/a%", "/a%25"],
        ["/a?x=b+c", "/a?x=b%20c"],
        [
            "/a?x=\"|{}<>[]\\^`",
            "/a?x=%22%7C%7B%7D%3C%3E%5B%5D%5C%5E%60",
        ],
        ["/a?x=#", "/a?x=%23"],
        ["/a?x", "/a?x="],
        ["/a?", "/a"],
    ] {
        assert_eq!(authorization(one), authorization(other), "{one}");
    }
    assert_ne!(authorization("/a%2Fb"), authorization("/a%252Fb"));
    assert_ne!(authorization("/a//b"), authorization("/a/b"));
    assert_ne!(authorization("/a/../b"), authorization("/b"));
}

#[test]
fn content_is_not_signed_and_tokens_are() {
    let with_content = Request {
        has_content: true,
        ..request("/a")
    };
    let mut options = options();
    assert!(!format!("{options:?}").contains("bPxRfi"));
    options.session_token = Some("token".to_owned());
    let signed = headers(&Signer::new(options), &with_content, TIME + 86_400);
    assert_eq!(signed["x-amz-content-sha256"], "UNSIGNED-PAYLOAD");
    assert_eq!(signed["x-amz-security-token"], "token");
    let authorization = &signed["authorization"];
    assert!(authorization.contains("/20130525/us-east-1/"));
    assert!(authorization.contains(";x-amz-security-token,"));
}

#[test]
fn a_host_that_can_not_be_signed_leaves_a_request_unsigned() {
    let wrong = Request {
        host: "a\r\nb",
        ..request("/a")
    };
    let signer = Signer::new(options());
    assert_eq!(signer.sign(&wrong, TIME).headers().count(), 0);
}
