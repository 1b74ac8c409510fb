//! The page of a run. The page is a function of the run's record, which it contains, and it has no scripts.

use std::fmt::Write as _;

use serde_json::Value;

use super::machine::Machine;
use super::page::{self, Cell, Table, base64, details, escape, measured, paragraph};
use super::run::{Run, Step};
use super::sections::{self, Section};
use super::values::{MISSING, date, digits, duration, list, text, with_unit};

/// Id of the element with the run's record as JSON.
const DATA: &str = "data";

/// Renders a run as one HTML page.
pub fn render(run: &Run) -> String {
    let data = serde_json::to_string(run).unwrap_or_default();
    let title = match &run.against {
        Some(against) => format!("Sluice {} beside {against}", run.version),
        None => format!("Sluice {}", run.version),
    };
    let mut html = page::begin(&format!("{title}: lab report"));
    header(&mut html, run, &title);
    html.push_str("<main>\n");
    summary(&mut html, run);
    for step in &run.steps {
        section(&mut html, run, step);
    }
    left_out(&mut html, run);
    machine(&mut html, run);
    raw_data(&mut html, &data);
    html.push_str("</main>\n");
    // In a script element, "<" could begin its end or a comment. Within JSON, "<" occurs only in strings.
    let data = data.replace('<', "\\u003c");
    // Writing to a String can't fail.
    let _ = writeln!(
        html,
        "<script type=\"application/json\" id=\"{DATA}\">{data}</script>"
    );
    html.push_str(page::END);
    html
}

/// Returns the record of the run in a page that [`render`] returned.
///
/// Errors: the page has no record, or one of another format.
pub fn record_of(page: &str) -> anyhow::Result<Run> {
    use anyhow::Context as _;
    let begin = format!("<script type=\"application/json\" id=\"{DATA}\">");
    let (_, data) = page
        .split_once(&begin)
        .context("the page has no record of a run")?;
    let (data, _) = data
        .split_once("</script>")
        .context("the page ends within its record")?;
    Run::read(&serde_json::from_str(data).context("the record of the run")?)
}

fn header(html: &mut String, run: &Run, title: &str) {
    let when = run.begun().map_or_else(|| "not run".to_owned(), date);
    let took = duration(run.seconds());
    let line = format!(
        "Report of sluice lab all, {when}, {took}, on {}",
        machine_line(&run.machine)
    );
    let _ = writeln!(
        html,
        "<header>\n<h1>{}</h1>\n<p class=\"quiet\">{}</p>",
        escape(title),
        escape(&line)
    );
    if run.quick {
        html.push_str(
            "<p class=\"warn\"><strong>Quick run.</strong> Loads were shorter and rounds fewer than usual, so these figures \
             are noisier. Run the command without --quick for figures to rely on.</p>\n",
        );
    }
    if run.profile == "debug" {
        html.push_str(
            "<p class=\"warn\"><strong>Debug build.</strong> The program was built without optimization, so these figures say \
             nothing about its speed.</p>\n",
        );
    }
    html.push_str("<nav aria-label=\"Experiments\">\n<ul class=\"contents\">\n");
    for step in &run.steps {
        let (id, name) = (id(step), escape(title_of(step)));
        let _ = writeln!(html, "<li><a href=\"#{id}\">{name}</a></li>");
    }
    html.push_str("<li><a href=\"#machine\">Machine</a></li>\n<li><a href=\"#raw\">Raw data</a></li>\n</ul>\n</nav>\n</header>\n");
}

fn id(step: &Step) -> String {
    format!("experiment-{}", escape(&step.name))
}

fn title_of(step: &Step) -> &str {
    named(&step.name)
}

/// Returns the title of an experiment; its name, if it has none.
pub(super) fn named(name: &str) -> &str {
    match sections::of(name).title {
        "" => name,
        title => title,
    }
}

fn summary(html: &mut String, run: &Run) {
    html.push_str(
        "<section class=\"card\" id=\"summary\">\n<h2>Summary</h2>\n<ul class=\"summary\">\n",
    );
    for step in &run.steps {
        let sentences = sentences(step);
        let (id, title, sentences) = (id(step), escape(title_of(step)), sentences.join(" "));
        let _ = writeln!(html, "<li><a href=\"#{id}\">{title}</a> {sentences}</li>");
    }
    for one in &run.left_out {
        let (title, why) = (escape(named(&one.name)), escape(&one.why));
        let _ = writeln!(html, "<li><strong>{title}</strong> Left out: {why}.</li>");
    }
    html.push_str("</ul>\n</section>\n");
}

