//! Checks the price of traffic in `[admin]`.

use toml::Spanned;

use crate::admin::Price;
use crate::config::checks::Checks;
use crate::config::file::AdminFile;
use crate::config::report::Problem;

/// The currency by default.
const CURRENCY: &str = "$";
/// Longest name of a currency, in characters.
const CURRENCY_CHARS_MAX: usize = 8;
/// Highest price of a gigabyte.
const PRICE_MAX: f64 = 1e6;

/// Returns the price of traffic.
pub fn plan(file: &AdminFile, checks: &mut Checks) -> Price {
    Price {
        per_gb: per_gb(file, checks),
        currency: currency(file, checks),
    }
}

fn per_gb(file: &AdminFile, checks: &mut Checks) -> f64 {
    let Some(typed) = &file.price_per_gb else {
        return 0.0;
    };
    let price = *typed.get_ref();
    if (0.0..=PRICE_MAX).contains(&price) {
        return price;
    }
    checks.push(
        Problem::error(format!("`price_per_gb` is a number from 0 to {PRICE_MAX}"))
            .at(typed.span())
            .help("write the price of a gigabyte from the origin, as in 0.05"),
    );
    0.0
}

fn currency(file: &AdminFile, checks: &mut Checks) -> String {
    let typed = file.price_currency.as_ref();
    let Some(text) = typed.map(Spanned::get_ref) else {
        return CURRENCY.to_owned();
    };
    let is_short = (1..=CURRENCY_CHARS_MAX).contains(&text.chars().count());
    if let Some(typed) = typed
        && (!is_short || text.chars().any(char::is_control))
    {
        checks.push(
            Problem::error(format!(
                "`price_currency` has 1 to {CURRENCY_CHARS_MAX} characters"
            ))
            .at(typed.span())
            .help("write a sign or a code, as in \"$\" or \"EUR\""),
        );
    }
    if let Some(typed) = typed
        && file.price_per_gb.is_none()
    {
        checks.push(
            Problem::warning("`price_currency` does nothing here")
                .at(typed.span())
                .label("no traffic has a price")
                .help("leave it out, or write `price_per_gb`"),
        );
    }
    text.clone()
}
