//! Tests of `sluice lab all` and `sluice lab diff`: the plan, resuming, failures, interruption and the comparison of runs.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use sluice_lab::origin::{Origin, OriginOptions};

use super::{sluice, text};

/// Longest wait for something that other processes do.
const SOON: Duration = Duration::from_secs(120);

/// Runs `sluice lab all` with the folder `out` in this folder.
fn lab_all(folder: &Path, arguments: &[&str]) -> Output {
    sluice(
        folder,
        &[&["lab", "all", "--folder", "out"], arguments].concat(),
    )
}

fn read(folder: &Path, file: &str) -> Value {
    let text = std::fs::read_to_string(folder.join("out").join(file));
    serde_json::from_str(&text.expect("a file")).expect("JSON")
}

#[test]
fn the_plan_names_experiments_durations_and_needs_and_runs_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = lab_all(folder.path(), &["--plan", "--quick"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let plan = text(&output.stdout);
    for part in [
        "byte-range",
        "keepalive",
        "static",
        "what-if",
        "\nIn total about ",
    ] {
        assert!(plan.contains(part), "{plan}");
    }
    assert!(!folder.path().join("out").exists());
    let two = ["--plan", "--only", "hit-ratio", "--only", "budget"];
    let plan = text(&lab_all(folder.path(), &two).stdout);
    assert!(
        plan.contains("hit-ratio") && plan.contains("budget"),
        "{plan}"
    );
    assert!(!plan.contains("byte-range"), "{plan}");
    let unknown = lab_all(folder.path(), &["--only", "rain"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("byte-range, storm"));
}

#[test]
fn a_run_writes_a_report_and_is_resumed_with_its_results() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let arguments = ["--quick", "--only", "hit-ratio"];
    let first = lab_all(folder.path(), &arguments);
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert_eq!(text(&first.stdout), "out/report.html\n");
    let said = text(&first.stderr);
    assert!(said.contains("1 of 1, hit-ratio, about "), "{said}");
    let page = std::fs::read_to_string(folder.path().join("out/report.html")).expect("a page");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("Quick run."));
    let run = read(folder.path(), "run.json");
    assert_eq!(run["steps"][0], read(folder.path(), "hit-ratio.json"));
    assert_eq!(run["steps"][0]["data"]["objects"], 20_000, "{run:#}");
    assert!(page.contains(run["machine"]["kernel"].as_str().expect("a kernel")));
    // Nothing but the results is left.
    assert_eq!(
        std::fs::read_dir(folder.path().join("out"))
            .expect("a folder")
            .count(),
        3
    );

    let again = lab_all(folder.path(), &arguments);
    let said = text(&again.stderr);
    assert!(
        said.contains("1 of 1, hit-ratio: has a result already"),
        "{said}"
    );
    let same = std::fs::read_to_string(folder.path().join("out/report.html")).expect("a page");
    assert!(same.contains("Quick run."));
    assert_eq!(read(folder.path(), "run.json")["steps"], run["steps"]);

    // The result of another command line is not used.
    let file = folder.path().join("out/hit-ratio.json");
    let stored = std::fs::read_to_string(&file).expect("a file");
    let command = run["steps"][0]["command"].as_str().expect("a command");
    std::fs::write(&file, stored.replace(command, "sluice lab hit-ratio")).expect("written");
    let said = text(&lab_all(folder.path(), &arguments).stderr);
    assert!(said.contains("1 of 1, hit-ratio, about "), "{said}");
}

