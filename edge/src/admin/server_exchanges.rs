//! The last exchanges with the servers of an upstream, by server and connection.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::telemetry::{
    ClosedBy, ConnectionFacts, ExchangeEnd, ExchangeRecord, ExchangeResult, UrlMask,
};

/// The last exchanges with the servers of an upstream. Times are microseconds of one monotonic clock.
#[derive(Debug, Default)]
pub struct ServerExchanges {
    /// The present time.
    pub now_us: u64,
    /// The present time, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// The servers: the number of each in the exchanges, and its address.
    pub servers: Vec<(u64, String)>,
    /// The exchanges of all workers.
    pub exchanges: Vec<ExchangeRecord>,
}

/// The answer of `GET /servers/connections`.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    now_us: u64,
    unix_ms: u64,
    servers: Vec<Server>,
}

#[derive(Debug, Serialize)]
struct Server {
    address: String,
    /// The connections, in the order in which they were opened.
    connections: Vec<Connection>,
}

#[derive(Debug, Serialize)]
struct Connection {
    number: u64,
    protocol: &'static str,
    opened_us: u64,
    connect_us: u32,
    tls_us: Option<u32>,
    closed_us: Option<u64>,
    closed_by: Option<&'static str>,
    /// Number of all exchanges so far, of which the last ones follow.
    requests: u32,
    exchanges: Vec<Exchange>,
}

#[derive(Debug, Serialize)]
struct Exchange {
    nth: u32,
    began_us: u64,
    ended_us: Option<u64>,
    head_us: Option<u32>,
    status: Option<u16>,
    bytes: u64,
    end: &'static str,
    reason: Option<&'static str>,
    path: String,
}

impl ServerExchanges {
    /// Returns the last `most` exchanges by server and connection, with masked paths. Exchanges with servers that are not
    /// those of the upstream any more are left out.
    pub(super) fn shown(mut self, most: usize, mask: &UrlMask) -> Shown {
        let is_known = |record: &ExchangeRecord| {
            let server = record.connection.server;
            self.servers.iter().any(|(id, _)| *id == server)
        };
        self.exchanges.retain(is_known);
        self.exchanges.sort_by_key(|record| record.began_us);
        let first = self.exchanges.len().saturating_sub(most);
        let mut connections = BTreeMap::<(u64, u64, u64), Connection>::new();
        for record in self.exchanges.drain(first..) {
            let facts = record.connection;
            let key = (facts.server, facts.opened_us, facts.number);
            let connection = connections.entry(key);
            let connection = connection.or_insert_with(|| Connection::new(&facts));
            connection.add(record, mask);
        }
        let mut servers: Vec<(u64, Server)> = Vec::new();
        for (id, address) in self.servers {
            if servers.iter().all(|(other, _)| *other != id) {
                let connections = Vec::new();
                servers.push((
                    id,
                    Server {
                        address,
                        connections,
                    },
                ));
            }
        }
        for ((id, ..), connection) in connections {
            if let Some((_, server)) = servers.iter_mut().find(|(other, _)| *other == id) {
                server.connections.push(connection);
            }
        }
        Shown {
            now_us: self.now_us,
            unix_ms: self.unix_ms,
            servers: servers.into_iter().map(|(_, server)| server).collect(),
        }
    }
}

impl Connection {
    fn new(facts: &ConnectionFacts) -> Connection {
        Connection {
            number: facts.number,
            protocol: if facts.is_http2 { "HTTP/2" } else { "HTTP/1.1" },
            opened_us: facts.opened_us,
            connect_us: facts.connect_us,
            tls_us: facts.tls_us,
            closed_us: None,
            closed_by: None,
            requests: 0,
            exchanges: Vec::new(),
        }
    }

    fn add(&mut self, record: ExchangeRecord, mask: &UrlMask) {
        if let Some((at_us, by)) = record.closed {
            self.closed_us = Some(at_us);
            self.closed_by = Some(match by {
                ClosedBy::Server => "server",
                ClosedBy::Sluice => "sluice",
            });
        }
        self.requests = self.requests.max(record.nth);
        self.exchanges.push(Exchange::new(&record, mask));
    }
}

