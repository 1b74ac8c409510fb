//! Draws `sluice top`: title, facts, charts, tables and keys, as far as they fit.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::charts;
use super::facts;
use super::model::Model;
use super::panes;
use super::tables::{Mood, Pane};
use super::theme::Theme;

/// Most lines of messages about things that need attention.
const NOTES_MAX: usize = 3;
/// Space between facts in a line.
const GAP: &str = "   ";

/// Draws a frame.
pub fn draw(frame: &mut Frame<'_>, model: &Model, now_us: u64, theme: Theme) {
    let mut page = Page {
        frame,
        model,
        theme,
        now_us,
    };
    page.draw();
}

/// One frame, and what it shows.
struct Page<'a, 'f> {
    frame: &'a mut Frame<'f>,
    model: &'a Model,
    theme: Theme,
    now_us: u64,
}

/// Cuts this many lines from the top of an area and returns them, as far as there are so many.
fn cut(area: &mut Rect, lines: u16) -> Rect {
    let lines = lines.min(area.height);
    let top = Rect {
        height: lines,
        ..*area
    };
    area.y += lines;
    area.height -= lines;
    top
}

impl Page<'_, '_> {
    fn draw(&mut self) {
        let mut area = self.frame.area();
        let keys = Rect {
            y: area.bottom().saturating_sub(1),
            height: area.height.min(1),
            ..area
        };
        area.height = area.height.saturating_sub(1);
        let title = cut(&mut area, 1);
        self.lines(title, vec![self.title()]);
        for lines in [self.notes(), self.facts(area.width)] {
            let part = cut(&mut area, lines.len() as u16);
            self.lines(part, lines);
        }
        let height = charts::height(area.height);
        let part = cut(&mut area, height);
        charts::draw(self.frame.buffer_mut(), part, self.model, self.theme);
        let tabs = cut(&mut area, 1);
        self.lines(tabs, vec![self.tabs()]);
        for (pane, part) in panes::layout(self.model, area) {
            panes::draw(self.frame.buffer_mut(), part, pane, self.model, self.theme);
        }
        self.lines(keys, vec![self.keys()]);
        if self.model.is_help {
            self.help();
        }
    }

    fn lines(&mut self, area: Rect, lines: Vec<Line<'_>>) {
        self.frame.render_widget(Paragraph::new(lines), area);
    }

    /// Returns the line with the program, its address and age, and whether it answers.
    fn title(&self) -> Line<'static> {
        let mut parts = vec![
            Span::styled(facts::title(self.model), self.theme.heading()),
            Span::raw("  "),
        ];
        parts.push(match self.model.lost(self.now_us) {
            None => Span::styled("live", self.theme.mood(Mood::Good)),
            Some((seconds, _)) => Span::styled(
                format!("no answer for {seconds} s, trying again"),
                self.theme.mood(Mood::Bad),
            ),
        });
        Line::from(parts)
    }

    /// Returns why the server does not answer, and a line about each thing that needs attention.
    fn notes(&self) -> Vec<Line<'static>> {
        let lost = self.model.lost(self.now_us);
        let lost = lost.map(|(_, why)| why.to_owned());
        let notes = self.model.snapshot.notes.iter().take(NOTES_MAX);
        let style = self.theme.mood(Mood::Warning);
        lost.into_iter()
            .chain(notes.cloned())
            .map(|note| Line::styled(note, style))
            .collect()
    }

    /// Returns the facts about the traffic, in as many lines as they need.
    fn facts(&self, width: u16) -> Vec<Line<'static>> {
        let mut lines: Vec<Line<'static>> = Vec::new();
        let mut room = 0;
        for fact in facts::facts(&self.model.snapshot.traffic) {
            let mut spans = vec![
                Span::styled(format!("{} ", fact.label), self.theme.faint()),
                Span::styled(fact.value, self.theme.mood(fact.mood)),
            ];
            let length = spans.iter().map(Span::width).sum::<usize>();
            match lines.last_mut() {
                Some(line) if GAP.len() + length <= room => {
                    room -= GAP.len() + length;
                    line.spans.push(Span::raw(GAP));
                    line.spans.append(&mut spans);
                }
                _ => {
                    room = usize::from(width).saturating_sub(length);
                    lines.push(Line::from(spans));
                }
            }
        }
        lines
    }

    /// Returns the line with the tables that exist.
    fn tabs(&self) -> Line<'static> {
        let mut spans = Vec::new();
        for pane in Pane::ALL {
            let Some(rows) = pane.len(&self.model.snapshot) else {
                continue;
            };
            let style = match pane == self.model.focus {
                true => self.theme.focused(),
                false if rows == 0 => self.theme.faint(),
                false => Style::new(),
            };
            let text = format!("{}:{} {rows}", pane.index() + 1, pane.title());
            spans.extend([Span::styled(text, style), Span::raw(GAP)]);
        }
        Line::from(spans)
    }

    fn keys(&self) -> Line<'static> {
        let minutes = self.model.span_s() / 60;
        let column = self.model.order(self.model.focus).column;
        let sorted = column.map_or("", |column| self.model.focus.columns()[column]);
        let text = format!(
            "q quit  ? help  Tab table  ↑↓ scroll  t charts: {minutes} min  r reverse  ←→ sort {sorted}"
        );
        Line::styled(text, self.theme.faint())
    }

    /// Draws the help over the middle of the frame.
    fn help(&mut self) {
        let lines: Vec<Line<'_>> = facts::HELP.lines().map(Line::raw).collect();
        let width = lines.iter().map(Line::width).max().unwrap_or(0) as u16 + 4;
        let all = self.frame.area();
        let (width, height) = (
            width.min(all.width),
            (lines.len() as u16 + 2).min(all.height),
        );
        let area = Rect {
            x: (all.width - width) / 2,
            y: (all.height - height) / 2,
            width,
            height,
        };
        let block = Block::bordered().title(" sluice top ");
        self.frame.render_widget(Clear, area);
        self.frame
            .render_widget(Paragraph::new(lines).block(block), area);
    }
}

#[cfg(test)]
mod tests;
