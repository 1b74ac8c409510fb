//! `sluice man`: manual pages.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::output::{misused, say};
use crate::sys::disk;

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Command whose page is printed, as in purge or `lab storm` [default: sluice itself]
    #[arg(value_name = "COMMAND", conflicts_with = "folder")]
    command: Vec<String>,
    /// Write the pages of all commands into this folder, which is created if necessary
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Prints one page, or writes all pages. `program` is the parser of the command line.
pub fn run(args: &ManArgs, program: Command) -> anyhow::Result<()> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let Some(folder) = &args.folder else {
        return say(&page(named(&program, &args.command)?)?);
    };
    disk::make_folder(folder).with_context(|| folder.display().to_string())?;
    write_all(&program, folder)
}

/// Returns the command to which these names lead.
fn named<'a>(program: &'a Command, names: &[String]) -> anyhow::Result<&'a Command> {
    names.iter().try_fold(program, |command, name| {
        command.find_subcommand(name).ok_or_else(|| {
            let known = command.get_subcommands().filter(|one| !one.is_hide_set());
            let known: Vec<&str> = known.map(Command::get_name).collect();
            misused(
                names.join(" "),
                format!("there is no command `{name}`"),
                format!("the commands are {}", known.join(", ")),
            )
        })
    })
}

/// Writes the pages of a command and of all its subcommands.
fn write_all(command: &Command, folder: &Path) -> anyhow::Result<()> {
    let file = folder.join(Man::new(command.clone()).get_filename());
    disk::write_text(&file, &page(command)?).with_context(|| file.display().to_string())?;
    let mut visible = command.get_subcommands().filter(|one| !one.is_hide_set());
    visible.try_for_each(|one| write_all(one, folder))
}

/// Returns the manual page of a command. Unlike the library's own page, it keeps the lines of notes and examples.
fn page(command: &Command) -> anyhow::Result<String> {
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(notes) = command.get_after_help() {
        lines("NOTES", &notes.to_string()).to_writer(&mut page)?;
    }
    Ok(String::from_utf8(page)?)
}

/// Returns a section whose lines stay as they are.
fn lines(title: &str, text: &str) -> Roff {
    let mut section = Roff::new();
    section.control("SH", [title]).control("nf", []);
    for line in text.lines() {
        section.text([roman(line)]);
    }
    section.control("fi", []);
    section
}
