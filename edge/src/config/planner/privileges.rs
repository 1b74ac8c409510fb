//! Plans `user` and `sandbox` of `[server]`, by which the process drops privileges.

use crate::config::checks::Checks;
use crate::config::file::ServerSection;
use crate::config::plan::{Privileges, User};
use crate::config::report::Problem;
use crate::config::value::{Key, Sandbox};

/// Returns user and sandbox. If `user` is set, the sandbox is on by default where the kernel
/// supports it.
pub fn plan(file: &ServerSection, checks: &mut Checks) -> Privileges {
    let user = user(&file.user, checks);
    let usual = match user {
        Some(_) => Sandbox::Auto,
        None => Sandbox::No,
    };
    Privileges {
        sandbox: file
            .sandbox
            .as_ref()
            .map_or(usual, |typed| *typed.get_ref()),
        user,
    }
}

fn user(key: &Key<String>, checks: &mut Checks) -> Option<User> {
    let typed = key.as_ref()?;
    let (name, group) = match typed.get_ref().split_once(':') {
        Some((name, group)) => (name, Some(group)),
        None => (typed.get_ref().as_str(), None),
    };
    let is_name = |name: &str| {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"_-.$@".contains(&b);
        !name.is_empty() && name.len() <= 256 && name.bytes().all(fits)
    };
    if !is_name(name) || !group.is_none_or(is_name) {
        checks.push(
            Problem::error("`user` is not a user")
                .at(typed.span())
                .help("write \"www-data\", \"www-data:www-data\", or numbers, as in \"33:33\""),
        );
    }
    let is_number = |name: &str| name.bytes().all(|b| b.is_ascii_digit());
    if is_number(name) && group.is_none() {
        checks.push(
            Problem::error("a user's number without a group")
                .at(typed.span())
                .help("write both, as in \"33:33\": a number has no group by itself"),
        );
    }
    if matches!(name, "root" | "0") {
        checks.push(
            Problem::warning("`user` is root")
                .at(typed.span())
                .label("the process keeps all of root's rights")
                .help("choose a user without rights, such as \"www-data\""),
        );
    }
    Some(User {
        name: name.to_owned(),
        group: group.map(str::to_owned),
    })
}
