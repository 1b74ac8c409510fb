//! The types of values in a configuration file: sizes, times, lists, words, and what may be `false`.

mod amount;
mod key;
mod level;
mod list;
mod or_false;
mod pairs;
mod port;
mod sandbox;
mod shape;
mod show;
mod table;
mod word;

pub use amount::{Ahead, Parallel, Size, Spelling, Time, has_months};
pub use key::{Key, Named};
pub use level::Level;
pub use list::{AllowList, List, Names, Words};
pub use or_false::{OrFalse, Switch, is_old_off, written_false};
pub use pairs::{Pair, Pairs};
pub use port::SwitchOrPort;
pub use sandbox::Sandbox;
pub use shape::{COMPRESS, EDITS, PAGES, RETRY, TABLE, TABLE_OR_FALSE, TLS, advice, nothing_in};
pub use show::{YEAR, show_count, show_size, show_time};
pub use table::{OrTable, Shaped, Statuses, Table};
pub use word::{Word, word};
