//! Tests of request targets: canonical forms, and targets that are refused.

use proptest::prelude::*;

use super::*;

fn get(raw: &str) -> Result<String, TargetError> {
    let mut out = String::new();
    canonical(&Method::Get, raw.as_bytes(), &mut out).map(|_| out)
}

#[test]
fn normal_targets_are_unchanged() {
    for target in [
        "/",
        "/a/b.html",
        "/a.b/..c/d..",
        "/a...",
        "/...",
        "/a//b/",
        "//",
        "/a%2Fb%5C%C3%A9",
        "/?",
        "/a?b?c",
        "/a?x=/../y&z=%",
        "/a?%zz%00%41%2f",
        "/a..%2Fb%5C.c",
        "/a;b=c,d!$&'()*+=:@~_-",
        "/\"<>^`{|}",
        "/a/b.",
        "/.a",
        "/.../b",
    ] {
        assert_eq!(get(target).as_deref(), Ok(target));
    }
}

#[test]
fn dot_segments_are_removed() {
    for (target, expected) in [
        ("/a/b/c/./../../g", "/a/g"),
        ("/.", "/"),
        ("/./", "/"),
        ("/./a", "/a"),
        ("/a/.", "/a/"),
        ("/a/..", "/"),
        ("/a/../", "/"),
        ("/a/b/..", "/a/"),
        ("/a/b/../c?../d", "/a/c?../d"),
        ("/a/%2e%2E/b", "/b"),
        ("/a/.%2e/b", "/b"),
        ("/%2e/b", "/b"),
        ("/a//../b", "/a/b"),
        ("/a/./b.c/..d", "/a/b.c/..d"),
        ("/..a/./%41", "/..a/A"),
        ("/.//x", "//x"),
    ] {
        assert_eq!(get(target).as_deref(), Ok(expected), "{target}");
    }
}

#[test]
fn each_path_has_one_spelling() {
    for (target, expected) in [
        ("/%70rivate/x", "/private/x"),
        ("/%7Euser/%2d%5F%2E1", "/~user/-_.1"),
        ("/%2e%2e%2e", "/..."),
        ("/%41%2fb%5c", "/A%2Fb%5C"),
        ("/%c3%a9", "/%C3%A9"),
        ("/%2541", "/%2541"),
        ("/a;x/.a;/...;/..a;/;..", "/a;x/.a;/...;/..a;/;.."),
        ("/%25%34%31", "/%2541"),
        ("/a?%41", "/a?%41"),
    ] {
        assert_eq!(get(target).as_deref(), Ok(expected), "{target}");
    }
}

#[test]
fn ambiguous_targets_are_refused() {
    for (target, error) in [
        ("", TargetError::NoTarget),
        ("a", TargetError::NoTarget),
        ("*", TargetError::NoTarget),
        ("?a", TargetError::NoTarget),
        ("/..", TargetError::AboveRoot),
        ("/../a", TargetError::AboveRoot),
        ("/a/../../b", TargetError::AboveRoot),
        ("/%2e%2e/b", TargetError::AboveRoot),
        ("/a/./../../b", TargetError::AboveRoot),
        ("/a#b", TargetError::Byte),
        ("/a?b#c", TargetError::Byte),
        ("/a b", TargetError::Byte),
        ("/a?b c", TargetError::Byte),
        ("/a\\b", TargetError::Byte),
        ("/a?\\", TargetError::Byte),
        ("/a\tb", TargetError::Byte),
        ("/a\u{7f}", TargetError::Byte),
        ("/\u{e9}", TargetError::Byte),
        ("/a?\0", TargetError::Byte),
        ("/%", TargetError::Percent),
        ("/%4", TargetError::Percent),
        ("/%4?1", TargetError::Percent),
        ("/%zz", TargetError::Percent),
        ("/a%00", TargetError::Nul),
        ("/a/..%2fadmin", TargetError::HiddenDots),
        ("/a/%2e%2E%2Fadmin", TargetError::HiddenDots),
        ("/a/x%2f..", TargetError::HiddenDots),
        ("/a/x%5C..%5cy", TargetError::HiddenDots),
        ("/a%5c.%2Fb", TargetError::HiddenDots),
        ("/v/1/..;/..;/x", TargetError::HiddenDots),
        ("/v/1/..;a=b", TargetError::HiddenDots),
        ("/v/1/%2e.%3b/x", TargetError::HiddenDots),
        ("/v/1/.;/x?y", TargetError::HiddenDots),
        ("/v/1/x%2f..;%2Fx", TargetError::HiddenDots),
        ("/v/1/x%5c..%3Ba", TargetError::HiddenDots),
    ] {
        assert_eq!(get(target), Err(error), "{target:?}");
    }
}

