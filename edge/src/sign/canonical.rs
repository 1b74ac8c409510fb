//! The canonical form of a request, which is signed.

/// Returns the canonical form of a request with these headers, whose names joined by `;` are `names`.
pub(super) fn request(
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    names: &str,
    content: &str,
) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut out = format!("{method}\n");
    encode(&decode(path, false), true, &mut out);
    out.push('\n');
    append_query(query, &mut out);
    out.push('\n');
    for (name, value) in headers {
        out.push_str(name);
        out.push(':');
        let words: Vec<&str> = value.split_ascii_whitespace().collect();
        out.push_str(&words.join(" "));
        out.push('\n');
    }
    out.push('\n');
    out.push_str(names);
    out.push('\n');
    out.push_str(content);
    out
}

/// Appends the parameters of a query in the order of their encoded names and values.
fn append_query(query: &str, out: &mut String) {
    let encoded = |text: &str| {
        let mut out = String::new();
        encode(&decode(text, true), false, &mut out);
        out
    };
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    let mut all: Vec<(String, String)> = parameters
        .map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")))
        .map(|(name, value)| (encoded(name), encoded(value)))
        .collect();
    all.sort();
    let all: Vec<String> = all
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    out.push_str(&all.join("&"));
}

/// Decodes `%XX`, and `+` as a space if `plus` says so. Invalid escapes stay as they are.
fn decode(text: &str, plus: bool) -> Vec<u8> {
    let bytes = text.as_bytes();
    let digit = |at: usize| {
        let digit = bytes.get(at).map(|b| char::from(*b));
        digit.and_then(|digit| digit.to_digit(16))
    };
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
                continue;
            }
            (b'+', ..) if plus => out.push(b' '),
            _ => out.push(byte),
        }
        at += 1;
    }
    out
}

/// Encodes all bytes except unreserved ones (RFC 3986 2.3) and, in paths, slashes.
fn encode(bytes: &[u8], is_path: bool, out: &mut String) {
    for &b in bytes {
        match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(b));
            }
            b'/' if is_path => out.push('/'),
            _ => {
                out.push('%');
                out.push_str(&hexadecimal(&[b]).to_ascii_uppercase());
            }
        }
    }
}

/// Returns bytes as lower-case hexadecimal digits.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from_digit(u32::from(n), 16).unwrap_or('0');
    let digits = bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]);
    digits.collect()
}
