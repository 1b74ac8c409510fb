//! Checks the files with tokens of the admin API, at the start and in `sluice check`.

use super::account::Account;
use super::checks::Checks;
use super::file::File;
use super::planner::{PAGE_BYTES_MAX, token_keys};
use super::report::Problem;
use crate::sys::disk::{self, access};

/// Reports files that the account can't read, and warns about those that other users can read.
pub fn check(file: &File, account: Account<'_>, checks: &mut Checks) {
    for (_, typed) in token_keys(&file.admin) {
        let (path, at) = (typed.get_ref(), typed.span());
        if let Err(error) = disk::read_text(path, PAGE_BYTES_MAX) {
            let what = "the tokens of the admin API can't be read";
            let problem = account.unusable(what, path, &error, at.clone());
            checks.problems.extend(problem);
        }
        if access::is_readable_by_others(path).unwrap_or(false) {
            checks.push(
                Problem::warning("other users can read the tokens of the admin API")
                    .at(at)
                    .label(format!(
                        "{} is readable for its group or everybody",
                        path.display()
                    ))
                    .help(format!("write `chmod 600 {}`", path.display())),
            );
        }
    }
}
