//! The terminal of `sluice top`: switches it to a screen of its own, and back however the command ends.

use std::io::{self, BufWriter, Stdout, Write};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::model::Action;

/// Size of the buffer in which a frame is collected before it is written.
const FRAME: usize = 64 << 10;
/// Most events that are handled before the next frame.
const EVENTS_MAX: usize = 100;
/// Exit status after the terminal is gone: that of a program which SIGHUP ended.
const HANGUP_STATUS: i32 = 128 + SIGHUP;

/// The terminal while it has a screen of its own. Dropping it restores the terminal.
pub struct Screen {
    /// The terminal to draw on.
    pub terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    ended: Arc<AtomicBool>,
}

/// An event at the terminal.
pub enum Happened {
    /// Commands of the user; none if only the size changed, or nothing happened.
    Actions(Vec<Action>),
    /// A signal ends the command.
    Ended,
}

impl Screen {
    /// Takes the terminal over. A panic or a signal restores it.
    ///
    /// # Errors
    ///
    /// There is no terminal, or it can't be controlled.
    pub fn open() -> io::Result<Screen> {
        let ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, ended.clone())?;
        }
        let earlier = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            earlier(info);
        }));
        watch_for_hangup()?;
        enable_raw_mode()?;
        let opened = Screen::enter(ended);
        if opened.is_err() {
            restore();
        }
        opened
    }

    fn enter(ended: Arc<AtomicBool>) -> io::Result<Screen> {
        // `Terminal::clear` would ask for the cursor's position, which not every terminal reports.
        execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(FRAME, io::stdout()));
        let terminal = Terminal::new(backend)?;
        Ok(Screen { terminal, ended })
    }

    /// Waits at most this long for events, and returns them.
    ///
    /// # Errors
    ///
    /// The terminal is gone.
    pub fn wait(&self, timeout: Duration) -> io::Result<Happened> {
        let mut actions = Vec::new();
        let mut timeout = timeout;
        for _ in 0..EVENTS_MAX {
            let is_there = match event::poll(timeout) {
                // A signal came, which is seen below.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => false,
                polled => polled?,
            };
            if !is_there {
                break;
            }
            if let Event::Key(key) = event::read()? {
                actions.extend(action(key));
            }
            timeout = Duration::ZERO;
        }
        Ok(match self.ended.load(Ordering::Relaxed) {
            true => Happened::Ended,
            false => Happened::Actions(actions),
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Ends the command when its terminal is gone. There is no signal then if the command belongs to another session, and the
/// library would read the closed terminal without end.
fn watch_for_hangup() -> io::Result<()> {
    let watcher = thread::Builder::new().name("hangup".to_owned());
    watcher.spawn(|| {
        let input = io::stdin();
        let mut watched = [PollFd::new(&input, PollFlags::empty())];
        loop {
            match poll(&mut watched, None) {
                Err(Errno::INTR) => {}
                Ok(_) if watched[0].revents().contains(PollFlags::HUP) => {
                    std::process::exit(HANGUP_STATUS)
                }
                // Input that can't be watched, as from a file, has no hangup.
                _ => return,
            }
        }
    })?;
    Ok(())
}

/// Gives the terminal back. A terminal that is gone needs nothing.
fn restore() {
    let mut out = io::stdout();
    let _ = execute!(out, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    let _ = out.flush();
}

/// Returns the command of a key.
fn action(key: KeyEvent) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if with_control => Action::Quit,
        KeyCode::Char(_) if with_control => return None,
        KeyCode::Char('q' | 'Q') => Action::Quit,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => Action::Help,
        KeyCode::Char('r' | 'R') => Action::Reverse,
        KeyCode::Char('t' | 'T') => Action::Span,
        KeyCode::Char('<' | ',') | KeyCode::Left => Action::PreviousColumn,
        KeyCode::Char('>' | '.') | KeyCode::Right => Action::NextColumn,
        KeyCode::Char('k') | KeyCode::Up => Action::Up,
        KeyCode::Char('j') | KeyCode::Down => Action::Down,
        KeyCode::Char('g') | KeyCode::Home => Action::First,
        KeyCode::Char('G') | KeyCode::End => Action::Last,
        KeyCode::Char(digit @ '1'..='9') => Action::Pane(digit as usize - '1' as usize),
        KeyCode::Esc => Action::Back,
        KeyCode::Tab => Action::NextPane,
        KeyCode::BackTab => Action::PreviousPane,
        KeyCode::PageUp => Action::PageUp,
        KeyCode::PageDown => Action::PageDown,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::process::{Command, Stdio};

    use rustix::fs::{Mode, OFlags, open};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

    use super::*;

    /// Environment variable with which the test below panics in a terminal.
    const PANIC: &str = "SLUICE_TEST_PANIC";

    // The test runs itself in a pseudo-terminal, since a hook for panics and a terminal belong to a whole process.
    #[test]
    fn a_panic_gives_the_terminal_back_and_is_shown_after_that() {
        const NAME: &str =
            "commands::top::screen::tests::a_panic_gives_the_terminal_back_and_is_shown_after_that";
        if std::env::var_os(PANIC).is_some() {
            let _screen = Screen::open().expect("a terminal");
            panic!("as intended");
        }
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let controller = openpt(flags).expect("a pseudo-terminal");
        grantpt(&controller)
            .and_then(|()| unlockpt(&controller))
            .expect("its other side");
        let path = ptsname(&controller, Vec::new()).expect("its name");
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let user = open(&path, flags, Mode::empty()).expect("its other side");
        let size = Winsize {
            ws_col: 80,
            ws_row: 24,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&user, size).expect("a size");
        let side = || Stdio::from(user.try_clone().expect("a descriptor"));
        let ended = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", NAME, "--nocapture"])
            .env(PANIC, "1")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .status()
            .expect("the test starts");
        assert!(!ended.success());
        let modes = tcgetattr(&user).expect("its settings").local_modes;
        assert!(
            modes.contains(LocalModes::ICANON | LocalModes::ECHO),
            "{modes:?}"
        );
        drop(user);
        let mut seen = Vec::new();
        // Reading fails at the end of a terminal.
        let _ = File::from(controller).read_to_end(&mut seen);
        let seen = String::from_utf8_lossy(&seen);
        let at = |text: &str| {
            seen.find(text)
                .unwrap_or_else(|| panic!("{text:?} is not in {seen:?}"))
        };
        assert!(at("\x1b[?1049h") < at("\x1b[?1049l"), "{seen:?}");
        assert!(at("\x1b[?1049l") < at("as intended"), "{seen:?}");
    }

    #[test]
    fn keys_are_commands() {
        let of = |code| action(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(of(KeyCode::Char('q')), Some(Action::Quit));
        assert_eq!(of(KeyCode::Char('?')), Some(Action::Help));
        assert_eq!(of(KeyCode::Char('3')), Some(Action::Pane(2)));
        assert_eq!(of(KeyCode::Char('x')), None);
        let with_control = |c| action(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL));
        assert_eq!(with_control('c'), Some(Action::Quit));
        assert_eq!(with_control('q'), None);
    }
}
