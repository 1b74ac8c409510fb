//! Problems of a configuration, shown at their lines with advice.

use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

/// Most problems that are shown. Further ones are counted.
const SHOWN_MAX: usize = 20;

/// Most problems of one kind that are searched for in a text. There may be more.
pub const COUNTED_MAX: usize = 100;

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
            title: without_error_numbers(&title.into()),
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

/// Removes the system's error numbers, such as ` (os error 2)`, from a message for users.
pub fn without_error_numbers(message: &str) -> String {
    let mut parts = message.split(" (os error ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(
            part.trim_start_matches(|c: char| c.is_ascii_digit())
                .trim_start_matches(')'),
        );
    }
    out
}

/// The problems of one configuration.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name of the configuration: the path of its file. Empty if no file is concerned.
    pub name: String,
    /// Text of the configuration.
    pub text: String,
    /// The problems, in the order of their positions.
    pub problems: Vec<Problem>,
    /// The parts of the text that were written as options of the command line. Empty for a file.
    pub options: Vec<OptionText>,
}

/// A part of a configuration's text that was made from an option of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionText {
    /// Position of the part in the text, in bytes.
    pub span: Range<usize>,
    /// The option with its value, as in `--memory 1GiB`.
    pub option: String,
    /// The key of the file that means the same.
    pub key: &'static str,
}

impl Report {
    /// Creates a report without problems.
    pub fn new(name: String, text: String) -> Report {
        Report {
            name,
            text,
            problems: Vec::new(),
            options: Vec::new(),
        }
    }

    /// Creates a report of one error that concerns no file, with advice.
    pub fn without_file(title: String, help: Option<String>) -> Report {
        Report {
            problems: vec![Problem {
                help,
                ..Problem::error(title)
            }],
            ..Report::new(String::new(), String::new())
        }
    }

    /// Creates a report of one error in an option of the command line, with advice.
    pub fn of_option(option: String, title: String, help: String) -> Report {
        let part = OptionText {
            span: 0..1,
            option,
            key: "",
        };
        Report {
            problems: vec![Problem::error(title).at(0..1).help(help)],
            options: vec![part],
            ..Report::new(String::new(), String::new())
        }
    }

    /// Whether the configuration was written as options of the command line.
    pub fn is_about_options(&self) -> bool {
        !self.options.is_empty()
    }
    /// Whether at least one problem is an error.
    pub fn is_fatal(&self) -> bool {
        self.problems.iter().any(|p| p.fatal)
    }

    /// Adds problems, and sorts all problems by their position.
    pub fn add(&mut self, problems: Vec<Problem>) {
        self.problems.extend(problems);
        self.problems
            .sort_by_key(|problem| problem.span.as_ref().map_or(0, |span| span.start));
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
            let at_least = match self.problems.len() >= COUNTED_MAX {
                true => "at least ",
                false => "",
            };
            out.push_str(&format!("and {at_least}{more} more\n"));
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
        if self.is_about_options() || self.name.is_empty() {
            let title = self.option_title(problem);
            let mut group = Group::with_title(level.primary_title(title));
            if let Some(help) = &problem.help {
                group = group.element(Level::HELP.message(help.as_str()));
            }
            return renderer.render(&[group]);
        }
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

    /// Returns the title of a problem with the option that causes it.
    fn option_title(&self, problem: &Problem) -> String {
        let at = problem.span.as_ref().map_or(usize::MAX, |span| span.start);
        let mut options = self.options.iter();
        let option = options.find(|part| part.span.contains(&at));
        let Some(part) = option else {
            return problem.title.clone();
        };
        // The keys of the equivalent file mean nothing to the user.
        let own = format!("`{}` is ", part.key);
        let title = problem.title.strip_prefix(&own).unwrap_or(&problem.title);
        let label = match problem.label.is_empty() {
            true => String::new(),
            false => format!(": {}", problem.label),
        };
        format!("{}: {title}{label}", part.option)
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
