//! `sluice top`: a live view of a running Sluice in the terminal.

mod charts;
mod facts;
mod format;
mod lists;
mod model;
mod panes;
mod poll;
mod reading;
mod screen;
mod series;
mod snapshot;
mod tables;
mod text;
mod theme;
mod view;

use std::env;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use ratatui::crossterm::style::force_color_output;

use super::admin::AdminArgs;
use super::output::{colours, failed, json, say};
use crate::sys::Clock;
use model::{Answer, Model};
use poll::{PERIOD, Poll};
use screen::{Happened, Screen};
use theme::Theme;

/// Longest wait for a key before the screen is drawn again.
const TICK: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub struct TopArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Print one snapshot as text, after a second in which rates are measured. Needs no terminal
    #[arg(long)]
    once: bool,
    /// Print one snapshot as JSON. Needs no terminal
    #[arg(long)]
    json: bool,
}

pub fn run(args: &TopArgs) -> anyhow::Result<()> {
    let url_order = Arc::new(AtomicUsize::new(0));
    let mut poll = Poll::new(args.admin.clone(), url_order.clone());
    if args.once || args.json {
        return print(args, &mut poll);
    }
    is_usable(io::stdout().is_terminal())?;
    let in_colour = colours(true);
    // The library would otherwise drop colours with NO_COLOR.
    force_color_output(in_colour);
    let clock = Clock::system();
    // The first answer comes before the screen is taken over, so that an error is shown like those of other commands.
    let first = poll.read()?;
    let address = args.admin.address()?;
    let mut model = Model::new(address, clock.monotonic_us(), first);
    let answers = poll.spawn()?;
    let mut screen = Screen::open().context("the terminal can't be used")?;
    let theme = Theme { in_colour };
    show(&mut screen, &mut model, &answers, &url_order, &clock, theme)
}

/// Checks that standard output is a terminal that can be controlled.
fn is_usable(is_terminal: bool) -> anyhow::Result<()> {
    let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    let why = match (is_terminal, is_dumb) {
        (true, false) => return Ok(()),
        (false, _) => "standard output is not a terminal",
        (true, true) => "TERM=dumb is a terminal without control sequences",
    };
    let help = "to print one snapshot without a terminal: sluice top --once, or --json";
    Err(failed(why, help))
}

/// Prints one snapshot.
fn print(args: &TopArgs, poll: &mut Poll) -> anyhow::Result<()> {
    let clock = Clock::system();
    let first = poll.read()?;
    let mut model = Model::new(args.admin.address()?, clock.monotonic_us(), first);
    thread::sleep(PERIOD);
    let second = poll.read()?;
    model.answered(clock.monotonic_us(), second);
    say(&match args.json {
        true => json(&serde_json::to_value(&model.snapshot)?),
        false => text::text(&model),
    })
}

/// Shows the live view until the user or a signal ends it.
fn show(
    screen: &mut Screen,
    model: &mut Model,
    answers: &Receiver<Result<Answer, String>>,
    url_order: &AtomicUsize,
    clock: &Clock,
    theme: Theme,
) -> anyhow::Result<()> {
    while !model.is_done {
        let now_us = clock.monotonic_us();
        let draw = |frame: &mut ratatui::Frame<'_>| view::draw(frame, model, now_us, theme);
        screen.terminal.draw(draw)?;
        match screen.wait(TICK)? {
            Happened::Ended => break,
            Happened::Actions(actions) => actions.into_iter().for_each(|action| model.act(action)),
        }
        url_order.store(model.url_order(), Ordering::Relaxed);
        let now_us = clock.monotonic_us();
        match answers.try_recv() {
            Ok(Ok(answer)) => model.answered(now_us, answer),
            Ok(Err(why)) => model.failed(now_us, why),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Err(failed(
                    "the thread that reads the admin API ended",
                    "start it again",
                ));
            }
        }
    }
    Ok(())
}
