//! Times as signatures have them.

/// A time of day in UTC.
pub(super) struct Time {
    /// Days since 1970.
    pub(super) days: u64,
    seconds: u64,
}

impl Time {
    pub(super) fn of(unix_s: u64) -> Time {
        Time {
            days: unix_s / 86_400,
            seconds: unix_s % 86_400,
        }
    }

    /// Returns the day as `20130524`.
    pub(super) fn day(&self) -> String {
        // The civil calendar, in eras of 400 years that begin on 1 March, 719,468 days before 1970.
        let days = self.days + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let months = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * months + 2) / 5 + 1;
        let month = if months < 10 { months + 3 } else { months - 9 };
        let year = 400 * era + year_of_era + u64::from(month <= 2);
        format!("{year:04}{month:02}{day:02}")
    }

    /// Returns the time as `20130524T000000Z`.
    pub(super) fn full(&self) -> String {
        let (hours, rest) = (self.seconds / 3600, self.seconds % 3600);
        format!("{}T{hours:02}{:02}{:02}Z", self.day(), rest / 60, rest % 60)
    }
}
