//! Tests of messages: the format of their lines, the limit of repetitions, and that no thread waits
//! for the writer.

use std::sync::mpsc;

use proptest::prelude::*;
use tracing_subscriber::prelude::*;

use super::*;

const LONG: Duration = Duration::from_secs(20);

/// A target that collects the text written to it.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).expect("UTF-8")
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn to_sink() -> (Messages, Sink, Clock) {
    let (sink, clock) = (Sink::default(), Clock::manual(971_186_136));
    let to = Box::new(sink.clone());
    let messages = Messages::on(to, MessageTarget::Stderr, false, clock.clone());
    (messages, sink, clock)
}

/// Runs a function whose messages are logged to `messages`.
fn logging_to(messages: &Messages, run: impl FnOnce()) {
    let subscriber = tracing_subscriber::registry().with(messages.clone());
    tracing::subscriber::with_default(subscriber, run);
}

#[test]
fn a_message_is_a_line_with_its_fields() {
    let (messages, sink, _) = to_sink();
    logging_to(&messages, || {
        tracing::warn!(
            volume = "disk1",
            size = 5,
            why = "no room",
            "a volume is out"
        );
    });
    assert_eq!(
        sink.text(),
        "2000-10-10T13:55:36.000Z  WARN a volume is out volume=disk1 size=5 why=\"no room\"\n"
    );
}

#[test]
fn a_report_keeps_its_lines_and_none_of_them_can_be_forged() {
    let (messages, sink, _) = to_sink();
    logging_to(&messages, || {
        let hostile = "x\n2000-10-10T13:55:36.000Z ERROR forged\r\u{1b}[2J\u{202e}";
        tracing::error!(name = hostile, "two lines:\n{hostile}");
    });
    assert_eq!(
        sink.text(),
        "2000-10-10T13:55:36.000Z ERROR two lines:\n    | x\n    | 2000-10-10T13:55:36.000Z ERROR \
         forged\\u{d}\\u{1b}[2J\\u{202e} \
         name=\"x\\n2000-10-10T13:55:36.000Z ERROR forged\\u{d}\\u{1b}[2J\\u{202e}\"\n"
    );
}

fn repeat(times: usize) {
    for n in 0..times {
        tracing::warn!("again {n}");
    }
}

#[test]
fn a_repeated_message_is_logged_ten_times_and_then_counted() {
    let (messages, sink, clock) = to_sink();
    logging_to(&messages, || {
        repeat(1244);
        tracing::info!("another place is not held back");
        clock.advance_us(9_999_999);
        assert_eq!(messages.summaries(false), Vec::<String>::new());
        clock.advance_us(1);
        let summaries = messages.summaries(false);
        assert_eq!(summaries.len(), 1);
        assert!(
            summaries[0].ends_with(" WARN and 1,234 more like it: again 1243\n"),
            "{summaries:?}"
        );
        repeat(1);
    });
    let text = sink.text();
    assert_eq!(text.matches(" WARN again ").count(), 11, "{text}");
    assert!(text.contains("another place"));
}

#[test]
fn a_rare_message_is_never_suppressed() {
    let (messages, sink, clock) = to_sink();
    logging_to(&messages, || {
        for _ in 0..30 {
            repeat(1);
            clock.advance_us(1_100_000);
        }
    });
    assert_eq!(sink.text().lines().count(), 30);
}

/// A target whose first write waits until the test lets it continue.
struct Gated(mpsc::Receiver<()>, Sink);

impl Write for Gated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Receiving also returns when the test drops its end, and the write then continues.
        let _ = self.0.recv();
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_that_hangs_blocks_no_thread() -> io::Result<()> {
    let (latch, latch_end) = mpsc::channel();
    let sink = Sink::default();
    let to = Box::new(Gated(latch_end, sink.clone()));
    let messages = Messages::on(to, MessageTarget::Stderr, false, Clock::manual(0));
    messages.start_thread()?;
    for n in 0..5 * QUEUE {
        messages.submit(format!("{n}\n"));
    }
    drop(latch);
    messages.finish(LONG);
    messages.submit("too late\n".to_owned());
    let text = sink.text();
    let (lost, logged): (Vec<&str>, Vec<&str>) = text
        .lines()
        .partition(|line| line.contains("messages lost: "));
    assert!(
        (QUEUE..=QUEUE + 2).contains(&logged.len()),
        "{}",
        logged.len()
    );
    let number = |line: &str| {
        let words = line.split(' ').next_back().unwrap_or_default();
        words.replace(',', "").parse::<usize>().expect("a number")
    };
    let lost: usize = lost.into_iter().map(number).sum();
    assert_eq!(logged.len() + lost, 5 * QUEUE);
    Ok(())
}

#[test]
fn suppressed_messages_are_summed_up_at_the_end() -> io::Result<()> {
    let (messages, sink, _) = to_sink();
    messages.start_thread()?;
    logging_to(&messages, || repeat(25));
    messages.finish(LONG);
    assert!(
        sink.text().contains("and 15 more like it: again 24\n"),
        "{}",
        sink.text()
    );
    Ok(())
}

#[test]
fn after_reopening_messages_go_to_the_new_file() -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    let (path, moved) = (folder.path().join("a"), folder.path().join("b"));
    let target = MessageTarget::File(path.clone());
    let messages = Messages::new(target, false, Clock::manual(0));
    messages.begin()?;
    messages.submit("old\n".to_owned());
    while disk::read_text(&path, 100)?.is_empty() {
        thread::yield_now();
    }
    std::fs::rename(&path, &moved)?;
    messages.reopen();
    messages.submit("new\n".to_owned());
    messages.finish(LONG);
    assert_eq!(disk::read_text(&path, 100)?, "new\n");
    assert_eq!(disk::read_text(&moved, 100)?, "old\n");
    Ok(())
}

#[test]
fn thousands_are_separated_by_commas() {
    let shown: Vec<String> = [0, 999, 1000, 1_234_567].map(thousands).into();
    assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
}

proptest! {
    #[test]
    fn for_any_text_only_messages_begin_with_a_time(text in "(\\PC|[\n\r\x1b\u{85}\u{2028}\"\\\\=])*") {
        let (messages, sink, _) = to_sink();
        logging_to(&messages, || tracing::info!(field = text.as_str(), "{text}"));
        let logged = sink.text();
        prop_assert!(logged.ends_with('\n'));
        prop_assert!(logged.chars().all(|c| c == '\n' || !c.is_control()));
        let mut lines = logged.lines();
        prop_assert!(lines.next().expect("a line").starts_with("2000-10-10T13:55:36.000Z  INFO "));
        prop_assert!(lines.all(|line| line.starts_with("    | ")));
    }
}
