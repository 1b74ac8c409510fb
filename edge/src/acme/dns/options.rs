//! The options of the challenge DNS-01 (`dns` in `[tls.acme]`), as the plan has them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How the records of challenges are set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsOptions {
    /// The setter of the records.
    pub setter: Setter,
    /// Longest time until the name servers have a new record. `None`: they are not asked.
    pub propagation: Option<Duration>,
    /// Name servers that are asked for the record. Empty: those of the zone.
    pub name_servers: Vec<SocketAddr>,
}

/// A program or server that sets and removes records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setter {
    /// A program of the operator.
    Program(ProgramOptions),
    /// Dynamic updates (RFC 2136).
    Update(UpdateOptions),
}

/// A program that sets and removes records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramOptions {
    /// The program and its first arguments, at least the program.
    pub command: Vec<String>,
    /// Longest time until the program has ended.
    pub timeout: Duration,
}

/// Dynamic updates (RFC 2136), signed with TSIG (RFC 8945).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateOptions {
    /// Address of the zone's primary name server.
    pub server: SocketAddr,
    /// Name of the key on the name server.
    pub key_name: String,
    /// File of the key: its secret in base64, or what `tsig-keygen` writes.
    pub key: PathBuf,
    /// The algorithm of the key.
    pub algorithm: Algorithm,
    /// Name of the zone. `None`: the name server is asked for it.
    pub zone: Option<String>,
    /// Time for which resolvers may keep the record, in seconds.
    pub ttl_s: u32,
}

/// The algorithm of a key. RFC 8945 6 recommends none of the others, and truncated ones are not supported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC with SHA-256.
    #[default]
    HmacSha256,
    /// HMAC with SHA-384.
    HmacSha384,
    /// HMAC with SHA-512.
    HmacSha512,
}
