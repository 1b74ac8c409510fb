//! Plans `sticky`: the cookie by which clients stick to a server.

use std::time::Duration;

use crate::config::checks::Checks;
use crate::config::file::StickyFile;
use crate::config::report::Problem;
use crate::config::value::{Key, OrFalse, Table, YEAR};
use crate::http::fields::is_token;
use crate::upstream::Sticky;

const COOKIE_MAX: usize = 64;
const EXAMPLE: &str = "write { cookie = \"server\" }";

/// Returns the cookie; `None` if clients do not stick to servers.
pub fn plan(key: &Key<OrFalse<Table<StickyFile>>>, checks: &mut Checks) -> Option<Sticky> {
    let typed = key.as_ref()?;
    let Table(file) = typed.get_ref().on()?;
    let Some(cookie) = &file.cookie else {
        let problem = Problem::error("`sticky` without the name of a cookie").at(typed.span());
        checks.push(problem.help(EXAMPLE));
        return None;
    };
    let name = cookie.get_ref();
    if !is_token(name.as_bytes()) || name.len() > COOKIE_MAX {
        let problem = Problem::error("this is not the name of a cookie").at(cookie.span());
        checks.push(problem.help(EXAMPLE));
        return None;
    }
    let second = Duration::from_secs(1);
    let max_age = file.max_age.as_ref();
    Some(Sticky {
        cookie: name.clone(),
        max_age: max_age.map(|_| checks.within("max_age", &file.max_age, second, second..=YEAR)),
    })
}
