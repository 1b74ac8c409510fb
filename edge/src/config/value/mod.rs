//! The types of values in a configuration file: sizes, times, lists, words, and what may be `false`.

mod amount;
mod key;
mod level;
mod list;
mod or_false;
mod pairs;
mod port;
mod retry_cause;
mod sandbox;
mod scalar;
mod shape;
mod show;
mod status_range;
mod table;
mod word;

pub use amount::{Ahead, Parallel, Size, Spelling, Time, has_months};
pub use key::{Key, Named};
pub use level::Level;
pub use list::{AllowList, List, Names, Words};
pub use or_false::{OrFalse, Switch, is_old_off, written_false};
pub use pairs::{Pair, Pairs};
pub use port::SwitchOrPort;
pub use retry_cause::RetryCause;
pub use sandbox::Sandbox;
pub use shape::{
    ACME, BALANCE, COMPRESS, DNS, EDITS, EJECT, EXTERNAL_ACCOUNT, FOLLOW, HEALTH, ON_DEMAND, PAGES,
    RETRY, SERVER_TLS, STICKY, TABLE, TABLE_OR_FALSE, TCP, TLS, TOKENS, advice, nothing_in,
};
pub use show::{YEAR, show_count, show_size, show_time};
pub use status_range::StatusRange;
pub use table::{OrTable, Shaped, Statuses, Table};
pub use word::{Word, word};
