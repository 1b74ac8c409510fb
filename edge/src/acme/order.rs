//! One order (RFC 8555 7.4): from the names to a stored certificate. After a restart, it continues where it was.

use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Error, Identifier, NewOrder, Order, OrderStatus,
    RetryPolicy,
};

use super::challenges::{Challenges, Published};
use super::key;
use super::options::{Challenge, Options};
use super::record::{self, PendingOrder, Record};
use super::storage::Storage;

/// How the state of an order is asked for until the authority has decided. A longer wait that the authority asks for
/// counts (Retry-After).
const POLLS: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));

/// The things that an order needs.
pub struct Ordering<'a> {
    /// The account with the authority.
    pub account: &'a Account,
    /// URL of the authority's directory.
    pub directory: &'a str,
    /// The options of all certificates.
    pub options: &'a Options,
    /// The answers to challenges.
    pub challenges: &'a Arc<Challenges>,
    /// The place of the certificate and its record.
    pub storage: &'a dyn Storage,
}

/// The reason why an order failed.
#[derive(Debug)]
pub struct Failure {
    /// Description, which may contain text of the authority.
    pub message: String,
    /// The time before which no attempt is to be made, as Unix time in seconds; 0 if that is not known.
    pub not_before_unix_s: i64,
}

impl Failure {
    pub(super) fn new(message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            not_before_unix_s: 0,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(format!("the state can't be stored: {error}"))
    }
}

impl Ordering<'_> {
    /// Obtains a certificate for the names of the record, and stores it. Returns the certificate and its key in PEM.
    ///
    /// # Errors
    ///
    /// The authority refused the order or did not decide in time, or the storage failed.
    pub async fn obtain(&self, record: &mut Record) -> Result<String, Failure> {
        let (mut order, mut pending) = match self.resume(record).await? {
            Some(resumed) => resumed,
            None => self.begin(record).await?,
        };
        if order.state().status == OrderStatus::Pending {
            self.authorize(&mut order).await?;
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
            order.finalize_csr(&request).await?;
        }
        let Some(key) = &pending.key else {
            self.note(record, None)?;
            return Err(Failure::new("the key of the ordered certificate is lost"));
        };
        let chain = self.certificate(&mut order).await?;
        record::write_pem(self.storage, &record.names, key, &chain)?;
        record.issued_by = Some(self.directory.to_owned());
        record.window = None;
        record.window_asked_from_unix_s = 0;
        (record.failures, record.last_error) = (0, None);
        self.note(record, None)?;
        Ok(format!("{key}\n{chain}"))
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
        if pending.directory != self.directory {
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
        let identifiers: Vec<Identifier> =
            record.names.iter().map(|name| identifier(name)).collect();
        let mut new = NewOrder::new(&identifiers);
        if let Some(profile) = &self.options.profile {
            new = new.profile(profile);
        }
        let order = self.account.new_order(&new).await?;
        let pending = PendingOrder {
            directory: self.directory.to_owned(),
            url: order.url().to_owned(),
            key: None,
        };
        self.note(record, Some(&pending))?;
        Ok((order, pending))
    }

    /// Proves the control of each name, and waits until the authority has seen that.
    async fn authorize(&self, order: &mut Order) -> Result<(), Failure> {
        // The answers are given until the authority has decided.
        let mut published: Vec<Published> = Vec::new();
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
            let offered = |kind: &&Challenge| {
                let kind = type_of(**kind);
                authorization
                    .challenges
                    .iter()
                    .any(|one| one.r#type == kind)
            };
            let Some(kind) = self.options.challenges.iter().find(offered).copied() else {
                let message =
                    format!("the authority offers no challenge for {name} that is configured");
                return Err(Failure::new(message));
            };
            let Some(mut challenge) = authorization.challenge(type_of(kind)) else {
                continue;
            };
            let answer = challenge.key_authorization();
            published.push(match kind {
                Challenge::Http01 => self
                    .challenges
                    .publish_http(&challenge.token, answer.as_str()),
                Challenge::TlsAlpn01 => self
                    .challenges
                    .publish_tls(&name, answer.digest().as_ref())
                    .map_err(Failure::new)?,
            });
            challenge.set_ready().await?;
        }
        let decided = order.poll_ready(&POLLS).await;
        drop(published);
        match decided {
            Ok(OrderStatus::Ready) => Ok(()),
            Err(error @ (Error::Timeout(_) | Error::Other(_))) => Err(error.into()),
            _ => Err(self.refused(order).await),
        }
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
        if order.state().status == OrderStatus::Processing {
            return Ok(order.poll_certificate(&POLLS).await?);
        }
        let chain = order.certificate().await?;
        chain.ok_or_else(|| Failure::new("the authority has issued no certificate"))
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
    }
}
