//! One order (RFC 8555 7.4): from the names to a stored certificate. After a restart, it continues where it was.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeStatus, ChallengeType, Error,
    Identifier, NewOrder, Order, OrderStatus, RetryPolicy,
};

use super::authority::Authority;
use super::challenges::{Challenges, Published};
use super::dns::Records;
use super::failure::Failure;
use super::options::{Challenge, Options};
use super::record::{self, PendingOrder, Record};
use super::storage::Storage;
use super::{failure, key, window};
use crate::sys::Clock;
use crate::tls::{self, Certificate};

/// How the state of an order is asked for until the authority has decided. A longer wait that the authority asks for
/// counts (Retry-After).
const POLLS: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));

/// Longest text of a key and a chain of certificates, in bytes.
const PEM_BYTES_MAX: usize = 100_000;
/// Problems with which an authority refuses to replace a certificate by an order.
const REPLACED: [&str; 3] = ["alreadyReplaced", "malformed", "conflict"];

/// The things that an order needs.
pub struct Ordering<'a> {
    /// The account with the authority.
    pub account: &'a Account,
    /// The authority.
    pub authority: &'a Authority,
    /// The certificate that the new one replaces.
    pub replaced: Option<&'a Certificate>,
    /// The options of all certificates.
    pub options: &'a Options,
    /// The answers to challenges.
    pub challenges: &'a Arc<Challenges>,
    /// The place of the certificate and its record.
    pub storage: &'a dyn Storage,
    /// The clock.
    pub clock: &'a Clock,
}

