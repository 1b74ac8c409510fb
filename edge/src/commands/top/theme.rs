//! Colours of `sluice top`. Without colours, the same things differ by weight and inversion.

use ratatui::style::{Color, Modifier, Style};

use super::tables::Mood;

/// The styles of everything that is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    /// Whether colours may be used.
    pub in_colour: bool,
}

impl Theme {
    /// Style of a heading.
    pub fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Style of the headings of the table that has the keys.
    pub fn focused(self) -> Style {
        self.heading().add_modifier(Modifier::REVERSED)
    }

    /// Style of text of less importance.
    pub fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Style of the bars of a chart.
    pub fn bars(self) -> Style {
        self.coloured(Color::Cyan, Modifier::empty())
    }

    /// Style of a value.
    pub fn mood(self, mood: Mood) -> Style {
        match mood {
            Mood::Plain => Style::new(),
            Mood::Good => self.coloured(Color::Green, Modifier::empty()),
            Mood::Warning => self.coloured(Color::Yellow, Modifier::BOLD),
            Mood::Bad => self
                .coloured(Color::Red, Modifier::REVERSED)
                .add_modifier(Modifier::BOLD),
        }
    }

    /// Returns a style with this colour, or without colours with this modifier.
    fn coloured(self, colour: Color, otherwise: Modifier) -> Style {
        match self.in_colour {
            true => Style::new().fg(colour),
            false => Style::new().add_modifier(otherwise),
        }
    }
}
