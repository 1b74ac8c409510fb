//! The path of `proxy`: replaces the part of a path that a route fixes, and puts it back into the
//! paths of responses.

use std::fmt;

/// The replacement of the beginning of paths, or of a whole path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMap {
    /// The text that is replaced.
    client: Box<str>,
    /// The text that takes its place. Ends with a slash if and only if `client` does, unless the
    /// whole path is replaced.
    origin: Box<str>,
    is_whole: bool,
}

impl PathMap {
    /// Creates the map from paths that begin with `client` to paths that begin with `origin`. Both
    /// begin with a slash. With `is_whole`, `client` and `origin` are whole paths.
    pub fn new(client: &str, origin: &str, is_whole: bool) -> PathMap {
        let bare = origin.strip_suffix('/').unwrap_or(origin);
        let origin = match is_whole {
            true => origin.into(),
            false if client.ends_with('/') => format!("{bare}/").into(),
            false => bare.into(),
        };
        PathMap {
            client: client.into(),
            origin,
            is_whole,
        }
    }

    /// Returns the target for the origin. The target `*` of OPTIONS stays.
    pub(super) fn to_origin(&self, target: &str) -> String {
        if target == "*" {
            return target.to_owned();
        }
        let path_end = target.find('?').unwrap_or(target.len());
        let rest = match self.is_whole {
            true => &target[path_end..],
            // The route matched, so the path begins with the text. If it did not, the path would
            // be put behind that of the origin.
            false => match target.strip_prefix(&*self.client) {
                Some(rest) => rest,
                None => target.trim_start_matches('/'),
            },
        };
        let slash = match self.origin.is_empty() && !rest.starts_with('/') {
            true => "/",
            false => "",
        };
        format!("{}{slash}{rest}", self.origin)
    }

    /// Returns the path under which clients have this path of the origin, if there is one.
    pub(super) fn to_client(&self, path: &str) -> Option<String> {
        if self.is_whole {
            return (*path == *self.origin).then(|| self.client.to_string());
        }
        if let Some(rest) = path.strip_prefix(&*self.origin) {
            return Some(format!("{}{rest}", self.client));
        }
        // The folder itself, without the slash at its end.
        let folder = self.origin.strip_suffix('/')?;
        let client = self.client.strip_suffix('/')?;
        (path == folder).then(|| match client {
            "" => "/".to_owned(),
            client => client.to_owned(),
        })
    }
}

/// Describes the map for `sluice check`.
impl fmt::Display for PathMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = match &*self.origin {
            "" => "nothing",
            origin => origin,
        };
        match (self.is_whole, &*self.client) {
            (false, "/") => write!(f, "below {origin}"),
            (_, client) => write!(f, "{client} replaced by {origin}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_beginning_of_a_path_is_replaced_and_put_back() {
        for (client, origin, target, sent) in [
            ("/a/", "/base", "/a/x?q", "/base/x?q"),
            ("/a/", "/base/", "/a/", "/base/"),
            ("/a/", "/", "/a/x/y", "/x/y"),
            ("/", "/base", "/x?q", "/base/x?q"),
            ("/", "/", "/x", "/x"),
            ("/a", "/base", "/a", "/base"),
            ("/a", "/base/", "/a/x", "/base/x"),
            ("/a", "/base", "/ab", "/baseb"),
            ("/a", "/", "/a/x", "/x"),
            ("/a", "/", "/a", "/"),
            ("/a", "/", "/a?q", "/?q"),
        ] {
            let map = PathMap::new(client, origin, false);
            assert_eq!(map.to_origin(target), sent, "{client} {origin} {target}");
            let (path, sent) = (target.split('?').next(), sent.split('?').next());
            let back = map.to_client(sent.expect("a path"));
            // With nothing in place of a folder's name, the origin's root is the folder.
            let folder = (client, origin, path) == ("/a", "/", Some("/a"));
            assert_eq!(
                back.as_deref(),
                path.map(|p| if folder { "/a/" } else { p })
            );
        }
        let map = PathMap::new("/a/", "/base", false);
        assert_eq!(map.to_client("/base").as_deref(), Some("/a"));
        assert_eq!(map.to_client("/basement/x"), None);
        assert_eq!(map.to_client("/other"), None);
        assert_eq!(map.to_origin("*"), "*");
        let root = PathMap::new("/", "/base", false);
        assert_eq!(root.to_client("/base").as_deref(), Some("/"));
    }

    #[test]
    fn a_whole_path_is_replaced_by_another() {
        let map = PathMap::new("/a", "/b/c", true);
        assert_eq!(map.to_origin("/a?q"), "/b/c?q");
        assert_eq!(map.to_client("/b/c").as_deref(), Some("/a"));
        assert_eq!(map.to_client("/b/c/d"), None);
    }

    proptest! {
        #[test]
        fn a_mapped_path_is_absolute_and_leads_back(
            client in "/|(/[ab]{1,2}){1,2}/?", origin in "/|(/[cd]{1,2}){1,2}/?", rest in "[xy/]{0,6}",
        ) {
            let map = PathMap::new(&client, &origin, false);
            let path = format!("{client}{rest}");
            let sent = map.to_origin(&path);
            prop_assert!(sent.starts_with('/'));
            let back = map.to_client(&sent);
            prop_assert!(back.is_some());
            prop_assert_eq!(map.to_origin(&back.expect("a path")), sent);
        }
    }
}
