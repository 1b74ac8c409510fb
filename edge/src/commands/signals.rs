//! SIGINT, SIGTERM and SIGHUP in commands that end in order.

use std::future::pending;
use std::time::Duration;
use std::{process, thread};

use rustix::process::Signal as Number;
use sluice_lab::process::ignores;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::sys::Clock;

/// Exit status after a second signal: that of a program which SIGINT ended.
pub(super) const INTERRUPTED: i32 = 130;

/// Time after the first signal in which further ones are ignored, so that the lab can end its servers and remove its
/// folders.
pub(super) const CLEANING_GRACE: Duration = Duration::from_secs(3);

/// Calls a function at the first SIGINT, SIGTERM or SIGHUP. A second signal after the function's return ends the
/// process, unless it comes within `grace` of the first one: a terminal that is closed sends SIGHUP twice, from the
/// kernel and from the shell, and impatient users press Ctrl-C twice. SIGHUP stays ignored if it was, as in programs that
/// `nohup` starts.
pub(super) fn at_first_signal(
    grace: Duration,
    end: impl Fn() + Send + 'static,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let context = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = match ignores(process::id(), Number::HUP) {
        true => None,
        false => Some(signal(SignalKind::hangup())?),
    };
    drop(context);
    let waiting = thread::Builder::new().name("signals".to_owned());
    waiting.spawn(move || {
        let mut wait = || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    () = received(&mut hangup) => {}
                }
            });
        };
        wait();
        let clock = Clock::system();
        let first_us = clock.monotonic_us();
        end();
        loop {
            wait();
            let since_us = clock.monotonic_us().saturating_sub(first_us);
            if Duration::from_micros(since_us) >= grace {
                process::exit(INTERRUPTED);
            }
        }
    })?;
    Ok(())
}

/// Waits for a signal; for ever if there is none.
async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => pending().await,
    }
}
