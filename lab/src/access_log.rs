//! Parsers of access logs: the Common and Combined Log Formats, and lines of JSON as Sluice writes them.

use serde::{Deserialize, Serialize};

/// A request in an access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged<'a> {
    /// The requested target.
    pub target: &'a str,
    /// Length of the response's body in bytes; 0 if the log has none.
    pub bytes: u64,
    /// The time as logged, such as `10/Oct/2000:13:55:36 -0700`; empty if the line has none.
    pub time: &'a str,
}

/// A line in the Common or Combined Log Format.
struct Line<'a> {
    method: &'a str,
    status: &'a str,
    request: Logged<'a>,
}

fn split(line: &str) -> Option<Line<'_>> {
    let (before, rest) = line.split_once('"')?;
    let (request, rest) = rest.split_once('"')?;
    let mut words = request.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let mut words = rest.split_ascii_whitespace();
    let (status, bytes) = (words.next()?, words.next()?);
    let time = before
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    let request = Logged {
        target,
        bytes: bytes.parse().unwrap_or(0),
        time: time.map_or("", |(time, _)| time),
    };
    (!target.is_empty()).then_some(Line {
        method,
        status,
        request,
    })
}

/// Parses a line in the Common or Combined Log Format. Returns `None` for lines that no cache answers: other methods
/// than GET and HEAD, and other statuses than 200, 206 and 304.
pub fn parse(line: &str) -> Option<Logged<'_>> {
    let line = split(line)?;
    is_cached(line.method, line.status).then_some(line.request)
}

fn is_cached(method: &str, status: &str) -> bool {
    ["GET", "HEAD"].contains(&method) && ["200", "206", "304"].contains(&status)
}

/// A GET request of an access log, with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedRequest {
    /// The requested target.
    pub target: String,
    /// Time of the request in seconds since 1970.
    pub time: f64,
    /// Whether the log has only whole seconds, so that the fraction of the time is unknown.
    pub is_whole_second: bool,
    /// First and last byte of the requested range; without a last byte, the range ends with the resource.
    pub range: Option<(u64, Option<u64>)>,
}

/// The values of a line of JSON that a replay needs.
#[derive(Deserialize)]
struct JsonLine<'a> {
    time: &'a str,
    method: &'a str,
    #[serde(borrow)]
    target: std::borrow::Cow<'a, str>,
    status: u16,
    range: Option<&'a str>,
}

/// The reason for which a line of a log can't be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unusable {
    /// The line has neither of the formats.
    Format,
    /// The method is not GET, or the status is not 200, 206 or 304.
    Request,
    /// The target can't be in a request line, or does not begin with `/`.
    Target,
    /// The time can't be read, or is not within the years 1970 to 9999.
    Time,
    /// The range is not one range with a first byte, or ends before it begins.
    Range,
}

/// Parses a line of a log in the combined format or in JSON.
///
/// Errors: the reason for which the request can't be repeated.
pub fn parse_timed(line: &str) -> Result<TimedRequest, Unusable> {
    if !line.starts_with('{') {
        let Line {
            method,
            status,
            request,
        } = split(line).ok_or(Unusable::Format)?;
        check_request(method, status)?;
        return Ok(TimedRequest {
            target: target(request.target)?,
            time: time(seconds_of_common(request.time))?,
            is_whole_second: true,
            range: None,
        });
    }
    let line: JsonLine<'_> = serde_json::from_str(line).map_err(|_| Unusable::Format)?;
    check_request(line.method, &line.status.to_string())?;
    let range = line
        .range
        .map(|range| byte_range(range).ok_or(Unusable::Range));
    Ok(TimedRequest {
        target: target(&line.target)?,
        time: time(seconds_of_iso(line.time))?,
        is_whole_second: false,
        range: range.transpose()?,
    })
}

fn check_request(method: &str, status: &str) -> Result<(), Unusable> {
    match method == "GET" && is_cached(method, status) {
        true => Ok(()),
        false => Err(Unusable::Request),
    }
}

/// Returns the time if it is within the years 1970 to 9999.
fn time(seconds: Option<f64>) -> Result<f64, Unusable> {
    seconds
        .filter(|seconds| (0.0..LATEST).contains(seconds))
        .ok_or(Unusable::Time)
}

/// Returns the target if a request line can contain it.
fn target(target: &str) -> Result<String, Unusable> {
    let is_valid = target.starts_with('/') && target.bytes().all(|b| b.is_ascii_graphic());
    match is_valid {
        true => Ok(target.to_owned()),
        false => Err(Unusable::Target),
    }
}

/// Parses `bytes=FIRST-LAST` or `bytes=FIRST-`.
fn byte_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let last = match last {
        "" => None,
        last => Some(last.parse().ok()?),
    };
    let first = first.parse().ok()?;
    last.is_none_or(|last| last >= first)
        .then_some((first, last))
}

