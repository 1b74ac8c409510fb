//! The response that reports a fault.

use super::{Fault, Response};

impl Fault {
    /// Returns the response that reports the fault, with its status and its reason. If a cache
    /// forwarded the request, the reason is also in Cache-Status, which only caches that handled a
    /// request add (RFC 9211 2). The response concerns one request and must not be stored.
    pub fn response(self) -> Response {
        let (status, text) = (self.status(), self.reason.text());
        let mut response = Response::text(status, format!("{status} {text}\n"));
        response.fields.append("cache-control", "no-store");
        if let Some(fwd) = self.fwd {
            let value = format!("sluice; fwd={}; detail={text}", fwd.as_str());
            response.fields.append("cache-status", value);
        }
        if self.retry_after_s > 0 {
            let seconds = self.retry_after_s.to_string();
            response.fields.append("retry-after", seconds);
        }
        response.fault = Some(self.reason);
        response.failed_fwd = self.fwd;
        response
    }
}
