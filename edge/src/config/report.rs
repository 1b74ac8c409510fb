//! Problems of a configuration, shown at their lines with advice.

use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

/// Most problems that are shown. Further ones are counted.
const SHOWN_MAX: usize = 20;

/// An error or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether this problem is an error, which makes the configuration unusable.
    pub fatal: bool,
    /// Description of the problem.
    pub title: String,
    /// Position in the text, in bytes.
    pub span: Option<Range<usize>>,
    /// Text shown beside the position.
    pub label: String,
    /// Advice on how to solve the problem.
    pub help: Option<String>,
}

impl Problem {
    /// Creates a problem that makes the configuration unusable.
    pub fn error(title: impl Into<String>) -> Problem {
        Problem {
            fatal: true,
            title: title.into(),
            span: None,
            label: String::new(),
            help: None,
        }
    }

    /// Creates a problem of a configuration that is usable.
    pub fn warning(title: impl Into<String>) -> Problem {
        Problem {
            fatal: false,
            ..Problem::error(title)
        }
    }

    /// Sets the position of the problem.
    pub fn at(mut self, span: Range<usize>) -> Problem {
        self.span = Some(span);
        self
    }

    /// Sets the text shown beside the position.
    pub fn label(mut self, label: impl Into<String>) -> Problem {
        self.label = label.into();
        self
    }

    /// Sets the advice.
    pub fn help(mut self, help: impl Into<String>) -> Problem {
        self.help = Some(help.into());
        self
    }
}

/// The problems of one configuration.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name of the configuration: the path of its file.
    pub name: String,
    /// Text of the configuration.
    pub text: String,
    /// The problems, in the order of their positions.
    pub problems: Vec<Problem>,
}

impl Report {
    /// Whether at least one problem is an error.
    pub fn is_fatal(&self) -> bool {
        self.problems.iter().any(|p| p.fatal)
    }

    /// Formats each problem with its line, with or without colours.
    pub fn render(&self, colour: bool) -> String {
        let renderer = match colour {
            true => Renderer::styled(),
            false => Renderer::plain(),
        }
        .decor_style(DecorStyle::Ascii);
        let mut out = String::new();
        for problem in self.problems.iter().take(SHOWN_MAX) {
            out.push_str(&self.render_one(problem, &renderer));
            out.push_str("\n\n");
        }
        if let Some(more) = self
            .problems
            .len()
            .checked_sub(SHOWN_MAX)
            .filter(|n| *n > 0)
        {
            out.push_str(&format!("and {more} more\n"));
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
        out
    }

    fn render_one(&self, problem: &Problem, renderer: &Renderer) -> String {
        let level = match problem.fatal {
            true => Level::ERROR,
            false => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(problem.title.as_str()));
        group = match self.within(problem.span.clone()) {
            None => group.element(Origin::path(self.name.as_str())),
            Some(span) => {
                let mark = AnnotationKind::Primary.span(span);
                let mark = match problem.label.is_empty() {
                    true => mark,
                    false => mark.label(problem.label.as_str()),
                };
                let snippet = Snippet::source(self.text.as_str()).path(self.name.as_str());
                group.element(snippet.annotation(mark))
            }
        };
        if let Some(help) = &problem.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        renderer.render(&[group])
    }

    /// Cuts a position that spans several lines to its first line.
    fn within(&self, span: Option<Range<usize>>) -> Option<Range<usize>> {
        let span = span?;
        let marked = self.text.get(span.clone())?;
        let line = marked.find('\n').unwrap_or(marked.len());
        Some(span.start..span.start + line)
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Report {}
