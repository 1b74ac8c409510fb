//! Turns messages of the program into notices: those with a target `sluice::event::KIND::REASON`.

use std::fmt::Debug;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterFn, filter_fn};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::notice::Happened;
use super::notices::Notices;
use crate::telemetry::messages;

/// Beginning of the targets of messages that are events.
const PREFIX: &str = "sluice::event::";

/// Receives the messages that are events from `tracing`, whatever the level of messages that are logged.
struct EventLayer(Notices);

/// Returns a layer that adds the messages that are events to `notices`.
pub fn event_layer<S>(notices: Notices) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let is_event: FilterFn<fn(&Metadata<'_>) -> bool> =
        filter_fn(is_event as fn(&Metadata<'_>) -> bool).with_max_level_hint(LevelFilter::INFO);
    EventLayer(notices).with_filter(is_event)
}

fn is_event(meta: &Metadata<'_>) -> bool {
    meta.target().starts_with(PREFIX)
}

impl<S: Subscriber> Layer<S> for EventLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let target = event.metadata().target();
        let Some((kind, reason)) = target
            .strip_prefix(PREFIX)
            .and_then(|name| name.split_once("::"))
        else {
            return;
        };
        let mut url = UrlOf(None);
        event.record(&mut url);
        self.0.add(Happened {
            kind,
            reason,
            message: messages::text_of(event),
            url: url.0.map(|url| self.0.mask().shown(url.as_bytes(), false)),
            client: None,
        });
    }
}

/// The field `url` of a message.
struct UrlOf(Option<String>);

impl Visit for UrlOf {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "url" {
            self.0 = Some(format!("{value:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::prelude::*;

    use super::*;
    use crate::sys::Clock;

    #[test]
    fn messages_that_are_events_become_notices() {
        let notices = Notices::new(Clock::manual(1));
        let subscriber = tracing_subscriber::registry().with(event_layer(notices.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!("a message");
            tracing::warn!(target: "sluice::event::server::ejected", server = "a\n<b>", "a server is ejected");
            tracing::debug!(target: "sluice::event::server::other", "too low");
        });
        let all = notices.after(0, 10);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].kind, all[0].reason), ("server", "ejected"));
        assert_eq!(&*all[0].message, "a server is ejected server=\"a\\n<b>\"");
    }
}
