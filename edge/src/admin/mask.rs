//! Masks what may be a secret in URLs, for the log.

/// Longest masked text in bytes. The rest is left out.
const SHOWN_BYTES_MAX: usize = 500;
/// The text in place of a secret.
const MASK: &str = "***";
/// Parts of the names of parameters whose values may be secrets.
const SECRET: [&str; 11] = [
    "sig", "token", "key", "secret", "pass", "pwd", "auth", "cred", "session", "hmac", "jwt",
];

/// Returns a URL, or the beginning of one, without its user information and without the values of parameters that may be
/// secrets: those whose names contain a word of `SECRET`, or are percent-encoded.
pub fn masked(url: &str) -> String {
    let (before, query) = match url.split_once('?') {
        Some((before, query)) => (before, Some(query)),
        None => (url, None),
    };
    let mut out = without_user(before);
    if let Some(query) = query {
        out.push('?');
        for (i, parameter) in query.split('&').enumerate() {
            if i > 0 {
                out.push('&');
            }
            match parameter.split_once('=') {
                Some((name, _)) if is_secret(name) => {
                    out.push_str(name);
                    out.push('=');
                    out.push_str(MASK);
                }
                _ => out.push_str(parameter),
            }
        }
    }
    shorten(&mut out);
    out
}

/// Returns the target of a request, masked like a URL. Parameters of the admin API may be URLs in percent-encoding, so their
/// values are masked if they have a query of their own.
pub fn masked_target(target: &str) -> String {
    let has_query = |value: &str| value.contains("%3F") || value.contains("%3f");
    let Some((path, query)) = target.split_once('?') else {
        return masked(target);
    };
    let parameters = query.split('&').map(|one| match one.split_once('=') {
        Some((name, value)) if has_query(value) || value.contains("%40") => {
            format!("{name}={MASK}")
        }
        _ => one.to_owned(),
    });
    let parameters: Vec<String> = parameters.collect();
    masked(&format!("{path}?{}", parameters.join("&")))
}

/// Removes what stands before `@` in the authority.
fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("//") else {
        return url.to_owned();
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}//{MASK}@{host}{path}"),
        None => url.to_owned(),
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains('%') || SECRET.iter().any(|word| name.contains(word))
}

/// Leaves out the end of a text that is too long.
pub fn shorten(text: &mut String) {
    if text.len() > SHOWN_BYTES_MAX {
        text.truncate(text.floor_char_boundary(SHOWN_BYTES_MAX));
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_in_urls_are_masked() {
        for (url, shown) in [
            ("http://a/b?c=d", "http://a/b?c=d"),
            ("http://u:p@a/b", "http://***@a/b"),
            ("http://a/@b", "http://a/@b"),
            (
                "/b?x=1&Signature=abc&expires=5",
                "/b?x=1&Signature=***&expires=5",
            ),
            (
                "//a/?X-Amz-Credential=a%2Fb&token",
                "//a/?X-Amz-Credential=***&token",
            ),
            ("/?%73ig=abc&&a", "/?%73ig=***&&a"),
            ("/?a=1?sig=2", "/?a=1?sig=2"),
            ("", ""),
        ] {
            assert_eq!(masked(url), shown, "{url}");
        }
        let target = "/fetch?url=http%3A%2F%2Fa%2F%3Fsig%3Dabc&refresh=1";
        assert_eq!(masked_target(target), "/fetch?url=***&refresh=1");
        let target = "/servers?upstream=a&server=b";
        assert_eq!(masked_target(target), target);
        let long = masked(&"é".repeat(1000));
        assert!(long.len() <= SHOWN_BYTES_MAX + 3 && long.ends_with('…'));
    }

    proptest! {
        #[test]
        fn no_value_of_a_secret_parameter_is_shown(
            before in "[a-z/]{0,20}",
            word in 0..SECRET.len(),
            value in "[A-Z]{8,20}",
        ) {
            let shown = masked(&format!("http://{before}?a=1&x-{}-y={value}&b=2", SECRET[word]));
            prop_assert!(!shown.contains(&value) && shown.contains("a=1"));
        }
    }
}
