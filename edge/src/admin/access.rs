//! Decides whether a client may send a request, by its address and its token.

use std::sync::Arc;

use super::peer::Peer;
use super::tokens::{Role, Token, Tokens};
use super::tries::{Failed, FailedTries};
use crate::http::{Scheme, bearer};

/// Name of clients without a token.
const LOCAL: &str = "local";

/// A client whose request is permitted, as far as its role goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Name of its token, or `local` if no token is needed.
    pub name: Arc<str>,
    /// The requests that it may send.
    pub role: Role,
    /// The client.
    pub peer: Peer,
    /// Its token, if it needed one.
    token: Option<Token>,
}

impl Caller {
    /// Whether the client may still read, after the tokens have changed to these.
    pub fn may_read(&self, tokens: &Tokens) -> bool {
        match &self.token {
            _ if !tokens.are_required => self.peer.is_local(),
            Some(token) => tokens.contains(token),
            None => false,
        }
    }
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The client is on another machine, and there are no tokens.
    NotLocal,
    /// The client is on another machine, and its connection has no TLS.
    NeedsTls,
    /// There is no valid bearer token.
    NeedsToken,
    /// The token is unknown.
    WrongToken(Failed),
    /// The client has sent too many unknown tokens.
    TooManyTries,
}

/// The parts of a request that decide.
#[derive(Clone, Copy, Debug)]
pub struct Presented<'a> {
    /// The client.
    pub peer: Peer,
    /// Scheme of the connection.
    pub scheme: Scheme,
    /// Value of Authorization, if the request has exactly one.
    pub authorization: Option<&'a [u8]>,
}