/// Seconds from 1970 to the year 10000.
const LATEST: f64 = 253_402_300_800.0;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Returns the seconds since 1970 of a time such as `10/Oct/2000:13:55:36 -0700`.
fn seconds_of_common(text: &str) -> Option<f64> {
    let (date, zone) = text.split_once(' ')?;
    let mut parts = date.split(['/', ':']);
    let day: i64 = parts.next()?.parse().ok()?;
    let name = parts.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as i64 + 1;
    let year: i64 = parts.next()?.parse().ok()?;
    let clock = seconds_of_clock(&mut parts)?;
    let (sign, digits) = match zone.split_at_checked(1)? {
        ("+", digits) => (1.0, digits),
        ("-", digits) => (-1.0, digits),
        _ => return None,
    };
    let (hours, minutes) = digits.split_at_checked(2)?;
    let (hours, minutes): (u8, u8) = (hours.parse().ok()?, minutes.parse().ok()?);
    let east = f64::from(hours) * 3600.0 + f64::from(minutes) * 60.0;
    Some(days(year, month, day)? * 86_400.0 + clock - sign * east)
}

/// Returns the seconds since 1970 of a time such as `2000-10-10T13:55:36.042Z`.
fn seconds_of_iso(text: &str) -> Option<f64> {
    let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    Some(days(year, month, day)? * 86_400.0 + seconds_of_clock(&mut clock.split(':'))?)
}

fn seconds_of_clock<'a>(parts: &mut impl Iterator<Item = &'a str>) -> Option<f64> {
    let mut next = |end: f64| {
        let number: f64 = parts.next()?.parse().ok()?;
        (0.0..end).contains(&number).then_some(number)
    };
    // A leap second is second 60.
    Some(next(24.0)? * 3600.0 + next(60.0)? * 60.0 + next(61.0)?)
}

/// Returns the number of days from 1970 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> Option<f64> {
    let is_valid = (1970..10_000).contains(&year) && (1..=12).contains(&month);
    if !is_valid || !(1..=31).contains(&day) {
        return None;
    }
    // The year begins in March, so that a leap day is its last day.
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        month => (year, month - 3),
    };
    let leaps = year / 4 - year / 100 + year / 400;
    Some((365 * year + leaps + (153 * month + 2) / 5 + day - 1 - 719_468) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        r#"127.0.0.1 - bob [10/Oct/2000:13:55:36 -0700] "GET /a?b HTTP/1.0" 200 2326 "-" "x""#;

    #[test]
    fn lines_of_cacheable_requests_are_parsed() {
        let expected = Logged {
            target: "/a?b",
            bytes: 2326,
            time: "10/Oct/2000:13:55:36 -0700",
        };
        assert_eq!(parse(LINE), Some(expected));
        assert_eq!(parse(&LINE.replace("2326", "-")).expect("cached").bytes, 0);
        assert!(parse(&LINE.replace("GET", "HEAD")).is_some());
        for other in [
            LINE.replace("GET", "POST"),
            LINE.replace(" 200 ", " 404 "),
            LINE.replace("GET /a?b HTTP/1.0", ""),
            "garbage \" in \" a".to_owned(),
            String::new(),
        ] {
            assert_eq!(parse(&other), None, "{other}");
        }
    }

    #[test]
    fn combined_lines_and_json_have_the_same_time() {
        let combined = parse_timed(LINE).expect("a request");
        assert_eq!(combined.time, 971_211_336.0);
        assert!(combined.is_whole_second);
        let json = r#"{"time":"2000-10-10T20:55:36.250Z","method":"GET","host":"a","target":"/a?b","status":206,"range":"bytes=5-9"}"#;
        let expected = TimedRequest {
            target: "/a?b".to_owned(),
            time: 971_211_336.25,
            is_whole_second: false,
            range: Some((5, Some(9))),
        };
        assert_eq!(parse_timed(json), Ok(expected));
        let open = parse_timed(&json.replace("5-9", "5-")).expect("a request");
        assert_eq!(open.range, Some((5, None)));
    }

    #[test]
    fn requests_that_cannot_be_repeated_are_left_out() {
        let json = r#"{"time":"2000-10-10T20:55:36Z","method":"GET","target":"/a","status":200}"#;
        assert!(parse_timed(json).is_ok());
        for (wrong, why) in [
            (LINE.replace("GET", "HEAD"), Unusable::Request),
            (LINE.replace("/a?b", "http://a/"), Unusable::Target),
            (LINE.replace("Oct", "October"), Unusable::Time),
            (LINE.replace("2000", "1969"), Unusable::Time),
            (LINE.replace("2000", "10000"), Unusable::Time),
            (LINE.replace("13:55:36", "1e300:55:36"), Unusable::Time),
            (LINE.replace("13:55:36", "-1:55:36"), Unusable::Time),
            (LINE.replace("-0700", "+00nan"), Unusable::Time),
            (LINE.replace("-0700", "+00inf"), Unusable::Time),
            (
                LINE.replace("10/Oct/2000:13:55:36 -0700", "01/Jan/1970:00:00:00 +0100"),
                Unusable::Time,
            ),
            (LINE.replace('"', "'"), Unusable::Format),
            (json.replace("GET", "POST"), Unusable::Request),
            (json.replace("200}", "404}"), Unusable::Request),
            (
                json.replace("200}", "200,\"range\":\"bytes=-5\"}"),
                Unusable::Range,
            ),
            (
                json.replace("200}", "200,\"range\":\"bytes=5-2\"}"),
                Unusable::Range,
            ),
            (json.replace("-10T", "-99T"), Unusable::Time),
            (json.replace("\"/a\"", "\"/a b\""), Unusable::Target),
            ("{".to_owned(), Unusable::Format),
            (String::new(), Unusable::Format),
        ] {
            assert_eq!(parse_timed(&wrong), Err(why), "{wrong}");
        }
    }
}