/// Returns the summary of an experiment: sentences as HTML, in which each measured value is a `b` element.
pub(super) fn sentences(step: &Step) -> Vec<String> {
    let section = sections::of(&step.name);
    let mut sentences = step.data.as_ref().map(section.summary).unwrap_or_default();
    if let Some(error) = &step.error {
        sentences.push(escape(&format!(
            "The experiment failed: {}",
            first_line(error)
        )));
    }
    if sentences.is_empty() {
        sentences.push(MISSING.to_owned());
    }
    sentences
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn section(html: &mut String, run: &Run, step: &Step) {
    let section = sections::of(&step.name);
    let badge = match run.quick {
        true => " <span class=\"badge\">quick</span>",
        false => "",
    };
    let (id, title) = (id(step), escape(title_of(step)));
    let _ = writeln!(
        html,
        "<section class=\"card\" id=\"{id}\">\n<h2>{title}{badge}</h2>"
    );
    question(html, section);
    if let Some(error) = &step.error {
        let _ = writeln!(
            html,
            "<div class=\"warn\"><strong>The experiment failed.</strong>\n<pre tabindex=\"0\">{}</pre></div>",
            escape(error)
        );
    }
    if let Some(data) = &step.data {
        html.push_str(&(section.body)(data));
    }
    how(html, section, step);
    html.push_str("</section>\n");
}

fn question(html: &mut String, section: &Section) {
    if !section.question.is_empty() {
        let question = escape(section.question);
        let _ = writeln!(html, "<p class=\"question\">{question}</p>");
    }
    if !section.article.is_empty() {
        let article = escape(section.article);
        let _ = writeln!(html, "<p><strong>The article:</strong> {article}</p>");
    }
}

/// Adds the method, the command and the servers' configurations.
fn how(html: &mut String, section: &Section, step: &Step) {
    html.push_str("<h3>What was measured, and how</h3>\n");
    if !section.method.is_empty() {
        html.push_str(&paragraph(section.method));
    }
    let (command, version) = (escape(&step.command), escape(&step.setup.version));
    let _ = writeln!(
        html,
        "<p><code>{command}</code></p>\n<p class=\"quiet\">Sluice {version}, {}, took {}</p>",
        date(step.begun),
        measured(&duration(step.seconds))
    );
    for (server, text) in configurations(step) {
        let text = format!("<pre tabindex=\"0\">{}</pre>\n", escape(text));
        html.push_str(&details(&format!("Configuration of {server}"), &text));
    }
}

/// Returns the servers and texts of the configurations in the experiment's report.
fn configurations(step: &Step) -> impl Iterator<Item = (&str, &str)> {
    let data = step.data.as_ref().unwrap_or(&Value::Null);
    list(data, "configurations").filter_map(|one| Some((text(one, "server")?, text(one, "text")?)))
}

fn left_out(html: &mut String, run: &Run) {
    if run.left_out.is_empty() {
        return;
    }
    html.push_str("<section class=\"card\" id=\"left-out\">\n<h2>Left out</h2>\n<ul>\n");
    for one in &run.left_out {
        let _ = writeln!(
            html,
            "<li><strong>{}</strong>: {}</li>",
            escape(&one.name),
            escape(&one.why)
        );
    }
    html.push_str("</ul>\n</section>\n");
}

pub(super) fn machine_line(machine: &Machine) -> String {
    let cores = match machine.cores {
        1 => "1 core".to_owned(),
        cores => format!("{cores} cores"),
    };
    match &machine.processor {
        Some(processor) => format!("{cores} of {processor}"),
        None => cores,
    }
}

/// Returns the table of the machine's properties and of the versions of the other servers that were measured.
pub(super) fn machine_table(run: &Run) -> Table {
    let machine = &run.machine;
    let gib = |bytes: u64| with_unit(Some(bytes as f64 / f64::from(1 << 30)), "GiB");
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut table = Table::new("The machine", &["property", "value"]);
    let mut row = |name: &str, value: String| table.row(name, [Cell::text(value)]);
    row("processor", known(&machine.processor));
    row("cores", digits(machine.cores as f64));
    row(
        "virtual machine",
        known(
            &machine
                .is_virtual
                .map(|is| if is { "yes" } else { "no" }.to_owned()),
        ),
    );
    row(
        "memory",
        machine.memory.map_or_else(|| "unknown".to_owned(), gib),
    );
    row("kernel", known(&machine.kernel));
    row("distribution", known(&machine.distribution));
    if let Some(disk) = &machine.disk {
        let kind = match machine.rotating_disk() {
            Some(true) => ", rotating",
            Some(false) => ", not rotating",
            None => "",
        };
        row(
            "disk",
            format!(
                "{} on {}{kind}, {} free",
                disk.file_system,
                disk.source,
                gib(disk.free)
            ),
        );
    }
    if let Some(governor) = &machine.governor {
        row("clock policy", governor.clone());
    }
    for (name, version) in run.measured_servers() {
        row(name, version.clone());
    }
    table
}

fn machine(html: &mut String, run: &Run) {
    let machine = &run.machine;
    let _ = writeln!(
        html,
        "<section class=\"card\" id=\"machine\">\n<h2>Machine</h2>\n{}",
        machine_table(run).render()
    );
    let mut mitigations = Table::new(
        "Protections against attacks on the processor",
        &["attack", "the kernel says"],
    );
    for (name, state) in &machine.mitigations {
        mitigations.row(name, [Cell::text(state)]);
    }
    if !mitigations.is_empty() {
        html.push_str(&details(
            "Protections against attacks on the processor",
            &mitigations.render(),
        ));
    }
    html.push_str("</section>\n");
}

fn raw_data(html: &mut String, data: &str) {
    let encoded = base64(data.as_bytes());
    let _ = writeln!(
        html,
        "<section class=\"card\" id=\"raw\">\n<h2>Raw data</h2>\n\
         <p>This page contains all results as JSON, and every figure on it is computed from them. \
         <code>sluice lab diff</code> compares two such files.</p>\n\
         <p><a class=\"button\" download=\"run.json\" href=\"data:application/json;base64,{encoded}\">Download run.json</a></p>\n\
         </section>"
    );
}