/// Returns the client of a request. An unknown token is noted in `tries`, and only such a token: a client that sends none
/// can't guess.
///
/// # Errors
///
/// The request is refused.
pub fn identify(
    request: Presented<'_>,
    tokens: &Tokens,
    tries: &mut FailedTries,
    now_us: u64,
) -> Result<Caller, Denied> {
    let peer = request.peer;
    if !tokens.are_required {
        return match peer.is_local() {
            true => Ok(Caller {
                name: LOCAL.into(),
                role: Role::Operator,
                peer,
                token: None,
            }),
            false => Err(Denied::NotLocal),
        };
    }
    if !peer.is_local() && request.scheme != Scheme::Https {
        return Err(Denied::NeedsTls);
    }
    let token = request.authorization.and_then(bearer::token);
    let token = token.ok_or(Denied::NeedsToken)?;
    if tries.are_too_many(peer.charged(), now_us) {
        return Err(Denied::TooManyTries);
    }
    match tokens.find(token) {
        Some(found) => Ok(Caller {
            name: found.name.clone(),
            role: found.role,
            peer,
            token: Some(found.clone()),
        }),
        None => Err(Denied::WrongToken(tries.note(peer.charged(), now_us))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tokens::TokenForm;
    use super::super::tries::TRIES;
    use super::*;

    const OPERATOR: &[u8] = b"Bearer operator-0123456789";
    const READER: &[u8] = b"bearer reader-0123456789";
    const WRONG: &[u8] = b"Bearer wrong-0123456789ab";

    fn tokens() -> Tokens {
        let mut tokens = Tokens::default();
        let operator = tokens.add("operator-0123456789", TokenForm::Only);
        let form = TokenForm::Named(Role::Reader);
        let reader = tokens.add("grafana reader-0123456789", form);
        assert_eq!((operator, reader), (Ok(()), Ok(())));
        tokens
    }

    fn peer(address: &str) -> Peer {
        Peer::Ip(format!("{address}:1").parse().expect("an address"))
    }

    fn of(
        peer: Peer,
        scheme: Scheme,
        authorization: Option<&[u8]>,
        tokens: &Tokens,
    ) -> Result<Role, Denied> {
        let request = Presented {
            peer,
            scheme,
            authorization,
        };
        let found = identify(request, tokens, &mut FailedTries::default(), 0);
        found.map(|caller| caller.role)
    }

    const LOCAL_PEERS: [&str; 4] = ["127.0.0.1", "127.0.0.2", "[::1]", "[::ffff:127.0.0.1]"];
    const REMOTE_PEERS: [&str; 4] = ["10.0.0.1", "0.0.0.0", "[2001:db8::1]", "[::ffff:10.0.0.1]"];

    #[test]
    fn without_tokens_only_clients_on_this_machine_are_served() {
        let none = Tokens::default();
        let local = LOCAL_PEERS.map(peer).into_iter();
        for peer in local.chain([Peer::Unix(Some(0)), Peer::Unix(None)]) {
            for header in [None, Some(WRONG)] {
                assert_eq!(of(peer, Scheme::Http, header, &none), Ok(Role::Operator));
            }
        }
        for peer in REMOTE_PEERS.map(peer) {
            for scheme in [Scheme::Http, Scheme::Https] {
                for header in [None, Some(OPERATOR)] {
                    assert_eq!(of(peer, scheme, header, &none), Err(Denied::NotLocal));
                }
            }
        }
    }

    #[test]
    fn with_tokens_every_client_needs_one_and_others_need_tls_too() {
        let tokens = tokens();
        let wrong = Err(Denied::WrongToken(Failed::First));
        let outcomes = [
            (None, Err(Denied::NeedsToken)),
            (Some(&b""[..]), Err(Denied::NeedsToken)),
            (Some(b"Basic YTpi"), Err(Denied::NeedsToken)),
            (Some(WRONG), wrong),
            (Some(READER), Ok(Role::Reader)),
            (Some(OPERATOR), Ok(Role::Operator)),
        ];
        for (header, outcome) in outcomes {
            let local = LOCAL_PEERS.map(peer).into_iter();
            for peer in local.chain([Peer::Unix(Some(0)), Peer::Unix(None)]) {
                assert_eq!(of(peer, Scheme::Http, header, &tokens), outcome, "{peer}");
            }
            for peer in REMOTE_PEERS.map(peer) {
                assert_eq!(of(peer, Scheme::Https, header, &tokens), outcome, "{peer}");
                let clear = of(peer, Scheme::Http, header, &tokens);
                assert_eq!(clear, Err(Denied::NeedsTls), "{peer}");
            }
        }
    }

    #[test]
    fn a_client_may_read_as_long_as_its_token_is_in_force() {
        let call = |peer, authorization, tokens: &Tokens| {
            let request = Presented {
                peer,
                scheme: Scheme::Https,
                authorization,
            };
            identify(request, tokens, &mut FailedTries::default(), 0).expect("permitted")
        };
        let (all, none, mut changed) = (tokens(), Tokens::default(), Tokens::default());
        let form = TokenForm::Named(Role::Reader);
        let added = changed.add("grafana another-0123456789\nbob reader-0123456789", form);
        assert_eq!(added, Ok(()));
        let (near, far) = (peer("127.0.0.1"), peer("10.0.0.1"));
        let reader = call(far, Some(READER), &all);
        assert!(reader.may_read(&all));
        // The name now has another token, and the token another name.
        assert!(!reader.may_read(&changed));
        assert!(!reader.may_read(&none), "it is on another machine");
        assert!(call(near, Some(READER), &all).may_read(&none));
        let local = call(near, None, &none);
        assert!(local.may_read(&none) && !local.may_read(&all));
    }

    #[test]
    fn tokens_that_could_not_be_read_open_nothing() {
        let mut tokens = Tokens::default();
        assert!(tokens.add("", TokenForm::Only).is_err());
        let outcome = of(peer("127.0.0.1"), Scheme::Http, Some(OPERATOR), &tokens);
        assert_eq!(outcome, Err(Denied::WrongToken(Failed::First)));
    }

    #[test]
    fn a_client_that_guesses_is_refused_with_the_right_token_too() {
        let (tokens, mut tries) = (tokens(), FailedTries::default());
        let mut send = |address: &str, authorization| {
            let request = Presented {
                peer: peer(address),
                scheme: Scheme::Https,
                authorization,
            };
            identify(request, &tokens, &mut tries, 0).map(|caller| caller.name.to_string())
        };
        for _ in 0..TRIES {
            assert_eq!(send("[2001:db8::1]", None), Err(Denied::NeedsToken));
            let wrong = send("[2001:db8::1]", Some(WRONG));
            assert!(matches!(wrong, Err(Denied::WrongToken(_))), "{wrong:?}");
        }
        // The client may have any address of its network.
        for authorization in [WRONG, OPERATOR] {
            let refused = send("[2001:db8::2]", Some(authorization));
            assert_eq!(refused, Err(Denied::TooManyTries));
        }
        let other = send("[2001:db8:0:1::1]", Some(READER));
        assert_eq!(other.as_deref(), Ok("grafana"));
    }
}