impl Ordering<'_> {
    /// Obtains a certificate for the names of the record, and stores it.
    ///
    /// # Errors
    ///
    /// The authority refused the order or did not decide in time, or the storage failed.
    pub async fn obtain(&self, record: &mut Record) -> Result<Certificate, Failure> {
        let (mut order, mut pending) = match self.resume(record).await? {
            Some(resumed) => resumed,
            None => self.begin(record).await?,
        };
        if order.state().status == OrderStatus::Pending {
            let authorized = self.authorize(&mut order, record).await;
            if order.state().status == OrderStatus::Invalid {
                self.note(record, None)?;
            }
            authorized?;
        }
        if order.state().status == OrderStatus::Ready {
            let key = match &pending.key {
                Some(key) => key.clone(),
                None => key::generate(self.options.key_type).map_err(Failure::new)?,
            };
            // The key is stored first: without it, a certificate that the authority has issued is lost.
            pending.key = Some(key.clone());
            self.note(record, Some(&pending))?;
            let request = key::request(&key, &record.names).map_err(Failure::new)?;
            if let Err(error) = order.finalize_csr(&request).await {
                let is_bad =
                    ["badCSR", "badPublicKey"].map(|name| failure::is_problem(&error, name));
                if is_bad.contains(&true) {
                    self.note(record, None)?;
                }
                return Err(error.into());
            }
        }
        let Some(key) = &pending.key else {
            self.note(record, None)?;
            return Err(Failure::new("the key of the ordered certificate is lost"));
        };
        let chain = self.certificate(&mut order).await;
        if order.state().status == OrderStatus::Invalid {
            self.note(record, None)?;
        }
        let chain = chain?;
        let text = format!("{key}\n{chain}");
        let certificate = match check(&text, &record.names, self.clock.unix_s()) {
            Ok(certificate) => certificate,
            Err(problem) => {
                // The next attempt orders another one.
                self.note(record, None)?;
                return Err(Failure::new(problem));
            }
        };
        record::write_pem(self.storage, &record.names, key, &chain)?;
        record.issued_by = Some(self.authority.url().to_owned());
        record.obtained_unix_s = self.clock.unix_s();
        record.window = None;
        record.window_asked_from_unix_s = 0;
        (record.failures, record.last_error, record.failed_with) = (0, None, None);
        record.not_before_unix_s = 0;
        self.note(record, None)?;
        Ok(certificate)
    }

    /// Stores the order in progress, or that there is none.
    fn note(&self, record: &mut Record, order: Option<&PendingOrder>) -> Result<(), Failure> {
        record.order = order.cloned();
        Ok(record.write(self.storage)?)
    }

    /// Returns the order that an earlier attempt has begun, unless it has failed.
    async fn resume(&self, record: &mut Record) -> Result<Option<(Order, PendingOrder)>, Failure> {
        let Some(pending) = record.order.clone() else {
            return Ok(None);
        };
        if pending.directory != self.authority.url() {
            self.note(record, None)?;
            return Ok(None);
        }
        let resumed = match self.account.order(pending.url.clone()).await {
            Ok(mut order) => {
                let has_failed = order.state().status == OrderStatus::Invalid;
                (!has_failed).then_some((order, pending))
            }
            // The authority does not know it any more.
            Err(Error::Api(_)) => None,
            Err(error) => return Err(error.into()),
        };
        if resumed.is_none() {
            self.note(record, None)?;
        }
        Ok(resumed)
    }

    async fn begin(&self, record: &mut Record) -> Result<(Order, PendingOrder), Failure> {
        // New names of which clients decide leave room for those of the configuration, and for renewals.
        let is_new = record.on_demand && self.replaced.is_none();
        let reserve = if is_new {
            self.options.orders_max / 2
        } else {
            0
        };
        self.authority.take_order(self.clock.unix_s(), reserve)?;
        let order = self.new_order(record).await?;
        let pending = PendingOrder {
            directory: self.authority.url().to_owned(),
            url: order.url().to_owned(),
            key: None,
        };
        self.note(record, Some(&pending))?;
        Ok((order, pending))
    }

    async fn new_order(&self, record: &mut Record) -> Result<Order, Failure> {
        let identifiers: Vec<Identifier> =
            record.names.iter().map(|name| identifier(name)).collect();
        let new = || {
            let new = NewOrder::new(&identifiers);
            match &self.options.profile {
                Some(profile) => new.profile(profile),
                None => new,
            }
        };
        if let Some(replaced) = self.replaced_id(record) {
            match self.account.new_order(&new().replaces(replaced)).await {
                // Another order replaces it already (RFC 9773 7.4), or the authority knows it no more.
                Err(error)
                    if REPLACED
                        .iter()
                        .any(|name| failure::is_problem(&error, name)) => {}
                Err(error) => {
                    if !matches!(error, Error::Api(_)) {
                        // An authority that does not confirm what is replaced is not told again.
                        record.window = None;
                        record.write(self.storage)?;
                    }
                    return Err(error.into());
                }
                Ok(order) => return Ok(order),
            }
        }
        Ok(self.account.new_order(&new()).await?)
    }

    /// Returns the id of the certificate that the new one replaces (RFC 9773 5), if this authority has issued it and named
    /// a window for it.
    fn replaced_id(&self, record: &Record) -> Option<CertificateIdentifier<'static>> {
        let is_its = record.issued_by.as_deref() == Some(self.authority.url());
        let replaced = self
            .replaced
            .filter(|_| is_its && record.window.is_some())?;
        window::id(replaced)
    }

    /// Proves the control of each name, and waits until the authority has seen that.
    async fn authorize(&self, order: &mut Order, record: &Record) -> Result<(), Failure> {
        let mut records = Records::new(self.options.dns.as_ref(), self.challenges.helper());
        let proven = self.prove(order, record, &mut records).await;
        records.remove_all().await;
        proven
    }

    /// Does the same, and leaves the records of DNS-01.
    async fn prove(
        &self,
        order: &mut Order,
        record: &Record,
        records: &mut Records<'_>,
    ) -> Result<(), Failure> {
        // The answers are given until the authority has decided.
        let mut published: Vec<Published> = Vec::new();
        if order.state().authorizations.len() > record.names.len() {
            let message = "the authority wants more authorizations than names were ordered";
            return Err(Failure::new(message));
        }
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            match authorization.status {
                AuthorizationStatus::Valid => continue,
                AuthorizationStatus::Pending => {}
                status => {
                    let name = authorization.identifier();
                    let message = format!("the authorization of {name} is {status:?}");
                    return Err(Failure::new(message));
                }
            }
            let name = authorization.identifier().to_string();
            let offered = authorization.challenges.iter();
            let offered: Vec<ChallengeType> = offered.map(|one| one.r#type.clone()).collect();
            let kind = self.choose(&name, record, &offered)?;
            let Some(mut challenge) = authorization.challenge(type_of(kind)) else {
                continue;
            };
            let answer = challenge.key_authorization();
            let answers = self.challenges;
            match kind {
                Challenge::Http01 => {
                    published.push(answers.publish_http(&challenge.token, answer.as_str()));
                }
                Challenge::TlsAlpn01 => {
                    let answer = answers.publish_tls(&name, answer.digest().as_ref());
                    published.push(answer.map_err(Failure::new)?);
                }
                Challenge::Dns01 => {
                    let published = records.publish(&name, &answer.dns_value()).await;
                    published.map_err(Failure::new)?;
                }
            }
            if challenge.status == ChallengeStatus::Pending {
                challenge.set_ready().await?;
            }
        }
        let decided = order.poll_ready(&POLLS).await;
        drop(published);
        match decided {
            Ok(OrderStatus::Ready) => Ok(()),
            Err(error @ (Error::Timeout(_) | Error::Other(_))) => Err(error.into()),
            _ => Err(self.refused(order).await),
        }
    }

    /// Chooses the challenge for a name from those that the authority offers. After a failure, the next attempt chooses
    /// another one.
    fn choose(
        &self,
        name: &str,
        record: &Record,
        offered: &[ChallengeType],
    ) -> Result<Challenge, Failure> {
        let mut ordered = record.names.iter().map(|one| one.trim_matches(['[', ']']));
        if !ordered.any(|one| one == name) {
            let message =
                format!("the authority wants the control of {name}, which was not ordered");
            return Err(Failure::new(message));
        }
        let (is_wildcard, is_address) = (name.starts_with("*."), name.parse::<IpAddr>().is_ok());
        // RFC 8555 7.1.3 leaves the challenges for a wildcard to the authority; no other one proves it. TLS-ALPN-01 for an
        // address has another name in the handshake (RFC 8738 6), and is left out.
        let proves = |kind: &Challenge| match kind {
            Challenge::Dns01 => true,
            Challenge::TlsAlpn01 => !is_wildcard && !is_address,
            Challenge::Http01 => !is_wildcard,
        };
        let configured = self.options.challenges.iter().copied();
        let usable: Vec<Challenge> = configured
            .filter(|kind| proves(kind) && offered.contains(&type_of(*kind)))
            .collect();
        let turn = record.failures as usize % usable.len().max(1);
        usable.get(turn).copied().ok_or_else(|| {
            Failure::new(format!(
                "the authority offers no challenge for {name} that is configured"
            ))
        })
    }

    /// Returns the reason why the authority has refused an order: the errors of its challenges.
    async fn refused(&self, order: &mut Order) -> Failure {
        let mut errors = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            if authorization.refresh().await.is_err() {
                continue;
            }
            let name = authorization.identifier().to_string();
            let wrong = authorization.challenges.iter();
            let wrong = wrong.filter_map(|one| one.error.as_ref());
            errors.extend(wrong.map(|error| format!("{name}: {error}")));
        }
        Failure::new(match errors.is_empty() {
            true => "the authority has refused the order".to_owned(),
            false => errors.join("; "),
        })
    }

    async fn certificate(&self, order: &mut Order) -> Result<String, Failure> {
        let chain = match order.state().status {
            OrderStatus::Processing => Some(order.poll_certificate(&POLLS).await?),
            _ => order.certificate().await?,
        };
        let chain = chain.ok_or_else(|| Failure::new("the authority has issued no certificate"))?;
        Ok(chain)
    }
}

