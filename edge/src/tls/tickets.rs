//! Session tickets (RFC 5077, RFC 8446 4.6.1): their keys, which change with time and which all workers share.
//!
//! A ticket holds the whole session, so that the edge keeps nothing. All listeners use the same keys. Where clients'
//! certificates are verified, there are no tickets (CVE-2025-23419).

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, rand};
use parking_lot::RwLock;
use rustls::server::ProducesTickets;

use super::loading::{self, LoadError};
use super::options::TicketOptions;
use crate::sys::Clock;

/// Time in seconds for which a key makes tickets. Tickets are read for at least as long again.
const ROTATION_S: u64 = 12 * 3600;
/// Shortest secret in a file, in bytes.
const SECRET_BYTES_MIN: usize = 32;
/// Length of a key's name, which begins a ticket.
const NAME_BYTES: usize = 16;

/// The keys of tickets. Makes and reads the tickets of all connections.
pub struct TicketKeys {
    clock: Clock,
    source: Source,
    /// The keys of the current period, once they were used.
    ring: RwLock<Option<Arc<Ring>>>,
}

/// The secrets from which keys are derived.
enum Source {
    /// A random secret for each period; only the last two are kept.
    Random(RwLock<Vec<(u64, [u8; 32])>>),
    /// Secrets from files. Their keys change with the period, too, on all edges at the same time.
    Shared(Vec<Vec<u8>>),
}

impl TicketKeys {
    /// Opens the keys of tickets. Returns `None` if tickets are off.
    ///
    /// # Errors
    ///
    /// A file with a secret can't be read or is too short.
    pub fn open(options: &TicketOptions, clock: Clock) -> Result<Option<TicketKeys>, LoadError> {
        let source = match options {
            TicketOptions::Off => return Ok(None),
            TicketOptions::Random => Source::Random(RwLock::default()),
            TicketOptions::Shared(files) => {
                let secrets = files.iter().map(|file| secret(file));
                Source::Shared(secrets.collect::<Result<_, _>>()?)
            }
        };
        Ok(Some(TicketKeys::new(clock, source)))
    }

    fn new(clock: Clock, source: Source) -> TicketKeys {
        TicketKeys {
            clock,
            source,
            ring: RwLock::default(),
        }
    }

    /// Whether these are the same secrets as `other`.
    pub fn is_same(&self, other: &TicketKeys) -> bool {
        match (&self.source, &other.source) {
            (Source::Random(_), Source::Random(_)) => true,
            (Source::Shared(ours), Source::Shared(theirs)) => ours == theirs,
            _ => false,
        }
    }

    /// Returns the number of the current period.
    fn period(&self) -> u64 {
        self.clock.unix_ms() / 1000 / ROTATION_S
    }

    /// Returns the keys of the current period.
    fn current(&self) -> Option<Arc<Ring>> {
        let period = self.period();
        let known = self.ring.read().clone();
        if let Some(ring) = known.filter(|ring| ring.period == period) {
            return Some(ring);
        }
        let ring = Arc::new(self.ring(period)?);
        *self.ring.write() = Some(ring.clone());
        Some(ring)
    }

    /// Returns the keys of a period: first the one that makes tickets, then those that read them.
    fn ring(&self, period: u64) -> Option<Ring> {
        let mut keys = Vec::new();
        match &self.source {
            Source::Shared(secrets) => {
                // The clocks of two edges may differ, so the next period counts, too.
                for period in [period, period.saturating_sub(1), period + 1] {
                    for secret in secrets {
                        keys.push(TicketKey::derive(secret, period)?);
                    }
                }
            }
            Source::Random(secrets) => {
                let mut secrets = secrets.write();
                secrets.retain(|(of, _)| of + 1 >= period);
                if !secrets.iter().any(|(of, _)| *of == period) {
                    let mut secret = [0; 32];
                    rand::fill(&mut secret).ok()?;
                    secrets.insert(0, (period, secret));
                }
                secrets.sort_by_key(|(of, _)| *of != period);
                for (of, secret) in secrets.iter() {
                    keys.push(TicketKey::derive(secret, *of)?);
                }
            }
        }
        Some(Ring { period, keys })
    }
}

