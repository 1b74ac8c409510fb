//! Parses one source file: the paths that the file names, the lengths of its functions, skipped
//! tests and unfinished code.

use std::collections::HashMap;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The facts about one source file that the rules need.
#[derive(Default)]
pub struct Facts {
    /// Paths named outside tests, as absolute paths.
    pub paths: Vec<Named>,
    /// Functions outside tests, with their lengths.
    pub functions: Vec<Function>,
    /// Number of lines outside tests.
    pub lines: usize,
    /// Modules declared in this file that are compiled only for tests, as paths from the crate's
    /// root.
    pub test_modules: Vec<Vec<String>>,
    /// Numbers of the lines with `#[ignore]`.
    pub ignored: Vec<usize>,
    /// Numbers of the lines with `todo!` or `unimplemented!`.
    pub unfinished: Vec<usize>,
    /// Whether the file begins with a `//!` line.
    pub introduced: bool,
}

/// A path and the number of the line that names it. The path begins with `crate` for this crate's
/// modules, otherwise with the name of another crate.
pub struct Named {
    pub line: usize,
    pub path: Vec<String>,
}

/// A function, from `fn` to its closing brace.
pub struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
}

/// Parses the text of a module's file. `module` is the module's path, for example `["cache",
/// "serve"]`, and is empty for the crate's root.
pub fn read(module: &[String], text: &str) -> syn::Result<Facts> {
    let file = syn::parse_file(text)?;
    let mut scan = Scan {
        module: module.to_vec(),
        ..Scan::default()
    };
    scan.visit_file(&file);
    let mut facts = scan.facts;
    facts.lines = text.lines().count().saturating_sub(scan.test_lines);
    facts.introduced = text.starts_with("//!");
    facts.paths = scan
        .raw
        .iter()
        .map(|raw| Named {
            line: raw.line,
            path: absolute(raw, &scan.names),
        })
        .collect();
    Ok(facts)
}

/// The names that `use` and `mod` declare in each module, with the paths as written in these
/// declarations.
type Names = HashMap<(Vec<String>, String), RawPath>;

#[derive(Default)]
struct Scan {
    facts: Facts,
    module: Vec<String>,
    owner: Option<String>,
    in_test: bool,
    test_lines: usize,
    raw: Vec<RawPath>,
    names: Names,
}

/// A path as written in the source, with the module that contains it.
#[derive(Clone)]
struct RawPath {
    module: Vec<String>,
    line: usize,
    /// Whether the path begins with `::`, so that its first segment is a crate.
    external: bool,
    segments: Vec<String>,
}

impl Scan {
    fn name_path(&mut self, external: bool, segments: Vec<String>, span: Span) {
        if self.in_test || segments.is_empty() {
            return;
        }
        self.raw.push(RawPath {
            module: self.module.clone(),
            line: span.start().line,
            external,
            segments,
        });
    }

    /// Records the path of a name that `use` or `mod` declares in the module.
    fn bind(&mut self, name: String, external: bool, segments: Vec<String>) {
        let module = self.module.clone();
        let target = RawPath {
            module: module.clone(),
            line: 0,
            external,
            segments,
        };
        self.names.insert((module, name), target);
    }

    fn use_tree(&mut self, external: bool, prefix: &[String], tree: &syn::UseTree) {
        let with = |ident: &syn::Ident| [prefix, &[ident.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.use_tree(external, &with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => {
                self.use_leaf(external, with(&name.ident), None, name.span())
            }
            syn::UseTree::Rename(name) => {
                let rename = Some(name.rename.to_string());
                self.use_leaf(external, with(&name.ident), rename, name.span());
            }
            syn::UseTree::Glob(glob) => self.name_path(external, prefix.to_vec(), glob.span()),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.use_tree(external, prefix, tree);
                }
            }
        }
    }

    fn use_leaf(&mut self, external: bool, mut path: Vec<String>, name: Option<String>, at: Span) {
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        if !self.in_test {
            let own = path.last().cloned().unwrap_or_default();
            self.bind(name.unwrap_or(own), external, path.clone());
        }
        self.name_path(external, path, at);
    }

    /// Visits an item. If the item is compiled only for tests, its lines are counted as test lines.
    fn guarded(&mut self, attrs: &[syn::Attribute], span: Span, visit: impl FnOnce(&mut Self)) {
        let outer = self.in_test;
        if !outer && attrs.iter().any(is_test_only) {
            self.in_test = true;
            self.test_lines += lines_of(span);
        }
        visit(self);
        self.in_test = outer;
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        if self.in_test {
            return;
        }
        let name = match &self.owner {
            Some(owner) => format!("{owner}::{}", signature.ident),
            None => signature.ident.to_string(),
        };
        let line = signature.span().start().line;
        let lines = block.span().end().line + 1 - line;
        self.facts.functions.push(Function { name, line, lines });
    }

    /// Finds paths in tokens that the parser leaves unparsed: arguments and bodies of macros, and
    /// attributes.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut run: Vec<String> = Vec::new();
        let mut start = Span::call_site();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(p) if p.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) => {
                    if colons != 2 || run.is_empty() {
                        self.end_of_run(&mut run, start);
                        start = ident.span();
                    }
                    run.push(ident.to_string());
                    colons = 0;
                }
                other => {
                    self.end_of_run(&mut run, start);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.end_of_run(&mut run, start);
    }

    fn end_of_run(&mut self, run: &mut Vec<String>, start: Span) {
        let segments = std::mem::take(run);
        if segments.len() > 1 {
            self.name_path(false, segments, start);
        }
    }
}

