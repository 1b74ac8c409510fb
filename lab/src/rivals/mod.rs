//! Servers to measure against: nginx, and a floor below which no server on sockets can get.

pub mod floor;
pub mod nginx;

pub use floor::{Floor, FloorOptions};
pub use nginx::{Nginx, NginxMode, NginxOptions};
