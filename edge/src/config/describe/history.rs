//! Describes the history of numbers and its memory.

use crate::config::plan::{HistoryMemory, HistoryPlan, Plan};
use crate::config::value::{show_count, show_size};

const MIB: u64 = 1 << 20;

/// Returns a line about the history; `None` if there is none.
pub fn describe(plan: &Plan) -> Option<String> {
    let place = match &plan.history {
        HistoryPlan::Off => return None,
        HistoryPlan::Memory => "only in memory".to_owned(),
        HistoryPlan::Folder(path) => format!("saved in {}", path.display()),
    };
    let HistoryMemory {
        members,
        per_worker,
        routes_without,
    } = plan.history_memory();
    let mut text = format!(
        "history of a week, {place}: up to {} of memory, and {} for each worker",
        show_size(members.next_multiple_of(MIB)),
        show_size(per_worker.next_multiple_of(MIB)),
    );
    if routes_without > 0 {
        text += &format!(
            "; no history for {}, since memory for it is limited",
            show_count(routes_without, "route")
        );
    }
    Some(text)
}