/// Reads a secret from a file: its bytes in hexadecimal or any other text, without the line's end.
///
/// # Errors
///
/// The file can't be read, is not text, or is too short.
pub fn secret(file: &Path) -> Result<Vec<u8>, LoadError> {
    let text = loading::read(
        file,
        "a secret is text here: make one with `openssl rand -hex 32`",
    )?;
    let secret = text.trim();
    match secret.len() >= SECRET_BYTES_MIN {
        true => Ok(secret.as_bytes().to_vec()),
        false => Err(loading::error(
            file,
            "the secret is shorter than 32 characters",
            "make one: `openssl rand -hex 32`",
        )),
    }
}

/// The keys of one period.
struct Ring {
    period: u64,
    keys: Vec<TicketKey>,
}

struct TicketKey {
    name: [u8; NAME_BYTES],
    key: LessSafeKey,
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl TicketKey {
    fn derive(secret: &[u8], period: u64) -> Option<TicketKey> {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"sluice session tickets");
        let prk = salt.extract(secret);
        let mut bytes = [0; NAME_BYTES + 32];
        prk.expand(&[&period.to_be_bytes()], Length(bytes.len()))
            .and_then(|okm| okm.fill(&mut bytes))
            .ok()?;
        let (name, key) = bytes.split_at(NAME_BYTES);
        Some(TicketKey {
            name: name.try_into().ok()?,
            key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, key).ok()?),
        })
    }

    /// Returns name, nonce and ciphertext. The cipher stays safe even if two random nonces are equal.
    fn seal(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        self.key
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(self.name),
                &mut sealed,
            )
            .ok()?;
        Some([&self.name[..], &nonce, &sealed].concat())
    }

    /// Returns the plaintext of a ticket without its name.
    fn open(&self, rest: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut plain = sealed.to_vec();
        let length = self
            .key
            .open_in_place(nonce, Aad::from(self.name), &mut plain)
            .ok()?
            .len();
        plain.truncate(length);
        Some(plain)
    }
}

impl ProducesTickets for TicketKeys {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        ROTATION_S as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.current()?.keys.first()?.seal(plain)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME_BYTES)?;
        let ring = self.current()?;
        ring.keys.iter().find(|key| key.name == name)?.open(rest)
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKeys")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_S: u64 = 1_000 * ROTATION_S;

    fn random(clock: &Clock) -> Arc<TicketKeys> {
        let keys = TicketKeys::open(&TicketOptions::Random, clock.clone());
        Arc::new(keys.expect("no file").expect("tickets"))
    }

    fn shared(clock: &Clock, secrets: &[&str]) -> Arc<TicketKeys> {
        let secrets = secrets.iter().map(|text| text.as_bytes().to_vec());
        Arc::new(TicketKeys::new(
            clock.clone(),
            Source::Shared(secrets.collect()),
        ))
    }

    #[test]
    fn a_ticket_is_read_until_its_key_is_two_periods_old() {
        let clock = Clock::manual(START_S);
        let keys = random(&clock);
        let ticket = keys.encrypt(b"session").expect("a ticket");
        assert_eq!(keys.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        clock.advance_us(ROTATION_S * 1_000_000);
        assert_eq!(keys.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        let later = keys.encrypt(b"later").expect("a ticket");
        assert_ne!(later[..NAME_BYTES], ticket[..NAME_BYTES]);
        clock.advance_us(ROTATION_S * 1_000_000);
        assert_eq!(keys.decrypt(&ticket), None);
        assert_eq!(keys.decrypt(&later).as_deref(), Some(&b"later"[..]));
    }

    #[test]
    fn edges_with_the_same_secret_read_one_anothers_tickets() {
        let (clock, late) = (Clock::manual(START_S), Clock::manual(START_S - 1));
        let (old, new) = ("a secret of many letters", "another secret of many letters");
        let here = shared(&clock, &[old]);
        let there = shared(&late, &[new, old]);
        let ticket = here.encrypt(b"session").expect("a ticket");
        assert!(there.decrypt(&ticket).is_some());
        let ticket = there.encrypt(b"session").expect("a ticket");
        assert_eq!(
            here.decrypt(&ticket),
            None,
            "the new secret is unknown here"
        );
    }

    #[test]
    fn a_damaged_ticket_is_not_read() {
        let keys = random(&Clock::manual(START_S));
        let ticket = keys.encrypt(b"session").expect("a ticket");
        for at in 0..ticket.len() {
            let mut damaged = ticket.clone();
            damaged[at] ^= 1;
            assert_eq!(keys.decrypt(&damaged), None);
            assert_eq!(keys.decrypt(&ticket[..at]), None);
        }
    }
}
