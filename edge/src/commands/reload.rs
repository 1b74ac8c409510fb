//! `sluice reload`: makes a running Sluice read its configuration again.

use anyhow::bail;

use super::admin::AdminArgs;
use super::output::say;

pub fn run(args: &AdminArgs) -> anyhow::Result<()> {
    let reply = args.request("POST", "/reload")?;
    match reply.status {
        200 => say(&reply.text()),
        _ => bail!(
            "the configuration was not changed\n{}",
            reply.text().trim_end()
        ),
    }
}
