//! The state of `sluice top` between two frames: the newest snapshot, the series, and what the user chose.

use serde_json::Value;

use super::lists::{Lists, routes, urls};
use super::reading::Reading;
use super::series::History;
use super::snapshot::Snapshot;
use super::tables::{Order, Pane, URL_ORDERS};

/// Spans of the charts in seconds, the default first.
pub const SPANS_S: [usize; 3] = [300, 600, 60];
/// Rows by which a page moves.
const PAGE: usize = 10;
/// Time without an answer from which on the server counts as lost.
const LOST_US: u64 = 3_000_000;

/// A command of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Quit,
    Help,
    /// Closes the help.
    Back,
    NextPane,
    PreviousPane,
    /// Chooses the table with this position.
    Pane(usize),
    NextColumn,
    PreviousColumn,
    Reverse,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Span,
}

/// The answers of one poll.
#[derive(Debug, Default)]
pub struct Answer {
    /// The content of `/status`.
    pub status: Value,
    /// Time at which it was read, in microseconds of the monotonic clock. `None`: now.
    pub read_us: Option<u64>,
    /// The content of `/history` about the routes.
    pub routes: Listed,
    /// The content of `/top`.
    pub urls: Listed,
}

/// A list in an answer.
#[derive(Debug, Default)]
pub enum Listed {
    /// The list was not read this time.
    #[default]
    Unread,
    /// The server does not have it.
    Unknown,
    /// The list.
    Read(Value),
}

impl Listed {
    /// Returns the new list, parsed, or the old one if it was not read again.
    fn or_old<T>(&self, old: Option<Vec<T>>, parse: fn(&Value) -> Vec<T>) -> Option<Vec<T>> {
        match self {
            Listed::Unread => old,
            Listed::Unknown => None,
            Listed::Read(value) => Some(parse(value)),
        }
    }
}

/// The state between two frames.
#[derive(Debug)]
pub struct Model {
    /// The admin address, for the title.
    pub address: String,
    /// The newest snapshot.
    pub snapshot: Snapshot,
    /// The series of the charts.
    pub history: History,
    /// The table that has the keys and gets its room first.
    pub focus: Pane,
    /// Whether the help is shown.
    pub is_help: bool,
    /// Whether the user ends the command.
    pub is_done: bool,
    /// Why there was no answer to the last poll.
    failure: Option<String>,
    orders: [Order; Pane::ALL.len()],
    offsets: [usize; Pane::ALL.len()],
    span: usize,
    reading: Reading,
    /// Time up to which the series have been recorded.
    recorded_us: u64,
}

impl Model {
    /// Makes the model with a first answer.
    pub fn new(address: String, now_us: u64, answer: Answer) -> Model {
        let mut model = Model {
            address,
            snapshot: Snapshot::default(),
            history: History::default(),
            focus: Pane::Servers,
            is_help: false,
            is_done: false,
            failure: None,
            orders: Default::default(),
            offsets: Default::default(),
            span: 0,
            reading: Reading::default(),
            recorded_us: now_us,
        };
        model.answered(now_us, answer);
        model
    }

    /// Takes an answer.
    pub fn answered(&mut self, now_us: u64, answer: Answer) {
        let reading = Reading::parse(answer.read_us.unwrap_or(now_us), &answer.status);
        let lists = Lists {
            routes: answer.routes.or_old(self.snapshot.routes.take(), routes),
            urls: answer.urls.or_old(self.snapshot.urls.take(), urls),
        };
        self.snapshot = Snapshot::new(Some(&self.reading), &reading, lists);
        self.reading = reading;
        self.failure = None;
        self.note_gap(now_us, 1);
        self.history.push(&self.snapshot.traffic);
        self.keep_focus();
    }

    /// Takes the reason why there is no answer.
    pub fn failed(&mut self, now_us: u64, why: String) {
        self.failure = Some(why);
        self.note_gap(now_us, 0);
    }

