//! Waits until name servers have a record.

use std::net::SocketAddr;
use std::time::Duration;

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::exchange::exchange;
use crate::sys::clock::timer_now;

/// The first and the longest time between two questions.
const ASK_FIRST: Duration = Duration::from_millis(250);
const ASK_EVERY_MAX: Duration = Duration::from_secs(5);

/// The knowledge of a name server about a record.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Knowledge {
    Has,
    Lacks,
    /// The server can't be asked, with the reason.
    Unknown(String),
}

/// Waits until a record is visible: at least one of the servers has it, and none of those that respond lacks it.
///
/// # Errors
///
/// The record is not visible `within` this time.
pub async fn wait(
    servers: &[SocketAddr],
    name: &Name,
    value: &str,
    within: Duration,
) -> Result<(), String> {
    let deadline = timer_now() + within;
    let mut pause = ASK_FIRST;
    loop {
        let known = ask_all(servers, name, value).await;
        if is_visible(&known) {
            return Ok(());
        }
        if timer_now() + pause >= deadline {
            return Err(describe(&known, name, within));
        }
        sleep(pause).await;
        pause = (pause * 2).min(ASK_EVERY_MAX);
    }
}

fn is_visible(known: &[(SocketAddr, Knowledge)]) -> bool {
    let any = |knowledge| known.iter().any(|(_, one)| *one == knowledge);
    any(Knowledge::Has) && !any(Knowledge::Lacks)
}

fn describe(known: &[(SocketAddr, Knowledge)], name: &Name, within: Duration) -> String {
    let states: Vec<String> = known
        .iter()
        .filter_map(|(server, knowledge)| match knowledge {
            Knowledge::Has => None,
            Knowledge::Lacks => Some(format!("{server} does not have it")),
            Knowledge::Unknown(why) => Some(why.clone()),
        })
        .collect();
    format!(
        "the record {name} is not visible after {within:?}: {}",
        states.join("; ")
    )
}

/// Asks all servers at the same time.
async fn ask_all(servers: &[SocketAddr], name: &Name, value: &str) -> Vec<(SocketAddr, Knowledge)> {
    let mut asked = JoinSet::new();
    for server in servers.iter().copied() {
        let (name, value) = (name.clone(), value.to_owned());
        asked.spawn(async move { (server, ask(server, name, &value).await) });
    }
    let mut known = asked.join_all().await;
    known.sort_by_key(|(server, _)| *server);
    known
}

async fn ask(server: SocketAddr, name: Name, value: &str) -> Knowledge {
    let mut message = Message::query();
    message.metadata.recursion_desired = false;
    message.add_query(Query::query(name, RecordType::TXT));
    match exchange(server, message, None).await {
        Ok(response) => read(server, &response, value),
        Err(why) => Knowledge::Unknown(why),
    }
}

fn read(server: SocketAddr, response: &Message, value: &str) -> Knowledge {
    let has_value = response.answers.iter().any(|record| match &record.data {
        RData::TXT(text) => text.txt_data.concat() == value.as_bytes(),
        _ => false,
    });
    match response.response_code {
        ResponseCode::NoError if has_value => Knowledge::Has,
        ResponseCode::NoError | ResponseCode::NXDomain => Knowledge::Lacks,
        code => Knowledge::Unknown(format!("the name server {server}: {code}")),
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::OpCode;
    use hickory_proto::rr::Record;
    use hickory_proto::rr::rdata::TXT;

    use super::*;

    const SERVER: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 53);

    #[test]
    fn a_record_is_visible_if_no_server_that_responds_lacks_it() {
        use Knowledge::{Has, Lacks, Unknown};
        let visible = |known: &[Knowledge]| {
            let known: Vec<_> = known.iter().map(|one| (SERVER, one.clone())).collect();
            is_visible(&known)
        };
        let unknown = || Unknown("no response".to_owned());
        assert!(visible(&[Has]) && visible(&[Has, Has]) && visible(&[unknown(), Has]));
        assert!(!visible(&[]) && !visible(&[unknown()]) && !visible(&[Has, Lacks]));
        assert!(!visible(&[Lacks, unknown()]));
    }

    #[test]
    fn one_of_several_records_of_the_name_has_the_value() {
        let mut response = Message::response(1, OpCode::Query);
        assert_eq!(read(SERVER, &response, "value"), Knowledge::Lacks);
        let name = Name::from_ascii("_acme-challenge.example.com.").expect("a name");
        for texts in [vec!["other"], vec!["val", "ue"]] {
            let texts = texts.into_iter().map(str::to_owned).collect();
            response.add_answer(Record::from_rdata(
                name.clone(),
                1,
                RData::TXT(TXT::new(texts)),
            ));
        }
        assert_eq!(read(SERVER, &response, "value"), Knowledge::Has);
        assert_eq!(read(SERVER, &response, "val"), Knowledge::Lacks);
        response.metadata.response_code = ResponseCode::Refused;
        assert!(matches!(
            read(SERVER, &response, "value"),
            Knowledge::Unknown(_)
        ));
    }
}
