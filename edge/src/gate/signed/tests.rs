//! Tests of signed URLs.

use proptest::prelude::*;

use super::*;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const NOW: u64 = 1_767_225_600;

fn key() -> Key {
    Key::new(&Secret(SECRET.into())).expect("a key")
}

fn options() -> Options {
    Options {
        keys: Vec::new(),
        key_files: Vec::new(),
        client: false,
        prefix: true,
        names: Names::default(),
    }
}

fn client(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn checked(target: &str) -> Result<String, Reason> {
    check(target, client("192.0.2.7"), NOW, &options(), &[key()])
}

/// The expected signatures were made with OpenSSL: `printf '%s\n%s\n%s' TIME WHAT CLIENT |
/// openssl dgst -sha256 -hmac SECRET`.
#[test]
fn signatures_are_compatible_with_other_programs() {
    for (what, client_text, expected) in VECTORS {
        let client = (!client_text.is_empty()).then(|| client(client_text));
        let mac = key().over("1767225600", what, client);
        let bytes = mac.finalize().into_bytes();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(&hex, expected, "{what:?}");
    }
}

const VECTORS: &[(Signed<'_>, &str, &str)] = &[
    (
        Signed::Target("/videos/1/film.mp4?lang=de"),
        "",
        "142eecfbea6dbfaecf05c22e6ef42450bed4ea1c5727c2b66f815dda23154733",
    ),
    (
        Signed::Target("/videos/1/film.mp4"),
        "192.0.2.7",
        "ee8497c5ab020610171829c8af28cd0b144aeb954f7d55bbf3a466a9c13b5970",
    ),
    (
        Signed::Prefix("/videos/1/"),
        "",
        "e770de75bf651d43c4b01e1091aa7b3563b62743ca7e9e13ea65671530386abb",
    ),
];

#[test]
fn a_signed_url_is_accepted_and_loses_its_signature() {
    for target in ["/a", "/a?", "/a?x=1&y", "/a?&&", "/%C3%A9?prefix"] {
        let url = signed(&key(), &Names::default(), target, None, NOW, None);
        let expected = match target {
            // A parameter named `prefix` is read as the signature's prefix, even if the site
            // means something else by it.
            "/%C3%A9?prefix" => Err(Reason::SignatureWrong),
            target => Ok(target.to_owned()),
        };
        assert_eq!(checked(&url), expected, "{url}");
    }
}

#[test]
fn the_signature_may_be_anywhere_in_the_query_and_hexadecimal() {
    let signature = key().sign("1767225600", &Signed::Target("/a?x=1&y=2"), None);
    let bytes = decoded(&signature).expect("32 bytes");
    let hex: String = bytes.iter().map(|b| format!("{b:02X}")).collect();
    for written in [
        signature.clone(),
        format!("{signature}="),
        format!("{signature}%3D"),
        hex,
    ] {
        let url = format!("/a?signature={written}&x=1&expires=1767225600&y=2");
        assert_eq!(checked(&url).as_deref(), Ok("/a?x=1&y=2"), "{url}");
    }
}

#[test]
fn a_url_that_was_not_signed_is_refused() {
    let names = Names::default();
    let url = signed(&key(), &names, "/a/b?x=1", None, NOW, None);
    assert!(checked(&url).is_ok());
    for (from, to) in [
        ("/a/b", "/a/c"),
        ("x=1", "x=2"),
        ("x=1", "x=1&y"),
        ("1767225600", "1767225601"),
        ("1767225600", "01767225600"),
        ("1767225600", "+1767225600"),
        ("1767225600", ""),
        ("1767225600", "9999999999999"),
        ("expires=", "expires=1767225600&expires="),
        ("signature=", "signature=&signature="),
        ("signature=", "signature=A"),
        ("signature=", "prefix=/a/&signature="),
        ("signature=", "prefix=&signature="),
    ] {
        let other = url.replacen(from, to, 1);
        assert_eq!(checked(&other), Err(Reason::SignatureWrong), "{other}");
    }
    for (from, to) in [
        ("&signature", "&Signature"),
        ("expires", "%65xpires"),
        ("?", "#"),
    ] {
        let other = url.replacen(from, to, 1);
        assert_eq!(checked(&other), Err(Reason::SignatureMissing), "{other}");
    }
    let other_key = Key::new(&Secret(b"another secret of bytes".as_slice().into()));
    let other_key = other_key.expect("a key");
    let by_other = signed(&other_key, &names, "/a/b?x=1", None, NOW, None);
    assert_eq!(checked(&by_other), Err(Reason::SignatureWrong));
    let both = [key(), other_key];
    let checked = check(&by_other, client("::1"), NOW, &options(), &both);
    assert_eq!(checked.as_deref(), Ok("/a/b?x=1"));
}

#[test]
fn a_signature_is_valid_through_its_last_second() {
    let url = signed(&key(), &Names::default(), "/a", None, NOW, None);
    let at = |now| check(&url, client("::1"), now, &options(), &[key()]);
    assert_eq!(at(NOW).as_deref(), Ok("/a"));
    assert_eq!(at(NOW + 1), Err(Reason::SignatureExpired));
}

#[test]
fn a_prefix_covers_only_the_paths_below_it() {
    let names = Names::default();
    let url = signed(&key(), &names, "/v/1/a.ts", Some("/v/1/"), NOW, None);
    let elsewhere = |path: &str| checked(&url.replacen("/v/1/a.ts", path, 1));
    assert_eq!(elsewhere("/v/1/a.ts").as_deref(), Ok("/v/1/a.ts"));
    assert_eq!(elsewhere("/v/1/x/b.ts").as_deref(), Ok("/v/1/x/b.ts"));
    assert_eq!(elsewhere("/v/12/a.ts"), Err(Reason::SignatureWrong));
    assert_eq!(elsewhere("/v/1"), Err(Reason::SignatureWrong));
    // A signature for the target `/v/1/` does not become one for the prefix `/v/1/` if a prefix
    // parameter is added.
    let folder = signed(&key(), &names, "/v/1/", None, NOW, None);
    let wider = folder.replacen("/v/1/", "/v/1/a.ts", 1) + "&prefix=/v/1/";
    assert_eq!(checked(&wider), Err(Reason::SignatureWrong));
    // A route without `prefix` refuses signatures that cover a prefix.
    let strict = Options {
        prefix: false,
        ..options()
    };
    let refused = check(&url, client("::1"), NOW, &strict, &[key()]);
    assert_eq!(refused, Err(Reason::SignatureWrong));
}

#[test]
fn a_prefix_may_be_escaped() {
    let escaped = "/caf%C3%A9+&/";
    let target = format!("{escaped}a");
    let url = signed(&key(), &Names::default(), &target, Some(escaped), NOW, None);
    assert_eq!(checked(&url).as_deref(), Ok(&*target));
    let slashes = signed(&key(), &Names::default(), "/v/a", Some("/v/"), NOW, None);
    let slashes = slashes.replace("prefix=/v/", "prefix=%2Fv%2f");
    assert_eq!(checked(&slashes).as_deref(), Ok("/v/a"));
    for bad in ["%", "%2", "%zz", "%00", "%0a", "%20", "v/", "/v", "", "%ff"] {
        let other = slashes.replace("prefix=%2Fv%2f", &format!("prefix={bad}"));
        assert_eq!(checked(&other), Err(Reason::SignatureWrong), "{other}");
    }
}

#[test]
fn a_signature_for_one_client_is_refused_for_others() {
    let own = Options {
        client: true,
        ..options()
    };
    let at = |url: &str, address: &str| check(url, client(address), NOW, &own, &[key()]);
    let names = Names::default();
    let url = signed(&key(), &names, "/a", None, NOW, Some(client("192.0.2.7")));
    assert_eq!(at(&url, "192.0.2.7").as_deref(), Ok("/a"));
    assert_eq!(at(&url, "::ffff:192.0.2.7").as_deref(), Ok("/a"));
    assert_eq!(at(&url, "192.0.2.8"), Err(Reason::SignatureWrong));
    assert_eq!(checked(&url), Err(Reason::SignatureWrong));
    let anyone = signed(&key(), &names, "/a", None, NOW, None);
    assert_eq!(at(&anyone, "192.0.2.7"), Err(Reason::SignatureWrong));
}

#[test]
fn secrets_are_not_displayed_and_files_may_end_in_a_newline() {
    let secret = Secret::from_file(b"0123456789abcdef\n").expect("long enough");
    assert_eq!(&*secret.0, b"0123456789abcdef");
    assert_eq!(format!("{secret:?}"), "Secret");
    assert!(Secret::from_file(b"0123456789abcde \n").is_err());
    assert!(Secret::from_file(&[b'a'; KEY_BYTES_MAX + 1]).is_err());
}

proptest! {
    #[test]
    fn any_target_satisfies_the_guarantees(target in "/[a-c%/]{0,4}([?&](expires|signature|prefix|x)=?[0-9A-Za-z%/_=-]{0,64}){0,6}") {
        exercise(&target);
    }

    #[test]
    fn a_single_changed_byte_invalidates_the_signature(at in 0..200_usize, byte in b'!'..=b'~') {
        let url = signed(&key(), &Names::default(), "/a/b?x=1", None, NOW, None);
        let mut other = url.clone().into_bytes();
        let at = at % other.len();
        other[at] = byte;
        let other = String::from_utf8(other).expect("ASCII");
        if other != url {
            prop_assert!(checked(&other).is_err(), "{}", other);
        }
    }
}
