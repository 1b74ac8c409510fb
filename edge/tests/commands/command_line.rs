//! Tests of the command line itself: help, colours, completions and manual pages.

use std::path::Path;
use std::process::Command;

use crate::{sluice, text};

fn printed(arguments: &[&str]) -> String {
    let output = sluice(Path::new("/"), arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn the_help_lists_commands_by_group_and_has_examples() {
    let help = printed(&["--help"]);
    for part in [
        "\nRun:\n  demo ",
        "\nOperate:\n  purge ",
        "\nOptions:\n",
        "\nEnvironment:\n",
    ] {
        assert!(help.contains(part), "{part}: {help}");
    }
    let help = printed(&["purge", "--help"]);
    let example = "\nExamples:\n  sluice purge http://";
    assert!(help.contains(example), "{help}");
    assert!(
        help.contains("the purge is in force on all workers"),
        "{help}"
    );
}

#[test]
fn colours_are_a_choice() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let is_coloured = |arguments: &[&str]| {
        let output = sluice(folder.path(), arguments);
        let all = [output.stdout, output.stderr].concat();
        assert!(!all.is_empty(), "{arguments:?}");
        all.contains(&0x1b)
    };
    for (arguments, coloured) in [
        (&["check", "none.toml"][..], false),
        (&["check", "none.toml", "--color", "always"], true),
        (&["--color=always", "check", "none.toml"], true),
        (&["--color", "never", "check", "none.toml"], false),
        (&["--color", "always", "--help"], true),
        (&["--help"], false),
        (&["--color=always", "purge"], true),
        (&["--color=never", "purge"], false),
    ] {
        assert_eq!(is_coloured(arguments), coloured, "{arguments:?}");
    }
}

#[test]
fn shells_get_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = printed(&["completions", shell]);
        assert!(
            script.contains("purge") && script.contains("config"),
            "{shell}"
        );
        assert!(!script.contains('\u{1b}'), "{shell}");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("sluice.bash");
    std::fs::write(&file, printed(&["completions", "bash"])).expect("a file");
    let ask = "source \"$0\" && COMP_WORDS=(sluice pur) COMP_CWORD=1 \
               && _sluice sluice pur sluice && echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash").args(["-c", ask]).arg(&file).output();
    let output = output.expect("bash starts");
    assert_eq!(text(&output.stdout), "purge\n", "{}", text(&output.stderr));
}

#[test]
fn manual_pages_are_printed_and_written() {
    let page = printed(&["man", "purge"]);
    assert!(page.contains(".TH sluice-purge 1"), "{page}");
    assert!(page.contains("\\-\\-prefix"), "{page}");
    assert!(
        page.contains("\nsluice purge http://cdn.example.com/video.mp4\n")
            || page.contains("\n  sluice purge http://cdn.example.com/video.mp4\n"),
        "{page}"
    );
    assert!(printed(&["man"]).contains(".TH sluice 1"));
    assert!(printed(&["man", "lab", "storm"]).contains(".TH sluice-lab-storm 1"));

    let folder = tempfile::tempdir().expect("a temporary folder");
    let pages = folder.path().join("a/man1");
    printed(&["man", "--folder", &pages.display().to_string()]);
    for name in [
        "sluice.1",
        "sluice-purge.1",
        "sluice-lab-storm.1",
        "sluice-man.1",
    ] {
        assert!(pages.join(name).is_file(), "{name}");
    }
    assert!(!pages.join("sluice-dns-program.1").exists());

    let output = sluice(folder.path(), &["man", "pruge"]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(
        error.contains("there is no command `pruge`") && error.contains("purge"),
        "{error}"
    );
}