#[test]
fn a_run_of_one_experiment_keeps_the_results_of_the_others() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let first = lab_all(folder.path(), &["--quick", "--only", "hit-ratio"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let run = read(folder.path(), "run.json");
    let kept = run["steps"][0].clone();
    let left_out = |run: &Value, name: &str| {
        let all = run["left_out"].as_array().expect("a list");
        let found = all.iter().find(|one| one["name"] == name);
        found.map(|one| one["why"].as_str().expect("a reason").to_owned())
    };
    assert_eq!(
        left_out(&run, "budget").as_deref(),
        Some("not chosen (--only)")
    );
    assert_eq!(left_out(&run, "hit-ratio"), None);

    let second = lab_all(folder.path(), &["--quick", "--only", "budget"]);
    assert!(second.status.success(), "{}", text(&second.stderr));
    let run = read(folder.path(), "run.json");
    let names: Vec<&Value> = run["steps"]
        .as_array()
        .expect("steps")
        .iter()
        .map(|step| &step["name"])
        .collect();
    assert_eq!(names, ["budget", "hit-ratio"]);
    assert_eq!(run["steps"][1], kept);
    assert_eq!(left_out(&run, "budget"), None);
    let page = std::fs::read_to_string(folder.path().join("out/report.html")).expect("a page");
    assert!(
        page.contains("id=\"experiment-budget\"") && page.contains("id=\"experiment-hit-ratio\"")
    );
}

#[test]
fn a_folder_with_another_kind_of_run_is_refused_with_the_difference() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let quick = ["--quick", "--only", "hit-ratio"];
    let first = lab_all(folder.path(), &quick);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let file = folder.path().join("out/hit-ratio.json");
    let stored = read(folder.path(), "hit-ratio.json");
    let refused = |arguments: &[&str], problem: &str| {
        let output = lab_all(folder.path(), arguments);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(problem), "{said}");
        assert!(said.contains("--folder"), "{said}");
        assert!(output.stdout.is_empty());
    };
    // Also if the new run has other experiments.
    refused(&["--only", "budget"], "--quick: yes there, no now");
    refused(&["--plan"], "--quick: yes there, no now");
    for (field, value, problem) in [
        ("/version", json!("0.0.1"), "version: 0.0.1 there, "),
        ("/program", json!("abc"), "program file (hash): abc there, "),
        ("/profile", json!("other"), "build profile: other there, "),
        (
            "/against",
            json!("nginx"),
            "--against: nginx there, nothing now",
        ),
        ("/machine/cores", json!(977), "cores: 977 there, "),
        ("/machine/memory", json!(5), "memory: 5 bytes there, "),
        ("/machine/kernel", json!("1.0"), "kernel: 1.0 there, "),
        ("/machine/processor", json!("Z80"), "processor: Z80 there, "),
    ] {
        let mut other = stored.clone();
        *other.pointer_mut(field).expect("a field") = value;
        std::fs::write(&file, other.to_string()).expect("written");
        refused(&quick, problem);
    }
    std::fs::write(&file, "{}").expect("written");
    refused(&quick, "is no result of this version");
    std::fs::write(&file, stored.to_string()).expect("written");
    assert!(lab_all(folder.path(), &quick).status.success());
}

#[test]
fn a_quick_run_has_a_folder_of_its_own() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = sluice(
        folder.path(),
        &["lab", "all", "--quick", "--only", "hit-ratio"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "sluice-lab-quick/report.html\n");
}

#[test]
fn a_failed_experiment_is_in_the_report_and_the_others_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Without a folder for temporary files, no server starts.
    let run = |temporary: &Path| {
        let names = ["--only", "budget", "--only", "hit-ratio"];
        Command::new(env!("CARGO_BIN_EXE_sluice"))
            .current_dir(folder.path())
            .args(["lab", "all", "--quick", "--folder", "out"])
            .args(names)
            .env("TMPDIR", temporary)
            .output()
            .expect("the program starts")
    };
    let output = run(&folder.path().join("missing"));
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("not measured: budget\n"), "{said}");
    let steps = &read(folder.path(), "run.json")["steps"];
    let error = steps[0]["error"].as_str().expect("a message");
    assert!(error.contains("No such file"), "{error}");
    assert!(steps[1]["error"].is_null() && steps[1]["data"]["rows"].is_array());
    let page = std::fs::read_to_string(folder.path().join("out/report.html")).expect("a page");
    assert!(page.contains("The experiment failed") && page.contains("No such file"));

    // The experiment that failed runs again, the other one does not.
    let said = text(&run(&std::env::temp_dir()).stderr);
    assert!(said.contains("1 of 2, budget, about "), "{said}");
    assert!(
        said.contains("2 of 2, hit-ratio: has a result already"),
        "{said}"
    );
    let steps = &read(folder.path(), "run.json")["steps"];
    assert!(steps[0]["error"].is_null(), "{steps:#}");
    let servers = &steps[0]["data"]["configurations"];
    let configuration = servers[0]["text"].as_str().expect("a text");
    assert!(configuration.contains("[cache"), "{servers:#}");
    let page = std::fs::read_to_string(folder.path().join("out/report.html")).expect("a page");
    assert!(page.contains("Configuration of Sluice auto") && page.contains("[cache.main]"));
}

