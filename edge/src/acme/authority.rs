//! One authority: its directory, the account with it, and the budget of orders.

use std::sync::Arc;

use instant_acme::{Account, AccountCredentials, ExternalAccountKey, NewAccount};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use super::failure::{self, Failure};
use super::http_client::DirectoryClient;
use super::options::{Binding, Directory, Options};
use super::schedule::Budget;
use super::storage::Storage;
use crate::sys::disk;

/// Folder of the accounts and budgets in the storage.
const FOLDER: &str = "accounts";
/// The time span in seconds in which the number of orders has a limit. Let's Encrypt permits 300 in it.
const ORDERS_SPAN_S: i64 = 3 * 3600;
/// Longest file of a key of an external account, in bytes.
const BINDING_BYTES_MAX: u64 = 4096;

/// An authority.
pub struct Authority {
    directory: Directory,
    email: Option<String>,
    orders_max: usize,
    client: DirectoryClient,
    account: OnceCell<Account>,
    storage: Arc<dyn Storage>,
    /// Locked while the budget in the storage is changed.
    budget: Mutex<()>,
}

impl Authority {
    /// Creates an authority. No request is sent yet.
    pub fn new(
        directory: &Directory,
        options: &Options,
        client: DirectoryClient,
        storage: Arc<dyn Storage>,
    ) -> Authority {
        Authority {
            directory: directory.clone(),
            email: options.email.clone(),
            orders_max: options.orders_max,
            client,
            account: OnceCell::new(),
            storage,
            budget: Mutex::default(),
        }
    }

    /// Returns the URL of the directory.
    pub fn url(&self) -> &str {
        &self.directory.url
    }

    /// Returns the time in seconds for which the authority wants no request, because of its last refusal.
    pub fn asked_s(&self) -> i64 {
        self.client.asked_s()
    }

    /// Counts an order now. `reserve` is the number of orders that stay for others.
    ///
    /// # Errors
    ///
    /// There were too many, or the storage failed.
    pub fn take_order(&self, now_unix_s: i64, reserve: usize) -> Result<(), Failure> {
        let _locked = self.budget.lock();
        let name = self.name("orders.json");
        let text = self.storage.read(&name)?;
        let mut budget: Budget = text
            .and_then(|text| usable(&name, &text))
            .unwrap_or_default();
        let most = self.orders_max.saturating_sub(reserve);
        let taken = budget.take(now_unix_s, most, ORDERS_SPAN_S);
        taken.map_err(|again_unix_s| {
            let message =
                format!("{most} orders were sent in three hours, as many as `orders` permits");
            Failure::postponed(again_unix_s, message)
        })?;
        let text = serde_json::to_string(&budget).map_err(std::io::Error::from)?;
        Ok(self.storage.write(&name, &text)?)
    }

    /// Returns the account with the authority, which is created if there is none.
    ///
    /// # Errors
    ///
    /// The authority can't be reached or refuses the account, or the storage failed.
    pub async fn account(&self) -> Result<&Account, Failure> {
        self.account.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<Account, Failure> {
        let name = self.name("account.json");
        let stored = self.storage.read(&name)?;
        let stored = stored.and_then(|text| usable::<AccountCredentials>(&name, &text));
        let builder = || Account::builder_with_http(Box::new(self.client.clone()));
        if let Some(credentials) = stored {
            let account = builder().from_credentials(credentials).await?;
            // The authority may have forgotten the account, like one for tests that was started again.
            match account.update_contacts(&self.contacts()).await {
                Err(error) if failure::is_problem(&error, "accountDoesNotExist") => {}
                _ => return Ok(account),
            }
        }
        let binding = self
            .directory
            .binding
            .as_ref()
            .map(external_key)
            .transpose()?;
        let new = NewAccount {
            contact: &self.contacts(),
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let url = self.directory.url.clone();
        let (account, credentials) = builder().create(&new, url, binding.as_ref()).await?;
        let text = serde_json::to_string(&credentials).map_err(std::io::Error::from)?;
        self.storage.write(&name, &text)?;
        tracing::info!(directory = self.url(), "an account was created");
        Ok(account)
    }

    fn contacts(&self) -> Vec<&str> {
        self.email.as_deref().into_iter().collect()
    }

    /// Returns the name of a text about this authority in the storage.
    fn name(&self, text: &str) -> String {
        let hash = blake3::hash(self.directory.url.as_bytes()).to_hex();
        format!("{FOLDER}/{}.{text}", &hash[..16])
    }
}

/// Reads a stored text. A damaged one is logged, since it is replaced.
fn usable<T: DeserializeOwned>(name: &str, text: &str) -> Option<T> {
    match serde_json::from_str(text) {
        Ok(value) => Some(value),
        Err(error) => {
            tracing::error!(name, %error, "a damaged file of certificates is replaced");
            None
        }
    }
}

fn external_key(binding: &Binding) -> Result<ExternalAccountKey, Failure> {
    use base64::Engine as _;
    let wrong =
        |why: &dyn std::fmt::Display| Failure::new(format!("{}: {why}", binding.key.display()));
    let text = disk::read_text(&binding.key, BINDING_BYTES_MAX).map_err(|why| wrong(&why))?;
    let text = text.trim().trim_end_matches('=');
    let key = base64::prelude::BASE64_URL_SAFE_NO_PAD.decode(text);
    let key = key.map_err(|why| wrong(&format!("no key in base64url: {why}")))?;
    Ok(ExternalAccountKey::new(binding.key_id.clone(), &key))
}
