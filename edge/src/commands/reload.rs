//! `sluice reload`: lets a running edge read its configuration again.

use anyhow::bail;

use super::{AdminArgs, say};

pub fn run(args: &AdminArgs) -> anyhow::Result<()> {
    let reply = args.request("POST", "/reload")?;
    match reply.status {
        200 => say(&reply.text()),
        _ => bail!("nothing was changed\n{}", reply.text().trim_end()),
    }
}
