//! The protocols that a listener's clients may speak (`protocols`).

/// A protocol between clients and Sluice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 and HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

impl Protocol {
    /// Every protocol.
    pub const ALL: [Protocol; 2] = [Protocol::Http2, Protocol::Http1];

    /// Returns the name of the protocol in TLS (ALPN, RFC 7301), which is also its name in the configuration.
    pub fn alpn(self) -> &'static str {
        match self {
            Protocol::Http1 => "http/1.1",
            Protocol::Http2 => "h2",
        }
    }

    /// Returns the protocol with this name.
    pub fn named(name: &[u8]) -> Option<Protocol> {
        let mut all = Protocol::ALL.into_iter();
        all.find(|protocol| protocol.alpn().as_bytes() == name)
    }
}

/// One or two protocols, the preferred one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    first: Protocol,
    second: Option<Protocol>,
}

impl Protocols {
    /// The default in clear text.
    pub const CLEAR: Protocols = Protocols::only(Protocol::Http1);

    /// The default over TLS.
    pub const TLS: Protocols = Protocols {
        first: Protocol::Http2,
        second: Some(Protocol::Http1),
    };

    /// Returns the list of one protocol.
    pub const fn only(protocol: Protocol) -> Protocols {
        Protocols {
            first: protocol,
            second: None,
        }
    }

    /// Returns the protocols in this order, each once; `None` if there are none.
    pub fn of(listed: &[Protocol]) -> Option<Protocols> {
        let first = *listed.first()?;
        let second = listed.iter().copied().find(|other| *other != first);
        Some(Protocols { first, second })
    }

    /// Returns the protocols, the preferred one first.
    pub fn iter(self) -> impl Iterator<Item = Protocol> {
        [Some(self.first), self.second].into_iter().flatten()
    }

    /// Whether this protocol is in the list.
    pub fn has(self, protocol: Protocol) -> bool {
        self.first == protocol || self.second == Some(protocol)
    }

    /// Whether HTTP/1 is the only protocol, so that no client has to be asked.
    pub fn is_http1(self) -> bool {
        !self.has(Protocol::Http2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_their_order_and_name_each_protocol_once() {
        let (h1, h2) = (Protocol::Http1, Protocol::Http2);
        let both = Protocols::of(&[h1, h2, h1]).expect("protocols");
        assert_eq!(both.iter().collect::<Vec<_>>(), [h1, h2]);
        assert!(both.has(h1) && both.has(h2) && !both.is_http1());
        let h2_alone = Protocols::of(&[h2, h2]).expect("protocols");
        assert!(!h2_alone.has(h1) && !h2_alone.is_http1());
        assert!(Protocols::CLEAR.is_http1());
        assert_eq!(Protocols::of(&[]), None);
        assert_eq!(Protocol::named(b"http/1.0"), None);
        assert_eq!(Protocol::named(b"h2"), Some(h2));
    }
}
