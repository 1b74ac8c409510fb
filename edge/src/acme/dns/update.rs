//! Sets records by dynamic updates (RFC 2136).

use base64::Engine as _;
use hickory_proto::op::{Message, Query, ResponseCode, update_message};
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::rdata::tsig::TsigAlgorithm;
use hickory_proto::rr::{Name, RData, Record, RecordSet, RecordType, TSigner};

use super::exchange::exchange;
use super::options::{Algorithm, UpdateOptions};
use super::program::Action;
use crate::sys::disk;

/// Longest file of a key, in bytes.
const KEY_BYTES_MAX: u64 = 4096;
/// Longest difference of the clocks, in seconds (RFC 8945 10).
const FUDGE_S: u16 = 300;

/// Adds a TXT record to a zone, or removes exactly this one.
///
/// # Errors
///
/// The key can't be read, or the name server refuses the update.
pub async fn update(
    options: &UpdateOptions,
    action: Action,
    name: &Name,
    value: &str,
) -> Result<(), String> {
    let signer = signer(options)?;
    let zone = match &options.zone {
        Some(zone) => dns_name(zone)?,
        None => find_zone(options, &signer, name).await?,
    };
    if !zone.zone_of(name) {
        return Err(format!("{name} is not in the zone {zone}"));
    }
    let message = message(action, zone.clone(), name, value, options.ttl_s);
    let response = exchange(options.server, message, Some(&signer)).await?;
    match response.response_code {
        ResponseCode::NoError => Ok(()),
        code => Err(format!(
            "the name server {} refuses the update of {name} in the zone {zone}: {code}",
            options.server
        )),
    }
}

/// Returns the message that adds or removes a record. Other records of the name are not affected.
fn message(action: Action, zone: Name, name: &Name, value: &str, ttl_s: u32) -> Message {
    let data = RData::TXT(TXT::new(vec![value.to_owned()]));
    let record = Record::from_rdata(name.clone(), ttl_s, data);
    match action {
        Action::Add => update_message::append(RecordSet::from(record), zone, false, false),
        Action::Remove => update_message::delete_by_rdata(RecordSet::from(record), zone, false),
    }
}

/// Returns the name of the zone that contains a name, which the name server knows.
async fn find_zone(options: &UpdateOptions, signer: &TSigner, name: &Name) -> Result<Name, String> {
    let mut message = Message::query();
    message.add_query(Query::query(name.clone(), RecordType::SOA));
    let response = exchange(options.server, message, Some(signer)).await?;
    zone_in(&response, name).ok_or_else(|| {
        let code = response.response_code;
        format!(
            "the name server {} has no zone for {name} ({code}): name it as `zone`",
            options.server
        )
    })
}

/// Returns the zone that a response to the question for a name's SOA record names: as the owner of the record in the answer, or
/// of the one that comes with a denial.
fn zone_in(response: &Message, name: &Name) -> Option<Name> {
    let records = response.answers.iter().chain(&response.authorities);
    let zones = records.filter(|record| record.record_type() == RecordType::SOA);
    let zones = zones.filter(|record| record.name.zone_of(name));
    let longest = zones.max_by_key(|record| record.name.num_labels());
    longest.map(|record| record.name.clone())
}

fn signer(options: &UpdateOptions) -> Result<TSigner, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", options.key.display());
    let text = disk::read_text(&options.key, KEY_BYTES_MAX).map_err(|error| wrong(&error))?;
    let secret = secret(&text).ok_or_else(|| {
        wrong(&"this is neither a secret in base64 nor a key as `tsig-keygen` writes it")
    })?;
    let algorithm = match options.algorithm {
        Algorithm::HmacSha256 => TsigAlgorithm::HmacSha256,
        Algorithm::HmacSha384 => TsigAlgorithm::HmacSha384,
        Algorithm::HmacSha512 => TsigAlgorithm::HmacSha512,
    };
    TSigner::new(secret, algorithm, dns_name(&options.key_name)?, FUDGE_S)
        .map_err(|error| wrong(&error))
}

/// Returns the secret in the text of a key: base64 alone, or in the syntax of BIND, as in `key "name" { secret "…"; };`.
fn secret(text: &str) -> Option<Vec<u8>> {
    let encoded = match text.split_once('{') {
        Some((_, inside)) => inside.split_once("secret")?.1.split('"').nth(1)?,
        None => text.trim(),
    };
    let secret = base64::prelude::BASE64_STANDARD.decode(encoded).ok()?;
    (!secret.is_empty()).then_some(secret)
}

/// Returns a name as a fully qualified one.
///
/// # Errors
///
/// The text is not a name.
pub fn dns_name(text: &str) -> Result<Name, String> {
    let name = Name::from_ascii(text).map_err(|error| format!("{text}: {error}"));
    name.map(|mut name| {
        name.set_fqdn(true);
        name
    })
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::OpCode;
    use hickory_proto::rr::DNSClass;
    use hickory_proto::rr::rdata::SOA;

    use super::*;

    fn name(text: &str) -> Name {
        dns_name(text).expect("a name")
    }

    #[test]
    fn a_secret_is_base64_alone_or_in_the_syntax_of_bind() {
        assert_eq!(secret("c2VjcmV0\n").as_deref(), Some(&b"secret"[..]));
        let of_bind = "key \"acme\" {\n\talgorithm hmac-sha256;\n\tsecret \"c2VjcmV0\";\n};\n";
        assert_eq!(secret(of_bind).as_deref(), Some(&b"secret"[..]));
        for wrong in [
            "",
            "  ",
            "no base64!",
            "key { }",
            "key { secret }",
            "key { secret \"!\" }",
        ] {
            assert_eq!(secret(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_change_concerns_only_its_value() {
        let message = |action| {
            message(
                action,
                name("example.com"),
                &name("_acme-challenge.example.com"),
                "value",
                60,
            )
        };
        let classes = [
            (Action::Add, DNSClass::IN, 60),
            (Action::Remove, DNSClass::NONE, 0),
        ];
        for (action, class, ttl) in classes {
            let message = message(action);
            assert_eq!(message.op_code, OpCode::Update);
            assert!(message.answers.is_empty(), "no prerequisite");
            let [record] = &message.authorities[..] else {
                panic!("one change: {message:?}");
            };
            assert_eq!((record.dns_class, record.ttl), (class, ttl));
            let data = RData::TXT(TXT::new(vec!["value".to_owned()]));
            assert_eq!(record.data, data);
        }
    }

    #[test]
    fn the_zone_is_the_longest_one_that_contains_the_name() {
        let soa = |zone: &str| {
            let soa = SOA::new(name("ns"), name("root"), 1, 1, 1, 1, 1);
            Record::from_rdata(name(zone), 1, RData::SOA(soa))
        };
        let asked = name("_acme-challenge.a.example.com");
        let mut response = Message::response(1, OpCode::Query);
        assert_eq!(zone_in(&response, &asked), None);
        response.add_authority(soa("b.example.com"));
        assert_eq!(zone_in(&response, &asked), None);
        response.add_authority(soa("com"));
        response.add_authority(soa("EXAMPLE.com"));
        assert_eq!(zone_in(&response, &asked), Some(name("EXAMPLE.com")));
    }
}
