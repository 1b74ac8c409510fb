//! Sends one message to a name server and receives the response: over TCP, so that no length of a response matters and no
//! third party can answer, with bounds for time and length.

use std::net::SocketAddr;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::tsig::TsigError;
use hickory_proto::rr::{TSigVerifier, TSigner};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::sys::Clock;

/// Longest time until the end of a response.
const WITHIN: Duration = Duration::from_secs(10);

/// Sends a message and returns the response, whatever its code. With a signer, both are signed (RFC 8945).
///
/// # Errors
///
/// The server can't be reached, refuses the signature, or sends an invalid response.
pub async fn exchange(
    server: SocketAddr,
    mut message: Message,
    signer: Option<&TSigner>,
) -> Result<Message, String> {
    let failed = |why: String| format!("the name server {server}: {why}");
    let now_unix_s = Clock::system().unix_ms() / 1000;
    let mut verifier = match signer {
        Some(signer) => message
            .finalize(signer, now_unix_s)
            .map_err(|error| failed(error.to_string()))?,
        None => None,
    };
    let bytes = message
        .to_vec()
        .map_err(|error| failed(error.to_string()))?;
    let bytes = match timeout(WITHIN, send(server, &bytes)).await {
        Ok(received) => received.map_err(|error| failed(error.to_string()))?,
        Err(_) => return Err(failed(format!("no response in {WITHIN:?}"))),
    };
    let response = response(&message, &bytes).map_err(failed)?;
    if let Some(verifier) = &mut verifier {
        verify(&response, &bytes, verifier).map_err(failed)?;
    }
    Ok(response)
}

/// Sends a message, and returns the next one on the connection, of at most 64 KiB (RFC 1035 4.2.2).
async fn send(server: SocketAddr, message: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(message.len()).map_err(std::io::Error::other)?;
    let framed = [&length.to_be_bytes(), message].concat();
    stream.write_all(&framed).await?;
    let length = stream.read_u16().await?;
    let mut response = vec![0; usize::from(length)];
    stream.read_exact(&mut response).await?;
    Ok(response)
}

/// Parses the response to a message.
fn response(message: &Message, bytes: &[u8]) -> Result<Message, String> {
    let response = Message::from_vec(bytes);
    let response = response.map_err(|error| format!("an invalid response: {error}"))?;
    let fits = response.id == message.id
        && response.message_type == MessageType::Response
        && response.op_code == message.op_code
        // Errors and responses to updates may leave the question out (RFC 2136 3.8).
        && (response.queries.is_empty() || response.queries == message.queries);
    match fits {
        true => Ok(response),
        false => Err("the response is to another message".to_owned()),
    }
}

/// Verifies the signature of a response.
fn verify(response: &Message, bytes: &[u8], verifier: &mut TSigVerifier) -> Result<(), String> {
    let Some(signature) = response.signature() else {
        return Err(match response.response_code {
            ResponseCode::NoError => "the response has no signature".to_owned(),
            code => format!("{code}, without a signature"),
        });
    };
    let signature = &signature.data;
    if let Some(error) = signature.error {
        // The response to a key or a signature that the server does not accept has no signature itself (RFC 8945 5.2).
        return Err(refusal(error));
    }
    if signature.time < u64::from(signature.fudge) {
        return Err("the signature of the response has an impossible time".to_owned());
    }
    match verifier.verify(bytes) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("the signature of the response is wrong: {error}")),
    }
}

fn refusal(error: TsigError) -> String {
    match error {
        TsigError::BadKey => "the server does not know this key (BADKEY): compare `key_name` and `algorithm` with its configuration".to_owned(),
        TsigError::BadSig => "the server has another secret for this key (BADSIG): compare the file of `key` with its configuration".to_owned(),
        TsigError::BadTime => "the clocks of the server and of this machine differ by more than five minutes (BADTIME)".to_owned(),
        error => format!("the server refuses the signature (error {})", u16::from(error)),
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::{OpCode, Query};
    use hickory_proto::rr::rdata::tsig::TsigAlgorithm;
    use hickory_proto::rr::{Name, RecordType, TSigResponseContext};

    use super::*;

    const NOW_UNIX_S: u64 = 1_800_000_000;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).expect("a name")
    }

    fn signer(secret: &[u8]) -> TSigner {
        TSigner::new(
            secret.to_vec(),
            TsigAlgorithm::HmacSha256,
            name("key."),
            300,
        )
        .expect("a key")
    }

    fn question() -> Message {
        let mut message = Message::query();
        message.add_query(Query::query(name("a.example."), RecordType::SOA));
        message
    }

    fn answer(message: &Message) -> Message {
        let mut answer = Message::response(message.id, OpCode::Query);
        answer.add_queries(message.queries.clone());
        answer
    }

    #[test]
    fn only_a_response_to_the_message_counts() {
        let message = question();
        let parse = |answer: &Message| response(&message, &answer.to_vec().expect("a message"));
        assert!(parse(&answer(&message)).is_ok());
        assert!(parse(&message).is_err(), "a question");
        let mut other = answer(&message);
        other.metadata.id ^= 1;
        assert!(parse(&other).is_err(), "another id");
        let mut other = answer(&message);
        other.queries[0].set_query_type(RecordType::TXT);
        assert!(parse(&other).is_err(), "another question");
        assert!(response(&message, b"").is_err());
        assert!(response(&message, &[0xff; 600]).is_err());
    }

    #[test]
    fn only_a_response_with_the_signature_of_the_key_counts() {
        let mut message = question();
        let mut verify = |sign: Option<(&[u8], u64)>| {
            let verifier = message
                .finalize(&signer(b"secret"), NOW_UNIX_S)
                .expect("signed");
            let mac = message.signature().expect("signed").data.mac.clone();
            message.signature = None;
            let mut answer = answer(&message);
            if let Some((secret, at_unix_s)) = sign {
                let context =
                    TSigResponseContext::new(message.id, at_unix_s, signer(secret), mac, None);
                let bytes = answer.to_vec().expect("a message");
                answer.set_signature(context.sign(&bytes).expect("signed"));
            }
            let bytes = answer.to_vec().expect("a message");
            let answer = response(&message, &bytes).expect("a response");
            super::verify(&answer, &bytes, &mut verifier.expect("a verifier"))
        };
        assert_eq!(verify(Some((b"secret", NOW_UNIX_S))), Ok(()));
        for wrong in [
            None,
            Some((&b"other"[..], NOW_UNIX_S)),
            Some((b"secret", NOW_UNIX_S + 1000)),
        ] {
            assert!(verify(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_refused_key_has_advice() {
        let mut message = question();
        let mut verifier = message
            .finalize(&signer(b"secret"), NOW_UNIX_S)
            .expect("signed")
            .expect("a verifier");
        let mut answer = answer(&message);
        answer.metadata.response_code = ResponseCode::NotAuth;
        let context = TSigResponseContext::unknown_key(message.id, NOW_UNIX_S, name("key."));
        let bytes = answer.to_vec().expect("a message");
        answer.set_signature(context.sign(&bytes).expect("signed"));
        let bytes = answer.to_vec().expect("a message");
        let error = verify(&answer, &bytes, &mut verifier).expect_err("refused");
        assert!(error.contains("BADKEY"), "{error}");
    }
}