    /// Records the whole seconds since the last record as a gap, without the newest ones.
    fn note_gap(&mut self, now_us: u64, newest: u64) {
        let seconds = (now_us.saturating_sub(self.recorded_us) + 500_000) / 1_000_000;
        if seconds > 0 {
            self.history.push_gap(seconds.saturating_sub(newest));
            self.recorded_us = now_us;
        }
    }

    /// Returns for how many seconds there has been no answer, and why if that is known; `None` while the server answers.
    pub fn lost(&self, now_us: u64) -> Option<(u64, &str)> {
        let silent_us = now_us.saturating_sub(self.reading.at_us);
        let is_lost = self.failure.is_some() || silent_us >= LOST_US;
        let why = self.failure.as_deref().unwrap_or("no answer yet");
        is_lost.then_some((silent_us / 1_000_000, why))
    }

    /// Returns the order of a table.
    pub fn order(&self, pane: Pane) -> Order {
        self.orders[pane.index()]
    }

    /// Returns the index of a table's first visible row.
    pub fn offset(&self, pane: Pane) -> usize {
        let rows = pane.len(&self.snapshot).unwrap_or(0);
        self.offsets[pane.index()].min(rows.saturating_sub(1))
    }

    /// Returns the span of the charts in seconds.
    pub fn span_s(&self) -> usize {
        SPANS_S[self.span]
    }

    /// Returns the name of the order in which URLs are wanted from the server.
    pub fn url_order(&self) -> usize {
        let column = self.order(Pane::Urls).column.unwrap_or(0);
        column.min(URL_ORDERS.len() - 1)
    }

    /// Whether a table is shown: one with rows.
    pub fn has(&self, pane: Pane) -> bool {
        pane.len(&self.snapshot).is_some_and(|rows| rows > 0)
    }

    /// Applies a command of the user.
    pub fn act(&mut self, action: Action) {
        match action {
            Action::Quit => self.is_done = true,
            Action::Help => self.is_help = !self.is_help,
            Action::Back => self.is_help = false,
            Action::NextPane => self.step_pane(1),
            Action::PreviousPane => self.step_pane(Pane::ALL.len() - 1),
            Action::Pane(index) => self.choose(index),
            Action::NextColumn => self.step_column(true),
            Action::PreviousColumn => self.step_column(false),
            Action::Reverse => {
                let order = &mut self.orders[self.focus.index()];
                order.is_reversed = !order.is_reversed;
            }
            Action::Up => self.scroll(|offset| offset.saturating_sub(1)),
            Action::Down => self.scroll(|offset| offset + 1),
            Action::PageUp => self.scroll(|offset| offset.saturating_sub(PAGE)),
            Action::PageDown => self.scroll(|offset| offset + PAGE),
            Action::First => self.scroll(|_| 0),
            Action::Last => self.scroll(|_| usize::MAX),
            Action::Span => self.span = (self.span + 1) % SPANS_S.len(),
        }
    }

    fn choose(&mut self, index: usize) {
        let pane = Pane::ALL.get(index).copied();
        if let Some(pane) = pane.filter(|pane| self.has(*pane)) {
            self.focus = pane;
        }
    }

    /// Moves to the next table with rows, in steps of this size around all tables.
    fn step_pane(&mut self, step: usize) {
        let all = Pane::ALL.len();
        let others = (1..=all).map(|n| Pane::ALL[(self.focus.index() + n * step) % all]);
        if let Some(pane) = others.into_iter().find(|pane| self.has(*pane)) {
            self.focus = pane;
        }
    }

    /// Leaves a table that has no rows any more.
    fn keep_focus(&mut self) {
        if !self.has(self.focus) {
            self.step_pane(1);
        }
    }

    /// Moves to the next or previous column, between which is the order of the server.
    fn step_column(&mut self, forward: bool) {
        let columns = self.focus.columns().len();
        let order = &mut self.orders[self.focus.index()];
        order.column = match (order.column, forward) {
            (None, true) => Some(0),
            (None, false) => Some(columns - 1),
            (Some(column), true) => Some(column + 1).filter(|column| *column < columns),
            (Some(column), false) => column.checked_sub(1),
        };
    }

