//! The facts about a finished handshake, and the reasons for which a handshake fails.

use std::num::NonZeroU8;

use rustls::{AlertDescription, CommonState, Error, HandshakeKind, PeerIncompatible};

use super::options::{CipherSuite, Group, Version};

/// The facts about a connection's TLS session that gates and logs need. Takes one byte, since each idle connection has
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session(NonZeroU8);

/// The facts with two values.
#[derive(Clone, Copy)]
struct Flags {
    resumed: bool,
    /// Whether the client has a valid certificate.
    certified: bool,
}

/// Number of values of a group, including none.
const GROUPS: u8 = Group::ALL.len() as u8 + 1;

impl Session {
    /// Returns the facts about a connection whose handshake is complete. `None` if it has parameters that no
    /// configuration permits.
    pub fn of(connection: &CommonState) -> Option<Session> {
        let suite = connection.negotiated_cipher_suite()?;
        let group = connection.negotiated_key_exchange_group();
        let group = group.and_then(|group| Group::of(group.name()));
        let flags = Flags {
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            certified: connection.peer_certificates().is_some(),
        };
        Session::new(CipherSuite::of(suite.suite())?, group, flags)
    }

    fn new(cipher: CipherSuite, group: Option<Group>, flags: Flags) -> Option<Session> {
        let group = group.map_or(0, |group| group as u8 + 1);
        let both = cipher as u8 * GROUPS + group;
        let flags = u8::from(flags.resumed) + 2 * u8::from(flags.certified);
        NonZeroU8::new(1 + 4 * both + flags).map(Session)
    }

    fn both(self) -> u8 {
        (self.0.get() - 1) / 4
    }

    fn flags(self) -> u8 {
        (self.0.get() - 1) % 4
    }

    fn suite(self) -> CipherSuite {
        let all = CipherSuite::ALL;
        all[usize::from(self.both() / GROUPS).min(all.len() - 1)]
    }

    /// Returns the version, as in `TLSv1.3`.
    pub fn version(self) -> &'static str {
        match self.suite().version() {
            Version::Tls12 => "TLSv1.2",
            Version::Tls13 => "TLSv1.3",
        }
    }

    /// Returns the cipher suite, as in `TLS_AES_128_GCM_SHA256`.
    pub fn cipher(self) -> &'static str {
        self.suite().name()
    }

    /// Returns the group of the key exchange, as in `X25519`. `None` if a TLS 1.2 session was resumed, which exchanges
    /// no keys.
    pub fn group(self) -> Option<&'static str> {
        let index = usize::from(self.both() % GROUPS).checked_sub(1)?;
        Group::ALL.get(index).map(|group| group.name())
    }

    /// Whether the session was resumed.
    pub fn resumed(self) -> bool {
        self.flags() & 1 != 0
    }

    /// Whether the client has a valid certificate.
    pub fn certified(self) -> bool {
        self.flags() & 2 != 0
    }
}

/// The settings by which a connection's handshake was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Index of the listener's TLS.
    pub listener: u16,
    /// Identity of the demands on the client's certificate: see `Server::permits`.
    pub policy: [u8; 32],
}

/// The reason for which a handshake failed, with the name that logs and counters show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The client offers only versions that are too old.
    Version,
    /// Client and server have no cipher suite, group or signature scheme in common.
    Parameters,
    /// The client named an unknown host.
    UnknownName,
    /// There is no certificate yet for the host that the client named.
    NoCertificate,
    /// The client offered only unknown protocols (ALPN).
    Protocol,
    /// The client's certificate is missing or not valid.
    ClientCertificate,
    /// The client refused the handshake, usually since it does not trust the certificate.
    ByClient,
    /// The client sent no TLS.
    NotTls,
    /// The client broke the rules of TLS.
    Malformed,
    /// The handshake took too long.
    Timeout,
    /// The handshake was the oldest unfinished one, and had to make room for another one.
    Cut,
    /// The connection was closed to make room, since the limit of connections was reached.
    Evicted,
    /// The client closed the connection.
    Closed,
    /// The server failed.
    Internal,
}

impl Refusal {
    /// Returns the reason for an error.
    pub fn of(error: &Error) -> Refusal {
        match error {
            Error::PeerIncompatible(
                // Clients have to send this extension since TLS 1.2 (RFC 5246 7.4.1.4.1).
                PeerIncompatible::SignatureAlgorithmsExtensionRequired
                | PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::Tls13RequiredForQuic
                | PeerIncompatible::SupportedVersionsExtensionRequired,
            ) => Refusal::Version,
            Error::PeerIncompatible(_) => Refusal::Parameters,
            Error::NoApplicationProtocol => Refusal::Protocol,
            Error::NoCertificatesPresented | Error::InvalidCertificate(_) => {
                Refusal::ClientCertificate
            }
            Error::AlertReceived(AlertDescription::CloseNotify) => Refusal::Closed,
            Error::AlertReceived(_) => Refusal::ByClient,
            Error::InvalidMessage(_)
            | Error::PeerMisbehaved(_)
            | Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. }
            | Error::DecryptError
            | Error::PeerSentOversizedRecord => Refusal::Malformed,
            _ => Refusal::Internal,
        }
    }

    /// Returns the name of the reason.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Version => "tls-version",
            Refusal::Parameters => "tls-parameters",
            Refusal::UnknownName => "tls-unknown-name",
            Refusal::NoCertificate => "tls-no-certificate",
            Refusal::Protocol => "tls-protocol",
            Refusal::ClientCertificate => "tls-client-certificate",
            Refusal::ByClient => "tls-refused-by-client",
            Refusal::NotTls => "not-tls",
            Refusal::Malformed => "tls-malformed",
            Refusal::Timeout => "tls-timeout",
            Refusal::Cut => "tls-cut",
            Refusal::Evicted => "tls-evicted",
            Refusal::Closed => "tls-closed",
            Refusal::Internal => "tls-internal",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_session_fits_into_its_byte() {
        assert_eq!(size_of::<Option<Session>>(), 1);
        for &cipher in CipherSuite::ALL {
            let groups = Group::ALL.iter().copied().map(Some);
            for group in groups.chain([None]) {
                for (resumed, certified) in
                    [(false, false), (false, true), (true, false), (true, true)]
                {
                    let flags = Flags { resumed, certified };
                    let session = Session::new(cipher, group, flags).expect("a session");
                    assert_eq!(session.cipher(), cipher.name());
                    assert_eq!(session.group(), group.map(Group::name));
                    assert_eq!(session.resumed(), resumed);
                    assert_eq!(session.certified(), certified);
                }
            }
        }
    }
}
