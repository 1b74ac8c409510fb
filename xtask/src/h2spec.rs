//! The step `h2spec` of `cargo xtask soak`: the public suite of HTTP/2 tests against Sluice, over TLS and in clear text.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sluice_lab::certificates::Issued;
use sluice_lab::process::{Launch, Process};

use crate::tools;

/// The suite, whose hash Go verifies.
const PACKAGE: &str = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible";

/// Longest wait for a server to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs all tests of the suite, the strict ones included. If Go is missing, fails in CI and prints a note elsewhere.
pub fn step() -> Result<()> {
    if !tools::succeeds("go", &["version"]) {
        const MISSING: &str = "h2spec needs Go, which cannot be run: apt-get install golang-go";
        if tools::in_ci() {
            bail!(MISSING);
        }
        println!("HTTP/2 is NOT tested: {MISSING}");
        return Ok(());
    }
    let suite = tools::go_program("h2spec", PACKAGE)?;
    tools::run(Command::new("cargo").args(["build", "--quiet", "--package", "sluice"]))?;
    let folder = tempfile::Builder::new().prefix("h2spec-").tempdir()?;
    let issued = Issued::new("h2spec", &["localhost", "127.0.0.1"])?;
    let mut sluice = start(folder.path(), &issued)?;
    for (scheme, options) in [("http", &[][..]), ("https", &["--tls", "--insecure"])] {
        let line = sluice.wait_line(&format!("listening on {scheme}://"), START_TIMEOUT)?;
        let port = line.trim_end().rsplit(':').next();
        let port = port.with_context(|| format!("no port in {line:?}"))?;
        println!("h2spec: {scheme}");
        tools::run(
            Command::new(&suite)
                .args(["--strict", "--host", "127.0.0.1", "--port", port])
                .args(options),
        )?;
    }
    Ok(())
}

/// Starts Sluice with a listener in clear text and one with TLS. The first one speaks only HTTP/2: with HTTP/1.1, a wrong
/// preface would be a request.
fn start(folder: &Path, issued: &Issued) -> Result<Process> {
    let text = format!(
        "[admin]\naddress = false\n[[listener]]\naddress = \"127.0.0.1:0\"\nprotocols = \"h2\"\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\ntls = {{ {} }}\n\
         [[route]]\nrespond = \"The tests of flow control need a response of some bytes.\"\n",
        issued.files.keys()
    );
    let file = folder.join("sluice.toml");
    std::fs::write(&file, text)?;
    let program = tools::target_folder()?.join("debug/sluice");
    let file = file.display().to_string();
    let launch = Launch::new("sluice", program, folder);
    launch.args(["serve", "-c", &file]).start()
}
