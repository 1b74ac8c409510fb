//! The history of all members, within a limit of memory.

use std::collections::BTreeMap;

use super::layout::Layout;
use super::member::{Member, Values};
use super::scope::Scope;
use super::tick::Tick;

/// Time after which a member without new readings counts as gone, in seconds. The memory of a gone member is used for
/// new members.
const GONE_AFTER_S: u64 = 60;

/// The points of all members of all scopes.
#[derive(Debug)]
pub struct History {
    scopes: Vec<Members>,
    bytes: usize,
    bytes_max: usize,
    /// Time at which no member was gone, so that there is no room for new ones. In seconds. Members that come later may
    /// have existed without a history.
    full_s: Option<u64>,
}

/// The members of a scope by name.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) layout: Layout,
    pub(super) by_name: BTreeMap<Box<str>, Member>,
}

impl History {
    /// Creates a history without members that takes at most `bytes_max` bytes.
    pub fn new(layouts: impl IntoIterator<Item = Layout>, bytes_max: usize) -> History {
        let members = |layout| Members {
            layout,
            by_name: BTreeMap::new(),
        };
        History {
            scopes: layouts.into_iter().map(members).collect(),
            bytes: 0,
            bytes_max,
            full_s: None,
        }
    }

    /// Records a reading of a member. Returns `false` if the member has no history because the memory is used up by
    /// others.
    pub fn note(&mut self, scope: Scope, name: &str, tick: &Tick, values: Values<'_>) -> bool {
        if !self.has(scope, name) && !self.insert(scope, name, tick.now_s()) {
            return false;
        }
        let Some(members) = self.scopes.iter_mut().find(|one| one.scope() == scope) else {
            return false;
        };
        if let Some(member) = members.by_name.get_mut(name) {
            member.note(&members.layout, tick, values);
        }
        true
    }

    /// Removes the members whose newest point is older than the longest ring.
    pub fn prune(&mut self, now_s: u64) {
        for members in &mut self.scopes {
            let spans = members.scope().rings().map(|ring| ring.span_s());
            let oldest_s = now_s.saturating_sub(spans.into_iter().max().unwrap_or(0));
            let before = members.by_name.len();
            members
                .by_name
                .retain(|_, member| !member.is_gone(oldest_s) || member.end_s() >= oldest_s);
            let removed = before - members.by_name.len();
            self.bytes -= removed * members.layout.member_bytes();
        }
    }

    /// Returns the memory that the history takes once all rings are full.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the layout of a scope that has members.
    pub fn layout(&self, scope: Scope) -> Option<&Layout> {
        self.members(scope).map(|members| &members.layout)
    }

    /// Returns the names of a scope's members in alphabetical order.
    pub fn names(&self, scope: Scope) -> impl Iterator<Item = &str> {
        let members = self.members(scope).into_iter();
        members.flat_map(|members| members.by_name.keys().map(|name| &**name))
    }

    pub(super) fn members(&self, scope: Scope) -> Option<&Members> {
        self.scopes.iter().find(|members| members.scope() == scope)
    }

    pub(super) fn member_mut(&mut self, scope: Scope, name: &str) -> Option<&mut Member> {
        let members = self.scopes.iter_mut().find(|one| one.scope() == scope)?;
        members.by_name.get_mut(name)
    }

    pub(super) fn layouts(&self) -> impl Iterator<Item = &Layout> {
        self.scopes.iter().map(|members| &members.layout)
    }

    fn has(&self, scope: Scope, name: &str) -> bool {
        self.members(scope)
            .is_some_and(|members| members.by_name.contains_key(name))
    }

    /// Adds a member. Returns whether there was room.
    pub(super) fn insert(&mut self, scope: Scope, name: &str, now_s: u64) -> bool {
        let Some(at) = self.scopes.iter().position(|one| one.scope() == scope) else {
            return false;
        };
        let bytes = self.scopes[at].layout.member_bytes();
        while self.bytes + bytes > self.bytes_max {
            if !self.remove_gone(now_s) {
                return false;
            }
        }
        self.bytes += bytes;
        let members = &mut self.scopes[at];
        // The kernel counts the load of a disk since the machine was started.
        let is_late = self.full_s.is_some() || scope == Scope::Volume;
        let member = Member::new(&members.layout, is_late);
        members.by_name.insert(name.into(), member);
        true
    }

    /// Removes the member that is gone for the longest time. Returns `false` if none is gone.
    fn remove_gone(&mut self, now_s: u64) -> bool {
        if self.full_s == Some(now_s) {
            return false;
        }
        let all = self.scopes.iter().enumerate().flat_map(|(at, members)| {
            let members = members.by_name.iter();
            members.map(move |(name, member)| (member, at, name))
        });
        let gone = all.filter(|(member, ..)| member.is_gone(now_s.saturating_sub(GONE_AFTER_S)));
        let first = gone.min_by_key(|(member, ..)| member.end_s());
        let Some((at, name)) = first.map(|(_, at, name)| (at, name.clone())) else {
            self.full_s = Some(now_s);
            return false;
        };
        let members = &mut self.scopes[at];
        members.by_name.remove(&name);
        self.bytes -= members.layout.member_bytes();
        true
    }
}

impl Members {
    pub(super) fn scope(&self) -> Scope {
        self.layout.scope()
    }
}
