//! Access logs for the simulation: the parser of the lab, and a generated log of a site with pages, images and crawlers.

use std::fmt::Write;

pub use sluice_lab::access_log::parse;

use super::super::generated_requests::{SplitMix, Zipf};

/// Number of requests after which a new page appears.
const REQUESTS_PER_PAGE: usize = 60;
/// Number of pages that exist at the beginning.
const OLD_PAGES: usize = 20_000;
/// Number of images and scripts that all pages share.
const SHARED: u32 = 3000;
/// Number of files in an archive, whose popularity does not change.
const ARCHIVED: u32 = 60_000;
/// Number of pages in a row that a crawler requests.
const CRAWLED: usize = 40;
const SECONDS_PER_DAY: usize = 86_400;

/// Generates lines of an access log. The kinds of requests are chosen by `random`.
pub struct Site {
    random: SplitMix,
    shared: Zipf,
    archived: Zipf,
    /// Popularity of pages by their age.
    recent: Zipf,
    /// Number of pages so far.
    pages: usize,
    /// The next page of a crawler, and the number of pages that it still requests.
    crawler: (usize, usize),
    requests: usize,
}

impl Site {
    /// Creates the site.
    pub fn new(seed: u64) -> Site {
        Site {
            random: SplitMix(seed),
            shared: Zipf::new(SHARED, 1.0),
            archived: Zipf::new(ARCHIVED, 0.8),
            recent: Zipf::new(OLD_PAGES as u32, 1.1),
            pages: OLD_PAGES,
            crawler: (0, 0),
            requests: 0,
        }
    }

    /// Writes the next line to `line`, which is cleared first.
    pub fn next(&mut self, line: &mut String) {
        self.requests += 1;
        if self.requests.is_multiple_of(REQUESTS_PER_PAGE) {
            self.pages += 1;
        }
        let (target, bytes) = self.target();
        let (method, status, bytes) = match (self.random.unit() * 100.0) as u32 {
            0..8 => ("GET", 304, 0),
            8..10 => ("GET", 404, 153),
            10 => ("POST", 200, 12),
            11 => ("HEAD", 200, 0),
            _ => ("GET", 200, bytes),
        };
        let second = self.requests / 20 % SECONDS_PER_DAY;
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let client = (self.random.unit() * 250.0) as u32 + 1;
        line.clear();
        // Writing to a string can't fail.
        let _ = write!(
            line,
            "203.0.113.{client} - - [27/Nov/2026:{hour:02}:{minute:02}:{second:02} +0000] \
             \"{method} {target} HTTP/1.1\" {status} {bytes} \"-\" \"Mozilla/5.0\""
        );
    }

    /// Chooses a target, and the length of its response in bytes.
    fn target(&mut self) -> (String, u64) {
        if let (page, left @ 1..) = self.crawler {
            self.crawler = (page + 1, left - 1);
            return (format!("/page/{page}"), size(page as u64, 9.5, 0.6));
        }
        let unit = self.random.unit();
        match (unit * 1000.0) as u32 {
            0..400 => {
                let n = self.shared.rank(self.random.unit());
                (
                    format!("/static/{n}.js"),
                    size(u64::from(n) ^ 1 << 40, 9.0, 1.2),
                )
            }
            400..700 => {
                let age = self.recent.rank(self.random.unit()) as usize;
                let page = self.pages.saturating_sub(age + 1);
                (format!("/page/{page}"), size(page as u64, 9.5, 0.6))
            }
            700..920 => {
                let n = self.archived.rank(self.random.unit());
                (
                    format!("/image/{n}.jpg"),
                    size(u64::from(n) ^ 1 << 41, 11.0, 1.0),
                )
            }
            920..999 => {
                let n = self.requests;
                (format!("/search?q={n}"), size(n as u64 ^ 1 << 42, 8.5, 0.4))
            }
            _ => {
                let page = (self.random.unit() * self.pages as f64) as usize;
                self.crawler = (page, CRAWLED);
                ("/robots.txt".to_owned(), 120)
            }
        }
    }
}

/// Returns the size of an object, always the same for the same number: log-normally distributed, with these parameters.
pub fn size(object: u64, mean: f64, deviation: f64) -> u64 {
    let mut random = SplitMix(object.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (u, v) = (random.unit().max(1e-12), random.unit());
    let normal = (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos();
    ((mean + deviation * normal).exp() as u64).clamp(64, 16 << 20)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_generated_log_can_be_parsed_and_repeats_targets() {
        let (mut site, mut line) = (Site::new(1), String::new());
        let mut targets = HashSet::new();
        let mut cached = 0;
        for _ in 0..10_000 {
            site.next(&mut line);
            if let Some(logged) = parse(&line) {
                cached += 1;
                targets.insert(logged.target.to_owned());
            }
        }
        assert!((9500..9900).contains(&cached), "{cached}");
        assert!((2000..6000).contains(&targets.len()), "{}", targets.len());
    }

    #[test]
    fn an_object_has_one_size() {
        assert_eq!(size(5, 9.0, 1.0), size(5, 9.0, 1.0));
        let mean = (0..1000).map(|n| size(n, 9.0, 0.5)).sum::<u64>() / 1000;
        assert!((8000..11_000).contains(&mean), "{mean}");
    }
}