impl Exchange {
    fn new(record: &ExchangeRecord, mask: &UrlMask) -> Exchange {
        let result = record.result.as_ref();
        let status = result.map(|one| one.status).filter(|status| *status > 0);
        Exchange {
            nth: record.nth,
            began_us: record.began_us,
            ended_us: result.map(|one| one.ended_us),
            head_us: result.filter(|_| status.is_some()).map(|one| one.head_us),
            status,
            bytes: result.map_or(0, |one| one.bytes),
            end: result.map_or("in progress", end),
            reason: result.and_then(|one| Some(one.reason?.text())),
            path: mask.shown(&record.path, record.is_cut),
        }
    }
}

fn end(result: &ExchangeResult) -> &'static str {
    match result.end {
        ExchangeEnd::Complete => "complete",
        ExchangeEnd::Failed => "failed",
        ExchangeEnd::Cancelled => "cancelled",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::reason::Reason;

    fn record(server: u64, number: u64, nth: u32, began_us: u64, path: &str) -> ExchangeRecord {
        ExchangeRecord {
            connection: ConnectionFacts {
                number,
                server,
                opened_us: 100 * number,
                connect_us: 7,
                ..ConnectionFacts::default()
            },
            closed: None,
            nth,
            began_us,
            result: None,
            path: path.as_bytes().to_vec(),
            is_cut: false,
        }
    }

    fn shown(exchanges: Vec<ExchangeRecord>, most: usize) -> Value {
        let all = ServerExchanges {
            now_us: 9000,
            unix_ms: 1,
            servers: vec![
                (1, "a:80".to_owned()),
                (2, "b:80".to_owned()),
                (1, "a:80".to_owned()),
            ],
            exchanges,
        };
        serde_json::to_value(all.shown(most, &UrlMask::default())).expect("JSON")
    }

    #[test]
    fn exchanges_are_grouped_by_server_and_connection() {
        let failed = ExchangeRecord {
            result: Some(ExchangeResult {
                ended_us: 1500,
                status: 0,
                head_us: 0,
                bytes: 0,
                end: ExchangeEnd::Failed,
                reason: Some(Reason::BodyCut),
            }),
            closed: Some((1600, ClosedBy::Server)),
            ..record(2, 5, 1, 1400, "/c")
        };
        let answer = shown(
            vec![
                record(1, 3, 8, 1200, "/b"),
                record(1, 3, 7, 1100, "/a;token=secret"),
                failed,
                record(9, 6, 1, 1300, "/gone"),
            ],
            10,
        );
        let servers = answer["servers"].as_array().expect("servers");
        assert_eq!(servers.len(), 2);
        let first = &servers[0]["connections"][0];
        assert_eq!(
            (&first["number"], &first["requests"]),
            (&json!(3), &json!(8))
        );
        assert_eq!(
            (&first["closed_us"], &first["tls_us"]),
            (&Value::Null, &Value::Null)
        );
        let paths: Vec<&Value> = first["exchanges"]
            .as_array()
            .expect("exchanges")
            .iter()
            .map(|one| &one["path"])
            .collect();
        assert_eq!(paths, [&json!("/a;token=***"), &json!("/b")]);
        assert_eq!(first["exchanges"][0]["end"], "in progress");
        let second = &servers[1]["connections"][0];
        assert_eq!(
            (&second["closed_us"], &second["closed_by"]),
            (&json!(1600), &json!("server"))
        );
        let exchange = &second["exchanges"][0];
        assert_eq!(
            (&exchange["status"], &exchange["head_us"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(
            (&exchange["end"], &exchange["reason"]),
            (&json!("failed"), &json!(Reason::BodyCut.text()))
        );
    }

    #[test]
    fn only_the_last_exchanges_are_shown() {
        let all = (0..10)
            .map(|n| record(1, 1, n + 1, 1000 + u64::from(n), "/"))
            .collect();
        let answer = shown(all, 3);
        let connection = &answer["servers"][0]["connections"][0];
        assert_eq!(connection["requests"], 10);
        let nth: Vec<_> = connection["exchanges"]
            .as_array()
            .expect("exchanges")
            .iter()
            .map(|one| one["nth"].as_u64())
            .collect();
        assert_eq!(nth, [Some(8), Some(9), Some(10)]);
    }
}
