//! Plans the history of numbers (`history` in `[admin]`).

use crate::config::checks::Checks;
use crate::config::file::AdminFile;
use crate::config::plan::HistoryPlan;
use crate::config::report::Problem;
use crate::config::value::SwitchOrFolder;

/// Returns whether there is a history, and where it is saved. Without an admin API nothing would read it.
pub fn plan(file: &AdminFile, checks: &mut Checks) -> HistoryPlan {
    let written = file.history.as_ref().map(|typed| typed.get_ref());
    let history = match written {
        None | Some(SwitchOrFolder::Switch(true)) => HistoryPlan::Memory,
        Some(SwitchOrFolder::Switch(false)) => HistoryPlan::Off,
        Some(SwitchOrFolder::Folder(path)) => HistoryPlan::Folder(path.into()),
    };
    let address = file.address.as_ref();
    if address.is_none_or(|address| address.get_ref().on().is_some()) {
        return history;
    }
    if let Some(typed) = file.history.as_ref().filter(|_| history.is_on()) {
        checks.push(
            Problem::warning("`history` does nothing here")
                .at(typed.span())
                .label("only the admin API shows the history, and it is off")
                .help("leave it out, or give [admin] an address"),
        );
    }
    HistoryPlan::Off
}
