//! The reason for which the TLS handshakes of a load fail, and advice that fits the reason.

use sluice_lab::load::{HandshakeError, HandshakeFailure, LoadPlan, LoadResult};

const INSECURE: &str = "--insecure accepts any certificate";

/// Describes the failure of all handshakes: the reason and advice. A load only counts them, so this function makes one
/// more.
pub(super) fn tell(plan: &LoadPlan, _: &LoadResult) -> (String, String) {
    let address = plan.target;
    let title = format!("the TLS handshake with {address} failed");
    let Some(tls) = &plan.tls else {
        return (title, "begin the URL with http://".to_owned());
    };
    match tls.handshake(address, plan.streams.is_some()) {
        Ok(()) => {
            let help = "one more handshake succeeded: does the server limit their number or rate?";
            (title, help.to_owned())
        }
        Err(error) => (format!("{title}: {}", reason(&error)), help(error.kind)),
    }
}

fn reason(error: &HandshakeError) -> String {
    match error.kind {
        HandshakeFailure::NoTls => "the server speaks no TLS here".to_owned(),
        HandshakeFailure::NoHttp2 => "the server does not agree to HTTP/2".to_owned(),
        HandshakeFailure::Authority => {
            format!(
                "the server has the certificate of an authority: {}",
                error.reason
            )
        }
        _ => error.reason.clone(),
    }
}

fn help(kind: HandshakeFailure) -> String {
    let help = match kind {
        HandshakeFailure::Connection => {
            return "does the server expect TLS at this address? If not, write http:// in place of https://".to_owned();
        }
        HandshakeFailure::NoTls => return "write http:// in place of https://".to_owned(),
        HandshakeFailure::NoHttp2 => return "leave --http2 out".to_owned(),
        HandshakeFailure::Other => return "the server's log may say why".to_owned(),
        HandshakeFailure::UnknownIssuer => {
            "--ca names the file with the authority that signed the certificate"
        }
        HandshakeFailure::Authority => {
            "a self-signed certificate for --ca needs CA:FALSE, as `openssl req -x509 -addext \
             basicConstraints=critical,CA:FALSE` makes it"
        }
        HandshakeFailure::Name => "write a URL with a name of the certificate",
        HandshakeFailure::Expired => "renew the certificate, or check this machine's clock",
        HandshakeFailure::Certificate => "use another certificate",
    };
    format!("{help}; {INSECURE}")
}