    fn scroll(&mut self, to: impl FnOnce(usize) -> usize) {
        let rows = self.focus.len(&self.snapshot).unwrap_or(0);
        let offset = to(self.offset(self.focus));
        self.offsets[self.focus.index()] = offset.min(rows.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn answer(requests: u64) -> Answer {
        Answer {
            status: json!({
                "pid": 1, "counters": { "requests": requests },
                "workers": [{}, {}, {}], "caches": { "main": {} },
            }),
            ..Answer::default()
        }
    }

    fn model() -> Model {
        Model::new("127.0.0.1:9901".to_owned(), 0, answer(0))
    }

    #[test]
    fn only_tables_with_rows_get_the_focus() {
        let mut model = model();
        assert_eq!(model.focus, Pane::Workers);
        model.act(Action::NextPane);
        assert_eq!(model.focus, Pane::Caches);
        model.act(Action::PreviousPane);
        assert_eq!(model.focus, Pane::Workers);
        model.act(Action::Pane(1));
        assert_eq!(model.focus, Pane::Workers);
        model.act(Action::Pane(0));
        assert_eq!(model.focus, Pane::Caches);
    }

    #[test]
    fn tables_are_sorted_and_scrolled_by_keys() {
        let mut model = model();
        let column = |model: &Model| model.order(Pane::Workers).column;
        model.act(Action::NextColumn);
        assert_eq!(column(&model), Some(0));
        model.act(Action::PreviousColumn);
        assert_eq!(column(&model), None);
        model.act(Action::PreviousColumn);
        assert_eq!(column(&model), Some(9));
        model.act(Action::NextColumn);
        assert_eq!(column(&model), None);
        model.act(Action::Reverse);
        assert!(model.order(Pane::Workers).is_reversed);
        for (action, offset) in [
            (Action::Up, 0),
            (Action::Down, 1),
            (Action::PageDown, 2),
            (Action::First, 0),
            (Action::Last, 2),
            (Action::PageUp, 0),
        ] {
            model.act(action);
            assert_eq!(model.offset(Pane::Workers), offset, "{action:?}");
        }
    }

    #[test]
    fn seconds_without_an_answer_are_gaps() {
        let mut model = model();
        model.answered(1_000_000, answer(10));
        assert_eq!(model.lost(1_500_000), None);
        model.failed(2_000_000, "refused".to_owned());
        assert_eq!(model.lost(2_000_000), Some((1, "refused")));
        model.answered(5_000_000, answer(50));
        assert_eq!(model.lost(5_000_000), None);
        let requests = model.history.requests.columns(60, 60);
        let expected = [None, Some(10.0), None, None, None, Some(10.0)];
        assert_eq!(requests, expected);
        assert_eq!(model.lost(9_000_000), Some((4, "no answer yet")));
    }

    #[test]
    fn urls_stay_until_they_are_read_again() {
        let mut model = model();
        let with = |urls| Answer { urls, ..answer(1) };
        let top = json!({ "urls": [{ "url": "http://a/" }] });
        model.answered(1, with(Listed::Read(top)));
        assert!(model.has(Pane::Urls));
        model.answered(2, with(Listed::Unread));
        assert!(model.has(Pane::Urls));
        model.focus = Pane::Urls;
        model.answered(3, with(Listed::Unknown));
        assert!(!model.has(Pane::Urls));
        assert_ne!(model.focus, Pane::Urls);
    }

    proptest! {
        #[test]
        fn no_sequence_of_keys_fails(keys in prop::collection::vec(0usize..15, 0..60)) {
            let all = [
                Action::Help, Action::Back, Action::NextPane, Action::PreviousPane, Action::Pane(3), Action::Pane(9),
                Action::NextColumn, Action::PreviousColumn, Action::Reverse, Action::Up, Action::Down, Action::PageUp,
                Action::PageDown, Action::Last, Action::Span,
            ];
            let mut model = model();
            for key in keys {
                model.act(all[key]);
                prop_assert!(model.has(model.focus));
                prop_assert!(model.offset(model.focus) < 3);
                prop_assert!(model.url_order() < URL_ORDERS.len());
            }
        }
    }
}
