//! Rows of the bench over TLS: cache hits, files, handshakes, and memory of idle connections.

use std::net::SocketAddr;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::contest::{Contender, Contest, Per, nginxes, sluice};
use super::memory;
use super::statics;
use super::table::{Row, Unit};
use super::{Bench, Files, SluiceOptions, pages};
use crate::certificates::{Authority, PairFiles};
use crate::client::{self, ClientTls};
use crate::load::LoadTls;
use crate::origin::{Origin, OriginOptions};
use crate::rivals::{NginxMode, NginxOptions};

const SMALL: u64 = 5 << 10;
const LARGE: u64 = 1 << 20;
const FILE: u64 = 100 << 20;
const FILES: u64 = 4;

/// Name of the servers in their certificate.
pub(super) const NAME: &str = "localhost";
/// The group that all servers know, including those with an old OpenSSL.
const GROUP: &str = "X25519";
/// The group that browsers prefer.
const HYBRID: &str = "X25519MLKEM768";

/// A certificate for all servers of a contest, with an ECDSA key (P-256), and the client's side.
pub(super) struct Certified {
    /// Files of certificate and key.
    pub(super) pair: PairFiles,
    client: ClientTls,
    /// TLS of the load generator.
    pub(super) load: LoadTls,
    /// Certificate of the authority, in DER.
    pub(super) authority: Vec<u8>,
}

impl Certified {
    pub(super) fn new(bench: &Bench<'_>) -> anyhow::Result<Certified> {
        let folder = bench.folder.path();
        let authority = Authority::new("Bench authority");
        let path = folder.join("authority.der");
        std::fs::write(&path, authority.der())?;
        Ok(Certified {
            pair: authority
                .server(&[NAME, "127.0.0.1"])
                .write(folder, "server")?,
            client: ClientTls::trusting(&authority.der(), NAME),
            load: LoadTls {
                authority: path,
                name: NAME.to_owned(),
                group: Some(GROUP.to_owned()),
                resumed: false,
            },
            authority: authority.der(),
        })
    }

    /// Returns the first message of a client.
    pub(super) fn hello(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let name = ServerName::try_from(NAME).ok();
        let session =
            name.and_then(|name| ClientConnection::new(self.client.config.clone(), name).ok());
        if let Some(mut session) = session {
            // Writing to memory can't fail.
            let _ = session.write_tls(&mut bytes);
        }
        bytes
    }

    pub(super) fn nginx(&self, mode: NginxMode, origin: Option<SocketAddr>) -> NginxOptions {
        let mut options = NginxOptions::new(mode, origin);
        options.tls = Some(self.pair.clone());
        // nginx 1.22 offers TLS 1.3 only if configured.
        options.directive("ssl_protocols", "TLSv1.2 TLSv1.3")
    }

    pub(super) fn sluice(&self, options: SluiceOptions) -> SluiceOptions {
        SluiceOptions {
            tls: Some(self.pair.clone()),
            ..options
        }
    }

    /// Starts nginx and Sluice with a cache in front of the origin.
    pub(super) fn caches(
        &self,
        bench: &Bench<'_>,
        origin: &Origin,
    ) -> anyhow::Result<Vec<Contender>> {
        let nginx = self.nginx(NginxMode::Cached, Some(origin.addr()));
        let mut contenders = nginxes(bench, &nginx)?;
        contenders.extend(sluice(bench, |binary| {
            self.sluice(SluiceOptions {
                memory: Some("256MiB".to_owned()),
                ..SluiceOptions::new(binary, origin.addr())
            })
        })?);
        self.trust(&contenders);
        Ok(contenders)
    }

    /// Makes the lab's client use TLS with these servers.
    pub(super) fn trust(&self, contenders: &[Contender]) {
        for one in contenders {
            client::encrypt_all_to(one.server.address(), self.client.clone());
        }
    }
}

pub(super) fn hit_5k(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    hits(bench, "TLS memory hit, 5 KB, 16 connections", SMALL, 0.8)
}

pub(super) fn hit_1m(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    hits(bench, "TLS memory hit, 1 MiB, 16 connections", LARGE, 0.6)
}

fn hits(bench: &Bench<'_>, name: &str, body: u64, goal: f64) -> anyhow::Result<Vec<Row>> {
    let certified = Certified::new(bench)?;
    let origin = Origin::start(OriginOptions::default())?;
    let contenders = certified.caches(bench, &origin)?;
    let contest = Contest {
        tls: Some(certified.load.clone()),
        ..Contest::of_offset(name, body, 16)
    };
    let measured = contest.measure(bench, &contenders)?;
    Ok(contest.rows(&measured, goal))
}

/// Measures a handshake with one request of 5 KB for each connection.
pub(super) fn handshakes(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let certified = Certified::new(bench)?;
    let origin = Origin::start(OriginOptions::default())?;
    let contenders = certified.caches(bench, &origin)?;
    let mut rows = Vec::new();
    for (name, group, resumed, goal) in [
        ("TLS full handshake (X25519), 5 KB hit", GROUP, false, 0.6),
        ("TLS resumed (X25519), 5 KB hit", GROUP, true, 0.65),
        (
            "TLS full handshake (X25519MLKEM768), 5 KB hit",
            HYBRID,
            false,
            0.6,
        ),
    ] {
        let load = LoadTls {
            group: Some(group.to_owned()),
            resumed,
            ..certified.load.clone()
        };
        let contest = Contest {
            tls: Some(load),
            ..Contest::of_offset(name, SMALL, 16).short()
        };
        // nginx 1.22 lacks the hybrid group, so it is measured with X25519 only.
        let knows = |one: &&Contender| group == GROUP || one.column.is_sluice();
        let (known, others): (Vec<_>, Vec<_>) = contenders.iter().partition(knows);
        let mut measured = contest.measure_each(bench, &known)?;
        if !others.is_empty() {
            let classic = Contest {
                tls: Some(certified.load.clone()),
                ..Contest::of_offset(name, SMALL, 16).short()
            };
            measured.extend(classic.measure_each(bench, &others)?);
        }
        rows.extend(contest.rows(&measured, goal));
    }
    Ok(rows)
}

pub(super) fn static_100m(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let certified = Certified::new(bench)?;
    let root = bench.folder.path().join("large-tls");
    pages::offset_files(&root, FILES, FILE as usize)?;
    let nginx = certified.nginx(NginxMode::Static(root.clone()), None);
    let mut contenders = nginxes(bench, &nginx)?;
    contenders.extend(sluice(bench, |binary| {
        certified.sluice(statics::sluice_files(binary, Files::new(&root)))
    })?);
    certified.trust(&contenders);
    let contest = Contest {
        per: Per::Mebibyte,
        tls: Some(certified.load.clone()),
        ..Contest::of_offset("TLS static file, 100 MiB, 8 clients", FILE, 8).of_many("/{n}", FILES)
    };
    let measured = contest.measure(bench, &contenders)?;
    std::fs::remove_dir_all(&root)?;
    Ok(contest.rows(&measured, 0.7))
}

pub(super) fn idle(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let certified = Certified::new(bench)?;
    let origin = Origin::start(OriginOptions::default())?;
    let mut row = Row::new("TLS idle keepalive connection: memory", Unit::Bytes);
    for one in certified.caches(bench, &origin)? {
        let bytes = memory::idle_bytes(one.server.address(), one.server.process())?;
        match one.column.is_sluice() {
            true => row.sluice = Some(bytes),
            false => row.nginx = Some(row.nginx.map_or(bytes, |other| other.min(bytes))),
        }
    }
    Ok(vec![row.goal_most(12_000.0)])
}
