//! The macros of the table of metrics. The types that they use have to be imported where they are called.

/// Defines a struct of numbers and the description of each: `name: kind unit`, and `=> "line"
/// "label"` if `sluice status` shows the number in its summary.
macro_rules! numbers {
    (
        $(#[doc = $about:literal])*
        $type:ident of $scope:ident {
            $($(#[doc = $doc:literal])* $name:ident: $kind:ident $unit:ident $(=> $line:literal $label:literal)?,)*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct $type {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Numbers for $type {
            const METRICS: &'static [Metric] = &[$(Metric {
                name: stringify!($name),
                kind: Kind::$kind,
                unit: Unit::$unit,
                scope: Scope::$scope,
                help: concat!($($doc),*).trim_ascii(),
                summary: numbers!(@summary $($line $label)?),
            }),*];

            fn values(&self) -> impl Iterator<Item = u64> {
                [$(self.$name),*].into_iter()
            }

            fn read(get: impl Fn(&'static str) -> u64) -> $type {
                $type { $($name: get(stringify!($name)),)* }
            }

            fn add(&mut self, other: &$type) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }

            fn subtract(&mut self, earlier: &$type) {
                $(self.$name = self.$name.wrapping_sub(earlier.$name);)*
            }
        }
    };
    (@summary) => { None };
    (@summary $line:literal $label:literal) => { Some(($line, $label)) };
}

/// Defines a struct like `numbers!` does, and a second struct with a `Counter` per number, in which
/// one worker counts. `with` adds histograms of durations to the second struct, and `and` another field.
macro_rules! counters {
    (
        $(#[doc = $about:literal])*
        $counters:ident,
        $(#[doc = $sums:literal])*
        $type:ident of $scope:ident {
            $($(#[doc = $doc:literal])* $name:ident: $kind:ident $unit:ident $(=> $line:literal $label:literal)?,)*
        }
        $(with {
            $($(#[doc = $histogram_doc:literal])* $histogram:ident,)+
        })?
        $(and {
            $(#[doc = $other_doc:literal])* $other:ident: $other_type:ty,
        })?
    ) => {
        numbers! {
            $(#[doc = $sums])*
            $type of $scope {
                $($(#[doc = $doc])* $name: $kind $unit $(=> $line $label)?,)*
            }
        }

        $(#[doc = $about])*
        #[derive(Default)]
        // Each worker writes its own counters often, so no two workers' counters share a cache
        // line.
        #[repr(align(128))]
        pub struct $counters {
            $($(#[doc = $doc])* pub $name: Counter,)*
            $($($(#[doc = $histogram_doc])* pub $histogram: HistogramCounters,)+)?
            $($(#[doc = $other_doc])* pub $other: $other_type,)?
        }

        $(impl $counters {
            /// Descriptions of the histograms.
            pub const HISTOGRAMS: &'static [Metric] = &[$(Metric {
                name: stringify!($histogram),
                kind: Kind::Histogram,
                unit: Unit::Seconds,
                scope: Scope::$scope,
                help: concat!($($histogram_doc),*).trim_ascii(),
                summary: None,
            }),+];
        })?

        impl $counters {
            /// Returns the current values.
            pub fn numbers(&self) -> $type {
                $type { $($name: self.$name.get(),)* }
            }
        }
    };
}

pub(super) use {counters, numbers};
