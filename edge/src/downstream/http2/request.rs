//! Turns the checked header section of a request into a head in canonical form.

use crate::downstream::exchange::check_declared;
use crate::downstream::{Options, Refusal};
use crate::handler::Head;
use crate::http::{Method, Scheme, Version, target};
use crate::http2::request::{Expectation, Request};
use crate::reason::Reason;

use super::tunnel;

/// Most fields of a request, as many as the lines that HTTP/1 permits.
const FIELDS_MAX: usize = 256;

/// The schemes that a request may have.
pub struct Schemes {
    /// The scheme of the connection.
    pub of_connection: Scheme,
    /// The scheme that the client used: that of the connection, unless a trusted proxy reports another one.
    pub of_client: Scheme,
}

/// Returns the head of a request and takes its fields. `ends`: there is no content.
///
/// # Errors
///
/// The request is refused. Unlike a malformed request, it gets a response.
pub fn head(
    request: &mut Request,
    ends: bool,
    schemes: &Schemes,
    options: &Options,
) -> Result<Head, Refusal> {
    check_declared(request.content_length.unwrap_or(0), options.body)?;
    if request.path.len() > options.request_line {
        return Err(Refusal::of(Reason::RequestLineTooLong));
    }
    if request.fields.len() > FIELDS_MAX {
        return Err(Refusal::of(Reason::TooManyHeaders));
    }
    let is_extended_connect = !request.protocol.is_empty();
    let method = match &request.method {
        // The target of a request for a tunnel has the form of all others.
        _ if is_extended_connect => Method::Get,
        Some(method) => method.clone(),
        None => Method::Get,
    };
    match method {
        Method::Connect => return Err(Refusal::of(Reason::Connect)),
        Method::Trace if !ends => return Err(Refusal::of(Reason::TraceWithBody)),
        _ => {}
    }
    if request.expectation == Expectation::Unknown {
        return Err(Refusal::of(Reason::UnknownExpectation));
    }
    match request.scheme {
        None => return Err(Refusal::of(Reason::TargetScheme)),
        // A proxy sends the scheme of its own connection or that of its client.
        Some(scheme) if scheme == schemes.of_connection || scheme == schemes.of_client => {}
        Some(_) => return Err(Refusal::of(Reason::TargetOfAnotherScheme)),
    }
    let mut head = Head::new();
    target::host(&request.authority, &mut head.authority)
        .map_err(|error| Refusal::of(error.reason()))?;
    target::canonical(&method, &request.path, &mut head.target)
        .map_err(|error| Refusal::of(error.reason()))?;
    if head.target.as_bytes() != request.path {
        head.received_target = Some(String::from_utf8_lossy(&request.path).into());
    }
    head.normalize_authority(schemes.of_client);
    head.method = method;
    head.version = Version::Http2;
    std::mem::swap(&mut head.fields, &mut request.fields);
    if is_extended_connect {
        tunnel::as_upgrade(&mut head, request)?;
    }
    Ok(head)
}
