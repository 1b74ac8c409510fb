//! The tokens of the admin API: their files, and the search for the token of a request.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;

use crate::http::bearer::is_token;

/// Shortest token in bytes. A random token of this length can't be guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// Most tokens in all files together. Each one takes time in each request.
pub const TOKENS_MAX: usize = 64;
/// Longest name of a token in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Name of the only token of a file without names.
const ONLY_NAME: &str = "operator";

/// The requests that a client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Only requests that change nothing.
    Reader,
    /// All requests.
    Operator,
}

impl Role {
    /// Returns the name of the role, as messages and pages have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Reader => "reader",
            Role::Operator => "operator",
        }
    }
}

/// The hash of a token. Tokens themselves are not kept, so no message and no dump of memory can contain one.
#[derive(Clone, Eq)]
struct Digest([u8; 32]);

impl Digest {
    fn of(token: &[u8]) -> Digest {
        Digest(*blake3::hash(token).as_bytes())
    }
}

/// Takes constant time.
impl PartialEq for Digest {
    fn eq(&self, other: &Digest) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// A token with its name and role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Name of the token, which messages contain in place of the token.
    pub name: Arc<str>,
    /// The requests that the token permits.
    pub role: Role,
    digest: Digest,
}

/// All tokens of the admin API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Whether requests need a token. Stays true if the files could not be read, so that a failure opens nothing.
    pub are_required: bool,
    list: Vec<Token>,
}

/// The way in which a file contains tokens. Empty lines, and lines that begin with `#`, are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenForm {
    /// The file has one token, of an operator.
    Only,
    /// Each line of the file has a name and a token.
    Named(Role),
}

/// An error in a file with tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenError {
    /// Number of the line, from 1 on.
    pub line: usize,
    /// Describes the error, without any part of a token.
    pub why: String,
}

impl Tokens {
    /// Adds the tokens in the text of a file.
    ///
    /// # Errors
    ///
    /// A line has no usable token, the file has none, or there are too many tokens. Tokens before the error were added.
    pub fn add(&mut self, text: &str, form: TokenForm) -> Result<(), TokenError> {
        self.are_required = true;
        let before = self.list.len();
        let lines = text.lines().map(str::trim).enumerate();
        let is_skipped = |line: &str| line.is_empty() || line.starts_with('#');
        for (index, line) in lines.filter(|(_, line)| !is_skipped(line)) {
            let added = match form {
                TokenForm::Only if self.list.len() > before => {
                    Err("there is a second token".to_owned())
                }
                _ => self.add_line(line, form),
            };
            added.map_err(|why| TokenError {
                line: index + 1,
                why,
            })?;
        }
        match self.list.len() > before {
            true => Ok(()),
            false => Err(TokenError {
                line: 1,
                why: "there is no token".to_owned(),
            }),
        }
    }

    fn add_line(&mut self, line: &str, form: TokenForm) -> Result<(), String> {
        let (name, token, role) = match form {
            TokenForm::Only => (ONLY_NAME, line, Role::Operator),
            TokenForm::Named(role) => {
                let mut words = line.split_whitespace();
                match (words.next(), words.next(), words.next()) {
                    (Some(name), Some(token), None) => (name, token, role),
                    _ => return Err("a line has a name, a space and a token".to_owned()),
                }
            }
        };
        check_name(name)?;
        check_token(token)?;
        if self.list.len() >= TOKENS_MAX {
            return Err(format!("there are more than {TOKENS_MAX} tokens"));
        }
        let digest = Digest::of(token.as_bytes());
        if let Some(same) = self.list.iter().find(|one| *one.name == *name) {
            let role = same.role.as_str();
            return Err(format!("another token, of a {role}, has the name {name}"));
        }
        if let Some(same) = self.list.iter().find(|one| one.digest == digest) {
            return Err(format!("{name} has the same token as {}", same.name));
        }
        self.list.push(Token {
            name: name.into(),
            role,
            digest,
        });
        Ok(())
    }

    /// Returns the entry of a token. The time that this takes does not depend on the tokens in the list: the hash is compared
    /// with all of them, and each comparison takes constant time.
    pub fn find(&self, token: &[u8]) -> Option<&Token> {
        let digest = Digest::of(token);
        let mut found = None;
        for one in &self.list {
            if one.digest == digest {
                found = Some(one);
            }
        }
        found
    }

    /// Whether these tokens include this one, with the same name and role.
    pub fn contains(&self, token: &Token) -> bool {
        self.list.contains(token)
    }

    /// Iterates over the tokens, in the order of their files.
    pub fn iter(&self) -> impl Iterator<Item = &Token> {
        self.list.iter()
    }
}

/// Returns the first usable token in the text of a file, for a command that reads the file. The file may have either form.
pub fn first_token(text: &str) -> Option<&str> {
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let token = lines.next()?.split_whitespace().last()?;
    check_token(token).is_ok().then_some(token)
}

fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    match name.len() <= NAME_BYTES_MAX && name.bytes().all(is_plain) {
        true => Ok(()),
        false => Err(format!(
            "a name has at most {NAME_BYTES_MAX} letters, digits and characters of -_.@"
        )),
    }
}

