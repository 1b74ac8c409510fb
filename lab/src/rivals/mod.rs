//! Servers to compare with: nginx, HAProxy, h2o, Varnish, and a floor server whose CPU time is a lower bound for every server.

pub mod floor;
pub mod h2o;
pub mod haproxy;
pub mod nginx;
pub mod varnish;

pub use floor::{Floor, FloorOptions};
pub use h2o::{H2o, H2oOptions};
pub use haproxy::{Haproxy, HaproxyOptions};
pub use nginx::{Nginx, NginxMode, NginxOptions};
pub use varnish::Varnish;

use std::path::PathBuf;

/// Returns the path of a program: in PATH, or else at one of `places`.
fn find(program: &str, places: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .chain(places.iter().map(PathBuf::from))
        .find(|candidate| candidate.is_file())
}
