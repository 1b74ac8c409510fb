//! Describes folders of static files.

use crate::config::value::show_size;
use crate::files::Options;

/// Returns one line about the folder.
pub fn describe(options: &Options) -> String {
    format!(
        "files in {}, {} of memory",
        options.root.display(),
        show_size(options.memory)
    )
}