#[test]
fn an_interrupted_run_ends_its_processes_and_keeps_no_half_result() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let temporary = folder.path().join("temporary");
    std::fs::create_dir(&temporary).expect("a folder");
    let mut running = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .current_dir(folder.path())
        .args(["lab", "all", "--folder", "out", "--only", "budget"])
        .env("TMPDIR", &temporary)
        .stderr(Stdio::from(
            std::fs::File::create(folder.path().join("said")).expect("a file"),
        ))
        .spawn()
        .expect("the program starts");
    let said = || std::fs::read_to_string(folder.path().join("said")).unwrap_or_default();
    // The experiment runs, and has started its server.
    let deadline = Instant::now() + SOON;
    let mut tree = Vec::new();
    while tree.len() < 2 {
        assert!(Instant::now() < deadline, "{}", said());
        std::thread::sleep(Duration::from_millis(50));
        tree = descendants(running.id());
    }
    let pid = |id: u32| Pid::from_raw(id.cast_signed()).expect("a process id");
    kill_process(pid(running.id()), Signal::TERM).expect("alive");
    let status = running.wait().expect("an end");
    assert_eq!(status.code(), Some(1), "{}", said());
    assert!(said().contains("interrupted"), "{}", said());
    let entries = |folder: &Path| -> Vec<_> {
        let entries = std::fs::read_dir(folder).expect("a folder").flatten();
        entries.map(|entry| entry.file_name()).collect()
    };
    // Neither a result nor the folder of the step is left.
    assert!(entries(&folder.path().join("out")).is_empty());
    assert!(entries(&temporary).is_empty(), "{:?}", entries(&temporary));
    wait_for_end_of(&tree);
}

#[test]
fn the_experiment_of_a_killed_run_ends_and_removes_its_folders() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let temporary = folder.path().join("temporary");
    std::fs::create_dir(&temporary).expect("a folder");
    let run = || {
        let mut run = Command::new(env!("CARGO_BIN_EXE_sluice"));
        run.current_dir(folder.path())
            .args(["lab", "all", "--quick", "--folder", "out", "--only"])
            .env("TMPDIR", &temporary)
            .stderr(Stdio::null());
        run
    };
    let mut running = run().arg("budget").spawn().expect("the program starts");
    let tree = descendants_that_listen(&running);
    running.kill().expect("alive");
    running.wait().expect("an end");
    wait_for_end_of(&tree);
    let count = |folder: &Path| std::fs::read_dir(folder).expect("a folder").count();
    let deadline = Instant::now() + SOON;
    while count(&temporary) > 0 {
        assert!(Instant::now() < deadline, "folders are left");
        std::thread::sleep(Duration::from_millis(50));
    }
    // The next run removes the folder of the step.
    let out = folder.path().join("out");
    assert_eq!(count(&out), 1);
    assert!(run().arg("hit-ratio").status().expect("an end").success());
    let hidden = |entry: &std::fs::DirEntry| entry.file_name().as_encoded_bytes()[0] == b'.';
    let entries = std::fs::read_dir(&out).expect("a folder").flatten();
    assert_eq!(entries.filter(hidden).count(), 0);
}

#[test]
fn the_servers_of_a_killed_experiment_end_with_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let temporary = folder.path().join("temporary");
    std::fs::create_dir(&temporary).expect("a folder");
    let mut running = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .current_dir(folder.path())
        .args(["lab", "all", "--quick", "--folder", "out"])
        .args(["--only", "budget", "--only", "hit-ratio"])
        .env("TMPDIR", &temporary)
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let tree = descendants_that_listen(&running);
    // The first descendant is the experiment. The kernel ends it in the same way if memory is short.
    let experiment = Pid::from_raw(tree[0].cast_signed()).expect("a process id");
    kill_process(experiment, Signal::KILL).expect("alive");
    assert_eq!(running.wait().expect("an end").code(), Some(1));
    wait_for_end_of(&tree);
    let steps = &read(folder.path(), "run.json")["steps"];
    let error = steps[0]["error"].as_str().expect("a message");
    assert!(error.contains("signal: 9"), "{error}");
    assert!(steps[1]["error"].is_null(), "{steps:#}");
}