impl<'ast> Visit<'ast> for Scan {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        self.guarded(attributes(item), item.span(), |scan| {
            visit::visit_item(scan, item);
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.guarded(&item.attrs, item.span(), |scan| {
            scan.function(&item.sig, &item.block);
            visit::visit_impl_item_fn(scan, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let outer = self.owner.take();
        self.owner = owner_name(&item.self_ty);
        visit::visit_item_impl(self, item);
        self.owner = outer;
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        let inner = [self.module.as_slice(), std::slice::from_ref(&name)].concat();
        if self.in_test {
            self.facts.test_modules.push(inner.clone());
        } else {
            self.bind(name.clone(), false, vec!["self".into(), name]);
        }
        let outer = std::mem::replace(&mut self.module, inner);
        visit::visit_item_mod(self, item);
        self.module = outer;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.use_tree(item.leading_colon.is_some(), &[], &item.tree);
    }

    /// Skips the path in `pub(in …)`, because it is not an import.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if segments.len() > 1 {
            self.name_path(path.leading_colon.is_some(), segments, path.span());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        let name = mac.path.segments.last().map(|s| s.ident.to_string());
        if matches!(name.as_deref(), Some("todo" | "unimplemented")) {
            self.facts.unfinished.push(mac.span().start().line);
        }
        self.tokens(mac.tokens.clone());
        visit::visit_macro(self, mac);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let list = match &attribute.meta {
            syn::Meta::List(list) => list.tokens.clone(),
            _ => TokenStream::new(),
        };
        let conditional = attribute.path().is_ident("cfg_attr") && mentions(list.clone(), "ignore");
        if attribute.path().is_ident("ignore") || conditional {
            self.facts.ignored.push(attribute.span().start().line);
        }
        self.tokens(list);
        visit::visit_attribute(self, attribute);
    }
}

/// Returns the absolute path that begins with `crate` or a crate's name, after resolving names that
/// `use` and `mod` declare.
fn absolute(raw: &RawPath, names: &Names) -> Vec<String> {
    let mut raw = raw.clone();
    // Each step resolves one name. The limit ends the loop if names refer to each other in a cycle.
    for _ in 0..16 {
        if raw.external {
            return raw.segments;
        }
        match raw.segments[0].as_str() {
            "crate" => return raw.segments,
            "self" | "super" => return from_module(&raw),
            name => {
                let Some(target) = names.get(&(raw.module.clone(), name.to_owned())) else {
                    return raw.segments;
                };
                // `use http;` names the crate itself.
                if target.segments[0] == name {
                    return [&target.segments, &raw.segments[1..]].concat();
                }
                let mut next = target.clone();
                next.segments.extend_from_slice(&raw.segments[1..]);
                raw = next;
            }
        }
    }
    raw.segments
}

fn from_module(raw: &RawPath) -> Vec<String> {
    let mut module = raw.module.clone();
    let mut rest = raw.segments.as_slice();
    while let Some((first, tail)) = rest.split_first() {
        match first.as_str() {
            "self" => {}
            "super" => drop(module.pop()),
            _ => break,
        }
        rest = tail;
    }
    [&["crate".to_owned()], module.as_slice(), rest].concat()
}

fn lines_of(span: Span) -> usize {
    span.end().line + 1 - span.start().line
}

fn owner_name(ty: &syn::Type) -> Option<String> {
    match ty {
        syn::Type::Path(path) => path.path.segments.last().map(|s| s.ident.to_string()),
        _ => None,
    }
}

fn mentions(tokens: TokenStream, word: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == word,
        TokenTree::Group(group) => mentions(group.stream(), word),
        _ => false,
    })
}

/// Whether an attribute is `#[test]`, or a `#[cfg]` that holds only when tests are compiled.
fn is_test_only(attribute: &syn::Attribute) -> bool {
    let name = attribute.path().segments.last();
    if name.is_some_and(|name| name.ident == "test") {
        return true;
    }
    attribute.path().is_ident("cfg")
        && attribute
            .parse_args::<syn::Meta>()
            .is_ok_and(|condition| without_tests(&condition) == Some(false))
}

/// Whether a `cfg` condition holds when tests are not compiled. Returns `None` if the result
/// depends on other settings.
fn without_tests(condition: &syn::Meta) -> Option<bool> {
    let parts = || -> Vec<Option<bool>> {
        let syn::Meta::List(list) = condition else {
            return Vec::new();
        };
        let comma_separated =
            syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated;
        list.parse_args_with(comma_separated)
            .map(|parts| parts.iter().map(without_tests).collect())
            .unwrap_or_default()
    };
    let path = condition.path();
    if path.is_ident("test") {
        Some(false)
    } else if path.is_ident("not") {
        parts().first().copied().flatten().map(|holds| !holds)
    } else if path.is_ident("all") {
        parts().contains(&Some(false)).then_some(false)
    } else if path.is_ident("any") {
        parts()
            .iter()
            .all(|part| *part == Some(false))
            .then_some(false)
    } else {
        None
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
