//! The options of all experiments that start servers.

use std::env;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::output::print;

/// Options of all experiments that start servers.
#[derive(Debug, Args)]
pub struct Common {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// The build of Sluice to test [default: this one]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

impl Common {
    /// Returns the build of Sluice to test.
    pub fn program(&self) -> anyhow::Result<PathBuf> {
        match &self.program {
            Some(program) => Ok(program.clone()),
            None => env::current_exe().context("the path of this program"),
        }
    }

    /// Prints a report as JSON or its table.
    pub fn print(&self, report: &impl Serialize, table: &str) -> anyhow::Result<()> {
        print(self.json, report, table)
    }
}