/// Waits until a descendant of a process listens. Returns all descendants.
fn descendants_that_listen(running: &Child) -> Vec<u32> {
    let deadline = Instant::now() + SOON;
    loop {
        let tree = descendants(running.id());
        if tree.iter().any(|id| listens(*id)) {
            return tree;
        }
        assert!(Instant::now() < deadline, "no server listens");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until these processes have ended.
fn wait_for_end_of(processes: &[u32]) {
    let pid = |id: u32| Pid::from_raw(id.cast_signed()).expect("a process id");
    let deadline = Instant::now() + SOON;
    while processes
        .iter()
        .any(|id| test_kill_process(pid(*id)).is_ok())
    {
        assert!(Instant::now() < deadline, "{processes:?} are left");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_interrupted_experiment_leaves_neither_servers_nor_folders() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let temporary = folder.path().join("temporary");
        std::fs::create_dir(&temporary).expect("a folder");
        let mut running = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(["lab", "budget", "--seconds", "600"])
            .current_dir(folder.path())
            .env("TMPDIR", &temporary)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let servers = descendants_that_listen(&running);
        let left = || std::fs::read_dir(&temporary).expect("a folder").count();
        assert!(left() > 0);
        // As with a terminal that is closed: nobody reads the progress any more, and the signal comes twice.
        drop(running.stderr.take());
        let pid = Pid::from_child(&running);
        kill_process(pid, signal).expect("alive");
        kill_process(pid, signal).expect("alive");
        assert_eq!(running.wait().expect("an end").code(), Some(130));
        wait_for_end_of(&servers);
        assert_eq!(left(), 0, "{signal:?}");
    }
}

/// Whether a process has a listening TCP socket.
fn listens(id: u32) -> bool {
    let table = std::fs::read_to_string(format!("/proc/{id}/net/tcp")).unwrap_or_default();
    let listening = table.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(3);
        let state = words.next()?;
        let inode = words.nth(5)?;
        (state == "0A").then(|| format!("socket:[{inode}]"))
    });
    let listening: Vec<String> = listening.collect();
    let Ok(files) = std::fs::read_dir(format!("/proc/{id}/fd")) else {
        return false;
    };
    let mut links = files.flatten().flat_map(|file| file.path().read_link());
    links.any(|link| {
        listening
            .iter()
            .any(|socket| link.as_os_str() == socket.as_str())
    })
}

/// Returns the children of a process and theirs.
fn descendants(id: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let list = list.unwrap_or_default();
    let children = list.split_whitespace().filter_map(|id| id.parse().ok());
    children
        .flat_map(|id| [vec![id], descendants(id)].concat())
        .collect()
}

#[test]
fn two_runs_are_compared_with_the_noise() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let experiment = |cold: f64, warm: f64| {
        let total = |ms: f64| {
            let rounds = json!({ "median": ms, "low": ms, "high": ms, "rounds": [ms, ms] });
            json!({ "total": rounds })
        };
        let ms = json!({ "cold": total(cold), "warm": total(warm) });
        json!({ "rounds": 2, "rows": [{ "name": "Sluice auto", "ms": ms }] })
    };
    let write = |name: &str, value: Value| {
        std::fs::write(folder.path().join(name), value.to_string()).expect("written");
    };
    write("a.json", experiment(5.0, 0.4));
    write("b.json", experiment(10.0, 0.41));
    let diff = |arguments: &[&str]| sluice(folder.path(), &[&["lab", "diff"], arguments].concat());
    let output = diff(&["a.json", "b.json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    let line = |name: &str| {
        table
            .lines()
            .find(|line| line.contains(name))
            .expect("a line")
            .to_owned()
    };
    assert!(line("cold: total").trim_end().ends_with("2.00"), "{table}");
    assert!(line("warm: total").ends_with("within the noise"), "{table}");
    let report: Value =
        serde_json::from_slice(&diff(&["a.json", "b.json", "--json"]).stdout).expect("JSON");
    assert_eq!(report["differences"][0]["ratio"], 2.0, "{report:#}");
    assert_eq!(
        report["differences"][0]["figure"],
        "Sluice auto: ms: cold: total"
    );

    write(
        "other.json",
        json!({ "rows": [{ "name": "h2o", "rate": 1 }] }),
    );
    write(
        "run.json",
        json!({ "format": 1, "steps": [{ "name": "storm" }] }),
    );
    std::fs::write(folder.path().join("text"), "no JSON").expect("written");
    for (first, second, problem) in [
        ("a.json", "none.json", "can't be read"),
        ("a.json", "text", "is no JSON"),
        ("a.json", "other.json", "different experiments"),
        ("run.json", "run.json", "the record has format 1"),
    ] {
        let output = diff(&[first, second]);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            text(&output.stderr).contains(problem),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_record_beside_another_file_is_refused_with_advice() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = lab_all(folder.path(), &["--quick", "--only", "hit-ratio"]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let files = ["lab", "diff", "out/run.json", "out/hit-ratio.json"];
    let output = sluice(folder.path(), &files);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("is the record of a run"), "{said}");
    assert!(said.contains("name two run.json"), "{said}");
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_that_names_the_option() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("file"), "").expect("written");
    // Nobody can create a folder there, not even root.
    for unusable in ["/proc/none/out", "file"] {
        let arguments = ["lab", "all", "--only", "hit-ratio", "--folder", unusable];
        let output = sluice(folder.path(), &arguments);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains("name another folder with --folder"), "{said}");
    }
}