#[test]
fn absolute_form_is_split_into_its_parts() {
    for (target, authority, expected) in [
        ("http://h", "h", "/"),
        ("HTTP://h:80/", "h:80", "/"),
        ("http://h?q", "h", "/?q"),
        ("http://H/a/../b?c", "H", "/b?c"),
        ("http://[::1]:8/x", "[::1]:8", "/x"),
    ] {
        let mut out = String::new();
        let form = canonical(&Method::Get, target.as_bytes(), &mut out);
        let expected_form = Form::Absolute {
            scheme: Scheme::Http,
            authority: authority.as_bytes(),
        };
        assert_eq!((form, &*out), (Ok(expected_form), expected), "{target}");
    }
    for (target, error) in [
        ("http:///a", TargetError::NoHost),
        ("http://", TargetError::NoHost),
        ("http://:80/", TargetError::NoHost),
        ("http://u@h/", TargetError::UserInfo),
        ("http://u:p@h/", TargetError::UserInfo),
        ("ftp://h/", TargetError::Scheme),
        ("://h/", TargetError::Scheme),
        ("http://h/../a", TargetError::AboveRoot),
        ("http://h#a", TargetError::Byte),
        ("http://h\\a", TargetError::Byte),
        ("http:/h", TargetError::NoTarget),
        ("h:80", TargetError::NoTarget),
    ] {
        assert_eq!(get(target), Err(error), "{target}");
    }
    let mut out = String::new();
    let form = canonical(&Method::Get, b"https://h/", &mut out);
    assert!(matches!(
        form,
        Ok(Form::Absolute {
            scheme: Scheme::Https,
            ..
        })
    ));
}

#[test]
fn options_and_connect_have_their_own_forms() {
    let of = |method: Method, raw: &'static str| {
        let mut out = String::new();
        let form = canonical(&method, raw.as_bytes(), &mut out);
        (form, out)
    };
    assert_eq!(of(Method::Options, "*"), (Ok(Form::Asterisk), "*".into()));
    assert_eq!(of(Method::Options, "http://h").1, "*");
    assert_eq!(of(Method::Options, "http://h/").1, "/");
    assert_eq!(of(Method::Options, "/a").1, "/a");
    let connect = of(Method::Connect, "h:443");
    assert_eq!(connect, (Ok(Form::Authority), String::new()));
}

fn host_of(raw: &str) -> Result<String, HostError> {
    let mut out = String::new();
    host(raw.as_bytes(), &mut out).map(|()| out)
}

#[test]
fn hosts_are_validated_and_lowercased() {
    for (raw, expected) in [
        ("", ""),
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("example.com.:80", "example.com:80"),
        (".", "."),
        ("h:", "h"),
        ("h:0", "h:0"),
        ("h:65535", "h:65535"),
        ("h:00080", "h:80"),
        ("1.2.3.4:80", "1.2.3.4:80"),
        ("[::1]", "[::1]"),
        ("[2001:DB8::1]:80", "[2001:db8::1]:80"),
        ("a_b-c~!$&'()*+,;=", "a_b-c~!$&'()*+,;="),
        ("%C3%A9", "%c3%a9"),
    ] {
        assert_eq!(host_of(raw).as_deref(), Ok(expected), "{raw}");
    }
    let long = "a".repeat(271);
    for (raw, error) in [
        (":80", HostError::NoName),
        (":", HostError::NoName),
        ("example.com..", HostError::Byte),
        ("..:80", HostError::Byte),
        ("h:65536", HostError::Port),
        ("h:000080", HostError::Port),
        ("h:+80", HostError::Port),
        ("h:80:80", HostError::Port),
        ("h:a", HostError::Port),
        ("u@h", HostError::Byte),
        ("h/", HostError::Byte),
        ("h h", HostError::Byte),
        ("h, h", HostError::Byte),
        ("h?", HostError::Byte),
        ("h#", HostError::Byte),
        ("h\\", HostError::Byte),
        ("h%", HostError::Byte),
        ("h%00", HostError::Byte),
        ("h%0a", HostError::Byte),
        ("\u{e9}", HostError::Byte),
        ("a]", HostError::Byte),
        ("[::1]x", HostError::Byte),
        ("[::1", HostError::Address),
        ("[]", HostError::Address),
        ("[1.2.3.4]", HostError::Address),
        ("[fe80::1%25eth0]", HostError::Address),
        ("[v1.x]", HostError::Address),
        (&long, HostError::TooLong),
    ] {
        assert_eq!(host_of(raw), Err(error), "{raw}");
    }
}

proptest! {
    #[test]
    fn normalising_twice_changes_nothing(raw in "/[a./%2eEfF5c?]{0,20}") {
        if let Ok(once) = get(&raw) {
            prop_assert!(once.starts_with('/'));
            let path = once.split('?').next().unwrap_or_default();
            prop_assert!(path.split('/').all(|s| dots(s).is_none()), "{}", once);
            prop_assert_eq!(get(&once), Ok(once.clone()));
        }
    }

    #[test]
    fn normalising_a_host_twice_changes_nothing(raw in "[a-zA-Z0-9.:\\[\\]%@-]{0,20}") {
        if let Ok(once) = host_of(&raw) {
            prop_assert_eq!(host_of(&once), Ok(once.clone()));
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut out = String::new();
        let _ = canonical(&Method::Options, &bytes, &mut out);
        let _ = host(&bytes, &mut out);
    }
}