fn check_token(token: &str) -> Result<(), String> {
    let length = token.chars().count();
    if length < TOKEN_BYTES_MIN {
        return Err(format!(
            "the token has {length} characters, and needs at least {TOKEN_BYTES_MIN}"
        ));
    }
    match is_token(token.as_bytes()) {
        true => Ok(()),
        false => Err(
            "a token has at most 512 letters, digits and characters of -._~+/, and may end in ="
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALICE: &str = "alice-0123456789abcdef";
    const BOB: &str = "bob-0123456789abcdef";

    fn named(role: Role, text: &str) -> Result<Tokens, TokenError> {
        let mut tokens = Tokens::default();
        tokens.add(text, TokenForm::Named(role)).map(|()| tokens)
    }

    #[test]
    fn a_token_has_the_name_and_the_role_of_its_line() {
        let mut tokens = Tokens::default();
        assert!(!tokens.are_required && tokens.find(ALICE.as_bytes()).is_none());
        let readers = format!("# of the monitoring\n\n  alice \t {ALICE}  \r\n");
        let form = TokenForm::Named(Role::Reader);
        assert_eq!(tokens.add(&readers, form), Ok(()));
        assert_eq!(tokens.add(&format!("{BOB}\n"), TokenForm::Only), Ok(()));
        let found = |token: &str| {
            let found = tokens.find(token.as_bytes())?;
            Some((found.name.to_string(), found.role))
        };
        assert_eq!(found(ALICE), Some(("alice".to_owned(), Role::Reader)));
        assert_eq!(found(BOB), Some(("operator".to_owned(), Role::Operator)));
        for wrong in ["", "alice", &ALICE[1..], &format!("{ALICE}x"), "ALICE"] {
            assert_eq!(found(wrong), None, "{wrong}");
        }
        assert!(tokens.are_required);
        let shown = format!("{tokens:?}");
        assert!(
            shown.contains("alice") && !shown.contains("0123"),
            "{shown}"
        );
    }

    #[test]
    fn unusable_tokens_are_refused_with_their_line() {
        let secret = "0123456789abcde";
        let long = "x".repeat(513);
        for (text, line, why) in [
            ("", 1, "there is no token"),
            ("# a\n\n", 1, "there is no token"),
            (&format!("\n\na {secret}"), 3, "has 15 characters"),
            (&format!("a {ALICE}\nb"), 2, "a line has a name"),
            (ALICE, 1, "a line has a name"),
            (&format!("a {ALICE} b"), 1, "a line has a name"),
            (&format!("a {ALICE}\na {BOB}"), 2, "has the name a"),
            (&format!("a {ALICE}\nb {ALICE}"), 2, "same token as a"),
            (&format!("a {ALICE}:"), 1, "letters, digits"),
            (&format!("a {long}"), 1, "at most 512"),
            (&format!("a\u{e9} {ALICE}"), 1, "a name has"),
            (&format!("{} {ALICE}", "n".repeat(65)), 1, "a name has"),
        ] {
            let error = named(Role::Operator, text).expect_err(text);
            assert_eq!(error.line, line, "{text}");
            assert!(error.why.contains(why), "{}", error.why);
            assert!(!error.why.contains("0123"), "{}", error.why);
        }
        let only = |text: &str| Tokens::default().add(text, TokenForm::Only);
        assert!(only(&format!("\n{ALICE}\n\n")).is_ok());
        for text in [
            format!("{ALICE}\n{BOB}"),
            format!("a {ALICE}"),
            String::new(),
        ] {
            assert!(only(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn there_are_at_most_64_tokens() {
        let line = |i: usize| format!("n{i} token-{i:016}\n");
        let lines: String = (0..TOKENS_MAX).map(line).collect();
        let mut tokens = named(Role::Reader, &lines).expect("64 tokens");
        let error = tokens.add(BOB, TokenForm::Only).expect_err("one more");
        assert_eq!(error.why, "there are more than 64 tokens");
        // The last one is found like the first one.
        for i in [0, 63] {
            let token = format!("token-{i:016}");
            assert_eq!(
                &*tokens.find(token.as_bytes()).expect("found").name,
                format!("n{i}")
            );
        }
    }

    // A comparison of another type would not take constant time.
    #[test]
    fn digests_are_compared_in_constant_time() {
        let source = include_str!("tokens.rs");
        let code = source.split("#[cfg(test)]").next().expect("the code");
        assert!(code.contains("verify_slices_are_equal(&self.0, &other.0)"));
        assert_eq!(code.matches("PartialEq for Digest").count(), 1);
        assert!(!code.contains("self.0 =="));
    }

    #[test]
    fn commands_read_the_first_token_of_a_file() {
        assert_eq!(
            first_token(&format!("# x\na {ALICE}\nb {BOB}")),
            Some(ALICE)
        );
        assert_eq!(first_token(&format!("\n{BOB}\n")), Some(BOB));
        assert_eq!([first_token(""), first_token("a short")], [None, None]);
    }

    proptest! {
        #[test]
        fn only_the_token_itself_is_found(
            tokens in proptest::collection::hash_set("[a-z]{16,24}", 1..8),
            other in "[a-z]{16,24}",
        ) {
            let lines: Vec<String> =
                tokens.iter().enumerate().map(|(i, token)| format!("n{i} {token}")).collect();
            let list = named(Role::Reader, &lines.join("\n")).expect("usable");
            prop_assert!(tokens.iter().all(|token| list.find(token.as_bytes()).is_some()));
            prop_assert_eq!(list.find(other.as_bytes()).is_some(), tokens.contains(&other));
        }
    }
}