#[test]
#[cfg(feature = "lab")]
fn a_placement_without_any_result_fails() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let arguments = "lab placement --only real --rounds 1 --real-seconds 1 --folder /proc/none";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let output = sluice(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("nothing was measured"), "{said}");
}

#[test]
fn results_of_bench_are_compared_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let origin = Origin::start(OriginOptions::default()).expect("an origin");
    let url = format!("http://{}/offset/100", origin.addr());
    let load = |name: &str, connections: &str| {
        let output = sluice(
            folder.path(),
            &[
                "bench",
                &url,
                "--requests",
                "200",
                "--connections",
                connections,
                "--json",
            ],
        );
        assert!(output.status.success(), "{}", text(&output.stderr));
        std::fs::write(folder.path().join(name), output.stdout).expect("written");
    };
    load("a.json", "2");
    load("b.json", "4");
    let output = sluice(
        folder.path(),
        &["lab", "diff", "a.json", "b.json", "--json"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let names: Vec<&str> = report["differences"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["figure"].as_str())
        .collect();
    assert!(names.contains(&"requests per s"), "{names:?}");
    assert!(names.contains(&"latency: p99 us"), "{names:?}");
    let verdicts = report["differences"].as_array().into_iter().flatten();
    assert!(
        verdicts
            .into_iter()
            .all(|one| one["within_noise"].is_null())
    );
    assert!(
        !names
            .iter()
            .any(|name| name.contains("connections") && !name.contains("per s"))
    );
    let notes = report["notes"].to_string();
    assert!(notes.contains("connections differs (2 and 4)"), "{notes}");
}

#[test]
fn the_figures_of_a_run_are_published() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let first = lab_all(folder.path(), &["--quick", "--only", "hit-ratio"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let figures =
        |arguments: &[&str]| sluice(folder.path(), &[&["lab", "figures"], arguments].concat());
    let output = figures(&["out/run.json", "--folder", "new/docs"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        "new/docs/figures.json\nnew/docs/figures.md\n"
    );
    let page = std::fs::read_to_string(folder.path().join("new/docs/figures.md")).expect("a page");
    let run = read(folder.path(), "run.json");
    let share = run["steps"][0]["data"]["rows"][0]["s3_fifo"].as_f64();
    let share = format!("| {:.1} % |", 100.0 * share.expect("a share"));
    assert!(page.contains(&share), "{share}: {page}");
    let command = "sluice lab all --quick --only hit-ratio --folder sluice-figures\n";
    assert!(page.contains(command), "{page}");
    // The trimmed record gives the same page.
    let output = figures(&["new/docs/figures.json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let again = std::fs::read_to_string(folder.path().join("figures.md")).expect("a page");
    assert!(again == page);

    std::fs::write(folder.path().join("README.md"), "no block\n").expect("written");
    let output = figures(&["out/run.json", "--readme", "README.md"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("figures: begin"));
    let block = "<!-- figures: begin. Written by `cargo xtask figures` from docs/figures.json -->\n\
                 <!-- figures: end -->\n";
    std::fs::write(folder.path().join("README.md"), block).expect("written");
    let output = figures(&["out/run.json", "--readme", "README.md"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("the block would be empty"), "{said}");
    std::fs::write(folder.path().join("a.json"), "{}").expect("written");
    let output = figures(&["a.json"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no record of a run"));
}
