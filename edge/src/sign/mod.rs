//! Signs requests to object stores that speak the protocol of S3 (AWS Signature Version 4).
//!
//! The signature is in the Authorization of the request that Sluice sends. No client sent it, so it is no Authorization in
//! the sense of RFC 9111 3.5, and caches store responses as without it.

#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningInstructions,
    SigningSettings, UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use aws_smithy_runtime_api::client::identity::Identity;
use percent_encoding::{
    AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, percent_encode, utf8_percent_encode,
};

const SERVICE: &str = "s3";

/// The bytes of a path that are percent-encoded in its canonical form: all but unreserved ones (RFC 3986 2.3) and slashes.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// The bytes that no URL has (RFC 3986 2) although clients send them.
const NOT_IN_URLS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Options of `sign` in an upstream.
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// Region of the store, such as `eu-central-1`.
    pub region: String,
    /// Id of the access key.
    pub access_key: String,
    /// The secret of the access key.
    pub secret_key: String,
    /// The file from which the secret was read.
    pub secret_key_file: Option<PathBuf>,
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
    identity: Identity,
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

/// The headers that a signed request has. None if its host can't be signed; then the store refuses the request.
pub struct Signature(Option<SigningInstructions>);

impl Signature {
    /// Returns the names, in lower case, and the values of the headers.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(SigningInstructions::headers)
    }
}

impl Signer {
    /// Creates a signer.
    pub fn new(options: Options) -> Signer {
        let credentials = Credentials::new(
            &options.access_key,
            &options.secret_key,
            options.session_token.clone(),
            None,
            "sluice",
        );
        Signer {
            options,
            identity: credentials.into(),
        }
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Signs a request that is sent at this time, in seconds since the Unix epoch.
    pub fn sign(&self, request: &Request<'_>, unix_s: u64) -> Signature {
        Signature(self.instructions(request, unix_s).ok())
    }

    fn instructions(
        &self,
        request: &Request<'_>,
        unix_s: u64,
    ) -> Result<SigningInstructions, Box<dyn Error>> {
        let body = match request.has_content {
            // Content is sent while it arrives, so its hash is not known yet.
            true => SignableBody::UnsignedPayload,
            false => SignableBody::Bytes(&[]),
        };
        let target = canonical(request.target);
        let host = [("host", request.host)].into_iter();
        let signable = SignableRequest::new(request.method, target, host, body)?;
        let params = v4::SigningParams::builder()
            .identity(&self.identity)
            .region(&self.options.region)
            .name(SERVICE)
            .time(SystemTime::UNIX_EPOCH + Duration::from_secs(unix_s))
            .settings(settings())
            .build()?;
        Ok(sign(signable, &params.into())?.into_parts().0)
    }
}

/// Returns the settings with which S3 signs. Other services encode paths twice and have no header with the content's hash.
fn settings() -> SigningSettings {
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    settings
}

/// Returns a target whose path is percent-encoded as a store encodes the name of the object before it verifies the signature,
/// however the client has encoded it. The signer does the same with the query.
fn canonical(target: &str) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path: Vec<u8> = percent_decode_str(path).collect();
    let query = utf8_percent_encode(query, NOT_IN_URLS);
    format!("{}?{query}", percent_encode(&path, IN_PATH))
}
