//! Saves the history as records, and restores it from them.

use std::collections::BTreeMap;
use std::io::Read;

use super::code::ABSENT;
use super::file::{self, Damage, Entry, Records};
use super::members::History;
use super::scope::Scope;

/// Most points of a record.
const RECORD_POINTS: u64 = 512;
/// Longest name of a member that is restored, in bytes.
const NAME_MAX: usize = 4 << 10;

/// The positions of saved series in the present layout; `None` for series that no longer exist.
type Mapping = Vec<Option<usize>>;

/// A group of points in a file.
struct Points<'a> {
    scope: Scope,
    member: &'a str,
    step_s: u32,
    first: u64,
}

impl History {
    /// Appends the beginning of a new file.
    pub(super) fn write_beginning(&self, out: &mut Vec<u8>) {
        out.extend(file::MAGIC);
        self.write_layouts(out);
    }

    /// Appends the layouts of all scopes, which the points after them have.
    pub(super) fn write_layouts(&self, out: &mut Vec<u8>) {
        for layout in self.layouts() {
            let entry = Entry::Layout {
                scope: layout.scope().name(),
                series: layout.series().iter().map(|one| &*one.name).collect(),
            };
            file::write(out, &entry, std::iter::empty());
        }
    }

    /// Appends the points of a member, all of them or those that were not saved yet.
    pub(super) fn write_points(&mut self, scope: Scope, name: &str, all: bool, out: &mut Vec<u8>) {
        let Some(member) = self.member_mut(scope, name) else {
            return;
        };
        for ring in &mut member.rings {
            let numbers = ring.take_unsaved(all);
            let end = numbers.end;
            for first in numbers.step_by(RECORD_POINTS as usize) {
                let part = first..end.min(first + RECORD_POINTS);
                let entry = Entry::Points {
                    scope: scope.name(),
                    member: name,
                    step_s: ring.size().step_s,
                    first,
                    count: (part.end - part.start) as u32,
                };
                file::write(out, &entry, part.filter_map(|number| ring.point(number)));
            }
        }
    }

    /// Adds the points of a file that are not too old. Returns the damage because of which the rest of the file was not
    /// read, if there is any.
    pub fn restore(&mut self, from: impl Read, now_s: u64) -> Option<Damage> {
        let damage = self.read_records(from, now_s).err();
        for scope in Scope::ALL {
            let names: Vec<String> = self.names(scope).map(str::to_owned).collect();
            for name in names {
                let rings = self
                    .member_mut(scope, &name)
                    .map(|member| &mut member.rings);
                rings
                    .into_iter()
                    .flatten()
                    .for_each(|ring| ring.mark_saved());
            }
        }
        damage
    }

    fn read_records(&mut self, from: impl Read, now_s: u64) -> Result<(), Damage> {
        let mut records = Records::new(from)?;
        let mut mappings: BTreeMap<Scope, Mapping> = BTreeMap::new();
        while let Some((entry, codes)) = records.next()? {
            match entry {
                Entry::Layout { scope, series } => {
                    if let Some(scope) = Scope::by_name(scope)
                        && let Some(layout) = self.layout(scope)
                    {
                        let mapping = series.iter().map(|name| layout.position(name));
                        mappings.insert(scope, mapping.collect());
                    }
                }
                Entry::Points {
                    scope,
                    member,
                    step_s,
                    first,
                    count,
                } => {
                    let known = Scope::by_name(scope);
                    let Some(scope) = known.filter(|scope| self.layout(*scope).is_some()) else {
                        continue;
                    };
                    let mapping = mappings.get(&scope).ok_or(Damage::Corrupt)?;
                    if codes.len() != count as usize * mapping.len() * size_of::<u16>() {
                        return Err(Damage::Corrupt);
                    }
                    let points = Points {
                        scope,
                        member,
                        step_s,
                        first,
                    };
                    self.add_points(&points, codes, mapping, now_s);
                }
            }
        }
        Ok(())
    }

    /// Adds points whose ring still exists, and that are neither too old nor in the future.
    fn add_points(&mut self, points: &Points<'_>, codes: &[u8], mapping: &Mapping, now_s: u64) {
        let Points { scope, member, .. } = *points;
        let rings = scope.rings();
        let at = rings.iter().position(|ring| ring.step_s == points.step_s);
        let (Some(at), Some(layout)) = (at, self.layout(scope)) else {
            return;
        };
        let mut point = vec![ABSENT; layout.series().len()];
        let now = now_s / u64::from(points.step_s);
        let oldest = now.saturating_sub(u64::from(rings[at].points));
        let width = mapping.len() * size_of::<u16>();
        let numbered = (points.first..).zip(codes.chunks_exact(width.max(1)));
        for (number, codes) in numbered.filter(|(number, _)| (oldest..now).contains(number)) {
            if !self.can_restore(scope, member, now_s) {
                return;
            }
            let codes = codes
                .chunks_exact(2)
                .map(|two| u16::from_le_bytes([two[0], two[1]]));
            for (code, position) in codes.zip(mapping) {
                if let Some(position) = position {
                    point[*position] = code;
                }
            }
            if let Some(member) = self.member_mut(scope, member)
                && point.iter().any(|code| *code != ABSENT)
            {
                member.rings[at].push(number, &point);
            }
        }
    }

    /// Whether a member exists or could be added.
    fn can_restore(&mut self, scope: Scope, name: &str, now_s: u64) -> bool {
        self.member_mut(scope, name).is_some()
            || (name.len() <= NAME_MAX && self.insert(scope, name, now_s))
    }
}
