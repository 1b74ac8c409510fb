//! The answers to the challenges of orders in progress, which all workers give.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

use super::dns::Helper;
use crate::tls::Managed;

/// The path below which an authority reads the answer to HTTP-01 (RFC 8555 8.3).
pub const PATH: &str = "/.well-known/acme-challenge/";

/// The answers to challenges.
pub struct Challenges {
    /// The answers to HTTP-01, by token.
    http: RwLock<HashMap<String, String>>,
    /// Number of entries in `http`, so that requests need no lock while there is none.
    http_count: AtomicUsize,
    /// Gives the answers to TLS-ALPN-01.
    tls: Arc<Managed>,
    /// Runs the program that sets the records of DNS-01.
    helper: Option<Arc<Helper>>,
}

impl Challenges {
    /// Creates the answers. `tls` gives those to TLS-ALPN-01, and `helper` runs the program that sets the records of DNS-01.
    pub fn new(tls: Arc<Managed>, helper: Option<Arc<Helper>>) -> Arc<Challenges> {
        Arc::new(Challenges {
            http: RwLock::default(),
            http_count: AtomicUsize::new(0),
            tls,
            helper,
        })
    }

    /// Returns the process that runs the program that sets the records of DNS-01, if there is one.
    pub(super) fn helper(&self) -> Option<&Helper> {
        self.helper.as_deref()
    }

    /// Returns the answer to the request for this path, if a challenge of HTTP-01 has it.
    pub fn answer(&self, path: &str) -> Option<String> {
        if self.http_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let token = path.strip_prefix(PATH)?;
        self.http.read().get(token).cloned()
    }

    /// Answers a challenge of HTTP-01 until the result is dropped.
    pub(super) fn publish_http(
        self: &Arc<Self>,
        token: &str,
        key_authorization: &str,
    ) -> Published {
        let mut answers = self.http.write();
        answers.insert(token.to_owned(), key_authorization.to_owned());
        self.http_count.store(answers.len(), Ordering::Release);
        drop(answers);
        Published {
            challenges: self.clone(),
            what: What::Http(token.to_owned()),
        }
    }

    /// Answers a challenge of TLS-ALPN-01 until the result is dropped. `digest` is the SHA-256 of the key authorization.
    ///
    /// # Errors
    ///
    /// The certificate of the answer can't be made.
    pub(super) fn publish_tls(
        self: &Arc<Self>,
        name: &str,
        digest: &[u8],
    ) -> Result<Published, String> {
        self.tls.answer_challenge(name, digest)?;
        Ok(Published {
            challenges: self.clone(),
            what: What::Tls(name.to_owned()),
        })
    }
}

/// An answer that is given until this is dropped.
pub(super) struct Published {
    challenges: Arc<Challenges>,
    what: What,
}

enum What {
    Http(String),
    Tls(String),
}

impl Drop for Published {
    fn drop(&mut self) {
        match &self.what {
            What::Http(token) => {
                let mut answers = self.challenges.http.write();
                answers.remove(token);
                self.challenges
                    .http_count
                    .store(answers.len(), Ordering::Release);
            }
            What::Tls(name) => self.challenges.tls.end_challenge(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_answered_until_its_end() {
        let challenges = Challenges::new(Arc::default(), None);
        let path = "/.well-known/acme-challenge/token";
        assert_eq!(challenges.answer(path), None);
        let published = challenges.publish_http("token", "token.thumb");
        assert_eq!(challenges.answer(path).as_deref(), Some("token.thumb"));
        assert_eq!(challenges.answer("/.well-known/acme-challenge/other"), None);
        assert_eq!(challenges.answer("token"), None);
        drop(published);
        assert_eq!(challenges.answer(path), None);
    }
}