/// Reads a certificate that an authority has issued, with its key, and checks that it is valid for the names. One that is
/// not valid yet is used: our clock may be wrong.
fn check(pem: &str, names: &[String], now_unix_s: i64) -> Result<Certificate, String> {
    if pem.len() > PEM_BYTES_MAX {
        return Err("the chain of the authority's certificate is too long".to_owned());
    }
    let certificate = tls::parse(pem)
        .map_err(|problem| format!("the authority's certificate can't be used: {problem}"))?;
    if let Some(name) = names.iter().find(|name| !certificate.facts.covers(name)) {
        return Err(format!(
            "the authority's certificate is not valid for {name}"
        ));
    }
    match now_unix_s < certificate.facts.not_after_unix_s {
        true => Ok(certificate),
        false => Err("the authority's certificate has expired, or our clock is wrong".to_owned()),
    }
}

fn identifier(name: &str) -> Identifier {
    match name.trim_matches(['[', ']']).parse() {
        Ok(address) => Identifier::Ip(address),
        Err(_) => Identifier::Dns(name.to_owned()),
    }
}

fn type_of(challenge: Challenge) -> ChallengeType {
    match challenge {
        Challenge::Http01 => ChallengeType::Http01,
        Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
        Challenge::Dns01 => ChallengeType::Dns01,
    }
}
