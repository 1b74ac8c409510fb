//! The response that reports a fault.

use super::{Fault, Response};

impl Fault {
    /// Returns the response that reports the fault, with its status and its reason. The reason also
    /// appears in Cache-Status; there, `detail` is sent neither with `hit` nor with `fwd` (RFC 9211
    /// 2). The response concerns one request and must not be stored.
    pub fn response(self) -> Response {
        let (status, text) = (self.status(), self.reason.text());
        let mut response = Response::text(status, format!("{status} {text}\n"));
        response.fields.append("cache-control", "no-store");
        let mut value = Vec::with_capacity(48);
        value.extend_from_slice(b"sluice; detail=");
        value.extend_from_slice(text.as_bytes());
        response.fields.append("cache-status", value);
        if self.retry_after_s > 0 {
            let seconds = self.retry_after_s.to_string();
            response.fields.append("retry-after", seconds);
        }
        response.fault = Some(self.reason);
        response
    }
}
