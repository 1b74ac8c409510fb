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

/// Defines a struct like `numbers!` does; a second struct with a `Counter` per number, in which one worker counts; and a
/// third struct with the values of the histograms that `with` adds to the second one. `and` adds another field to both.
macro_rules! counters {
    (
        $(#[doc = $about:literal])*
        $counters:ident,
        $(#[doc = $sums:literal])*
        $type:ident of $scope:ident {
            $($(#[doc = $doc:literal])* $name:ident: $kind:ident $unit:ident $(=> $line:literal $label:literal)?,)*
        }
        with
        $(#[doc = $measured:literal])*
        $measures:ident {
            $($(#[doc = $histogram_doc:literal])* $histogram:ident: $histogram_unit:ident,)+
        }
        $(and {
            $(#[doc = $other_doc:literal])* $other:ident: $other_counters:ty => $other_type:ty,
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
            $($(#[doc = $histogram_doc])* pub $histogram: HistogramCounters,)+
            $($(#[doc = $other_doc])* pub $other: $other_counters,)?
        }

        impl $counters {
            /// Returns the current values.
            pub fn numbers(&self) -> $type {
                $type { $($name: self.$name.get(),)* }
            }

            /// Returns the current values of the histograms.
            pub fn measures(&self) -> $measures {
                $measures {
                    $($histogram: self.$histogram.values(),)+
                    $($other: self.$other.values(),)?
                }
            }
        }

        $(#[doc = $measured])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $measures {
            $($(#[doc = $histogram_doc])* pub $histogram: Histogram,)+
            $($(#[doc = $other_doc])* pub $other: $other_type,)?
        }

        impl Measures for $measures {
            const METRICS: &'static [Metric] = &[$(Metric {
                name: stringify!($histogram),
                kind: Kind::Histogram,
                unit: Unit::$histogram_unit,
                scope: Scope::$scope,
                help: concat!($($histogram_doc),*).trim_ascii(),
                summary: None,
            }),+];

            fn histograms(&self) -> impl Iterator<Item = (&'static Metric, &Histogram)> {
                Self::METRICS.iter().zip([$(&self.$histogram),+])
            }

            fn add(&mut self, other: &$measures) {
                $(self.$histogram.add(&other.$histogram);)+
                $(self.$other.add(&other.$other);)?
            }
        }

        /// A map with the percentiles of each histogram.
        impl Serialize for $measures {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                for (metric, histogram) in self.histograms() {
                    map.serialize_entry(metric.name, &Shown(metric.unit, histogram))?;
                }
                $(map.serialize_entry(stringify!($other), &self.$other)?;)?
                map.end()
            }
        }
    };
}

pub(super) use {counters, numbers};
