//! Signs requests to object stores that speak the protocol of S3 (AWS Signature Version 4).
//!
//! The signature is in the Authorization of the request that Sluice sends. No client sent it, so it is no Authorization in
//! the sense of RFC 9111 3.5, and caches store responses as without it. The crate `aws-sigv4` would bring two versions of
//! `http` and six crates of the AWS SDK for these few lines.

mod canonical;
mod time;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::fmt;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use canonical::hexadecimal;
use time::Time;

/// SHA-256 of no content.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// States that the content is not signed, so that it can be sent while it arrives.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "s3";

/// Options of `sign` in an upstream.
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// Region of the store, such as `eu-central-1`.
    pub region: String,
    /// Id of the access key.
    pub access_key: String,
    /// The secret of the access key.
    pub secret_key: String,
    /// Token of temporary credentials.
    pub session_token: Option<String>,
    /// Whether the query of requests is sent. It can list a bucket, and change headers of responses.
    pub query: bool,
    /// Whether methods other than GET and HEAD are sent. They can change and delete objects.
    pub writes: bool,
}

/// The options without the secrets.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("region", &self.region)
            .field("access_key", &self.access_key)
            .field("query", &self.query)
            .field("writes", &self.writes)
            .finish_non_exhaustive()
    }
}

/// Signs requests with one access key. Belongs to one worker.
pub struct Signer {
    options: Options,
    /// The key of the current day, and that day.
    key: RefCell<Option<(u64, [u8; 32])>>,
}

/// The parts of a request that are signed.
pub struct Request<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query as they are sent.
    pub target: &'a str,
    /// The value of Host.
    pub host: &'a str,
    /// Whether the request has content.
    pub has_content: bool,
}

/// The headers that a signed request has.
pub struct Signature {
    /// Value of X-Amz-Date.
    pub date: String,
    /// Value of X-Amz-Content-SHA256.
    pub content: &'static str,
    /// Value of X-Amz-Security-Token.
    pub token: Option<String>,
    /// Value of Authorization.
    pub authorization: String,
}

impl Signer {
    /// Creates a signer.
    pub fn new(options: Options) -> Signer {
        Signer {
            options,
            key: RefCell::default(),
        }
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Signs a request that is sent at this time, in seconds since the Unix epoch.
    pub fn sign(&self, request: &Request<'_>, unix_s: u64) -> Signature {
        let time = Time::of(unix_s);
        let content = match request.has_content {
            true => UNSIGNED,
            false => EMPTY,
        };
        let date = time.full();
        let mut headers = vec![
            ("host", request.host),
            ("x-amz-content-sha256", content),
            ("x-amz-date", &*date),
        ];
        let token = self.options.session_token.as_deref();
        headers.extend(token.map(|token| ("x-amz-security-token", token)));
        let authorization =
            self.authorization(request.method, request.target, &headers, content, &time);
        Signature {
            authorization,
            content,
            token: self.options.session_token.clone(),
            date,
        }
    }

    /// Returns the value of Authorization. The headers are in the order of their lower-case names.
    fn authorization(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        content: &str,
        time: &Time,
    ) -> String {
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let canonical = canonical::request(method, target, headers, &names, content);
        let scope = format!(
            "{}/{}/{SERVICE}/aws4_request",
            time.day(),
            self.options.region
        );
        let hash = hexadecimal(&Sha256::digest(canonical.as_bytes()));
        let text = format!("{ALGORITHM}\n{}\n{scope}\n{hash}", time.full());
        let signature = hexadecimal(&mac(&self.key(time), text.as_bytes()));
        let access_key = &self.options.access_key;
        format!(
            "{ALGORITHM} Credential={access_key}/{scope},SignedHeaders={names},Signature={signature}"
        )
    }

    /// Returns the key of a day.
    fn key(&self, time: &Time) -> [u8; 32] {
        let mut kept = self.key.borrow_mut();
        if let Some((day, key)) = &*kept
            && *day == time.days
        {
            return *key;
        }
        let secret = format!("AWS4{}", self.options.secret_key);
        let day = mac(secret.as_bytes(), time.day().as_bytes());
        let region = mac(&day, self.options.region.as_bytes());
        let key = mac(&mac(&region, SERVICE.as_bytes()), b"aws4_request");
        *kept = Some((time.days, key));
        key
    }
}

fn mac(key: &[u8], text: &[u8]) -> [u8; 32] {
    match Hmac::<Sha256>::new_from_slice(key) {
        Ok(mac) => mac.chain_update(text).finalize().into_bytes().into(),
        // HMAC takes keys of any length (RFC 2104 2).
        Err(_) => [0; 32],
    }
}
