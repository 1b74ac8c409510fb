//! TLS with clients and with servers: certificates by name, the settings of handshakes, session tickets, and the stream
//! of records. Has no sockets: its users have the byte stream below.

mod async_wire;
mod certificate;
mod client;
mod client_certificates;
#[cfg(test)]
mod client_tests;
mod connect_error;
mod demand;
mod incomplete;
mod loaded;
mod loading;
mod managed;
mod names;
mod options;
mod parameters;
mod pieces;
mod server;
mod server_certificates;
mod session;
mod stream;
mod tickets;
mod wire;

pub use async_wire::AsyncWire;
pub use certificate::{Certificate, ChainDefect, Facts};
pub use client::Client;
pub use client_certificates::{ClientCertificate, check_authorities};
pub use connect_error::ConnectError;
pub use demand::{Allowed, Demand};
pub use incomplete::Incomplete;
pub use loaded::{LoadResult, LoadedFiles, Loader};
pub use loading::{LoadError, load, parse};
pub use managed::{CHALLENGE_PROTOCOL, Managed};
pub use options::{
    CertificateFiles, CipherSuite, ClientCertificates, ClientOptions, Group, HttpsRedirect,
    ListenerTls, Management, Options, SiteTls, TicketOptions, Trust, UnknownName, Version,
};
pub use server::{NoSettings, OpenError, Server, Site};
pub use server_certificates::system_file;
pub use session::{Refusal, Session, Terms};
pub use stream::{HandshakeError, Stream};
pub use tickets::{TicketKeys, secret};
pub use wire::Wire;
