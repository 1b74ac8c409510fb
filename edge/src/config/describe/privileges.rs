//! Describes user and sandbox.

use crate::config::plan::Plan;
use crate::config::reach::reach;
use crate::config::value::Sandbox;
use crate::sys::sandbox::Reach;

/// Returns a line about user and sandbox, or `None` if neither is set.
pub fn describe(plan: &Plan) -> Option<String> {
    let user = plan.privileges.user.as_ref();
    let user = user.map(|user| format!("as user {user}"));
    let sandboxed = match plan.privileges.sandbox {
        Sandbox::No => None,
        Sandbox::Auto => Some("sandboxed, if the kernel supports it"),
        Sandbox::Yes => Some("sandboxed"),
    };
    let sandboxed = sandboxed.map(|how| {
        let paths = |wanted: fn(&Reach) -> bool| {
            let its = reach(plan).into_iter().filter(|a| wanted(&a.reach));
            let its: Vec<String> = its.map(|a| a.path.display().to_string()).collect();
            match its.is_empty() {
                true => "nothing".to_owned(),
                false => its.join(", "),
            }
        };
        format!(
            "{how}: reads {} and its configuration, writes {}",
            paths(|reach| *reach == Reach::Read),
            paths(|reach| *reach != Reach::Read)
        )
    });
    match (user, sandboxed) {
        (None, None) => None,
        (Some(one), None) | (None, Some(one)) => Some(one),
        (Some(user), Some(sandboxed)) => Some(format!("{user}, {sandboxed}")),
    }
}
