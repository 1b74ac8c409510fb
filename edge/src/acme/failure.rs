//! The failure of an attempt to obtain a certificate.

use instant_acme::Error;

/// Begin of the names of problems (RFC 8555 6.7).
const PROBLEM: &str = "urn:ietf:params:acme:error:";

/// The reason why an order failed.
#[derive(Debug)]
pub struct Failure {
    /// Description, which may contain text of the authority.
    pub message: String,
    /// The time before which no attempt is to be made, as Unix time in seconds; 0 if that is not known.
    pub not_before_unix_s: i64,
    /// Whether nothing was sent, because a limit of our own or the authority's last Retry-After forbids an order now. Such a
    /// failure only delays the certificate.
    pub is_postponed: bool,
    /// Whether the same request may succeed at once: the authority did not take its nonce (RFC 8555 6.5).
    pub is_nonce: bool,
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            not_before_unix_s: 0,
            is_postponed: false,
            is_nonce: false,
        }
    }
}

impl Failure {
    /// Returns the failure that nothing may be sent before this time, as Unix time in seconds.
    pub fn postponed(not_before_unix_s: i64, message: impl Into<String>) -> Failure {
        Failure {
            not_before_unix_s,
            is_postponed: true,
            ..Failure::new(message)
        }
    }
}

impl Failure {
    /// Returns the same failure with the URL of the directory, unless the message has it.
    pub fn at(self, url: &str) -> Failure {
        match self.message.starts_with(url) {
            true => self,
            false => Failure {
                message: format!("{url}: {}", self.message),
                ..self
            },
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            is_nonce: is_problem(&error, "badNonce"),
            ..Failure::new(error.to_string())
        }
    }
}

/// Whether an authority has answered with this type of problem (RFC 8555 6.7).
pub fn is_problem(error: &Error, name: &str) -> bool {
    let Error::Api(problem) = error else {
        return false;
    };
    let kind = problem.r#type.as_deref().unwrap_or_default();
    kind.strip_prefix(PROBLEM) == Some(name)
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(format!("the state can't be stored: {error}"))
    }
}
