//! A switch that can also name a folder.

use serde::Deserialize;
use serde::de::Deserializer;

use super::or_false::{is_old_off, written_false};
use super::scalar::{self, Misfit, Scalar};
use super::shape::{SWITCH_OR_FOLDER, SWITCH_OR_FOLDER_ADVICE};

/// `true`, `false`, or the path of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchOrFolder {
    /// `true` or `false` was written.
    Switch(bool),
    /// A path was written.
    Folder(String),
}

impl<'de> Deserialize<'de> for SwitchOrFolder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SwitchOrFolder, D::Error> {
        scalar::read(deserializer, SWITCH_OR_FOLDER, |written| match written {
            Scalar::Switch(on) => Ok(SwitchOrFolder::Switch(on)),
            Scalar::Text("") => Err(Misfit::Value(format!(
                "an empty path names no folder\n{SWITCH_OR_FOLDER_ADVICE}"
            ))),
            Scalar::Text("true") => Err(Misfit::Value(format!(
                "`true` is in quotes, which would name a folder\n{SWITCH_OR_FOLDER_ADVICE}"
            ))),
            Scalar::Text(word) if is_old_off(word) => Err(Misfit::Value(written_false(word))),
            Scalar::Text(path) => Ok(SwitchOrFolder::Folder(path.to_owned())),
            Scalar::Number(_) => Err(Misfit::Type),
        })
    }
}
