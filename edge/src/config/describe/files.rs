//! Describes folders of static files.

use super::list::list;
use crate::config::value::show_size;
use crate::files::Options;

/// Returns one line about the folder.
pub fn describe(options: &Options) -> String {
    let mut text = format!(
        "files in {}, {} of memory",
        options.root.display(),
        show_size(options.memory)
    );
    if !options.strip_prefix.is_empty() {
        text += &format!(", without the prefix {}", options.strip_prefix);
    }
    if !options.try_files.is_empty() {
        text += &format!(", else {}", list(&options.try_files));
    }
    if options.precompressed {
        text += ", precompressed if there is such a file";
    }
    text
}
