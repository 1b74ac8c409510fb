//! Formats dates for HTTP headers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns a date in January 2026 for a version of a resource. Consecutive versions have different dates.
pub(super) fn version_date(version: u32) -> String {
    const FIRST_OF_2026: u64 = 1_767_225_600;
    let days = u64::from(version % 31);
    http_date(UNIX_EPOCH + Duration::from_secs(FIRST_OF_2026 + days * 86_400))
}

/// Formats a time as IMF-fixdate (RFC 9110 section 5.6.7).
pub(super) fn http_date(time: SystemTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The calendar is computed in years that begin on 1 March, so that a leap day is the last day of its year.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    format!(
        "{}, {day:02} {} {year} {:02}:{:02}:{:02} GMT",
        DAYS[(days % 7) as usize],
        MONTHS[month as usize],
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_formatted_by_the_calendar() {
        let at = |seconds| http_date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(version_date(0), "Thu, 01 Jan 2026 00:00:00 GMT");
    }
}
