//! Describes fixed responses.

use crate::config::value::show_size;
use crate::edit::RespondOptions;

/// Returns one line about the response.
pub fn describe(options: &RespondOptions) -> String {
    match &options.content {
        None => format!("{} without content", options.status),
        Some(content) => format!(
            "{} with {} of {}",
            options.status,
            show_size(content.len() as u64),
            options.media_type
        ),
    }
}
