//! Profiles of links: named ones with the values of typical networks, and their notation as text.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde::{Serialize, Serializer};

use super::link::LinkSettings;

/// Properties of an emulated link between a near end (the clients) and a far end (the servers).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Profile {
    /// Delay of a round trip, half of it in each direction. Transmission and the wait in a queue come on top of it.
    #[serde(rename = "delay_ms", serialize_with = "milliseconds")]
    pub delay: Duration,
    /// Largest difference of a round trip from `delay`, half of it in each direction.
    #[serde(rename = "jitter_ms", serialize_with = "milliseconds")]
    pub jitter: Duration,
    /// The direction from the far end to the near end.
    pub down: Bottleneck,
    /// The direction from the near end to the far end.
    pub up: Bottleneck,
}

/// The properties of a link that may differ between its directions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bottleneck {
    /// Share of the packets that are lost at random, from 0 to 1.
    pub loss: f64,
    /// Bits per second, counted with IP headers; `None`: no limit.
    pub rate: Option<u64>,
    /// Maximum number of packets that wait for transmission, if there is a rate.
    pub queue: u32,
}

/// Named profiles, with their notation.
pub const PROFILES: [(&str, &str); 3] = [
    // Between data centres in Europe and on the west coast of the USA. The queue takes 120 ms.
    ("eu-uswest", "delay=80ms,rate=100Mbit,queue=1000"),
    // A home connection (VDSL). The queues take 48 ms and 120 ms.
    (
        "dsl",
        "delay=30ms,jitter=2ms,rate=50Mbit/10Mbit,queue=200/100",
    ),
    // A moving phone (LTE). The radio has long queues, which take 180 ms and 240 ms.
    (
        "mobile",
        "delay=60ms,jitter=20ms,loss=0.5%,rate=20Mbit/5Mbit,queue=300/100",
    ),
];

/// Bounds of the values, which also bound the memory of the emulator.
const DELAY_MAX: Duration = Duration::from_secs(10);
const RATES: std::ops::RangeInclusive<u64> = 8_000..=10_000_000_000;
const QUEUES: std::ops::RangeInclusive<u32> = 1..=100_000;

/// The queue of links whose notation has none.
const QUEUE: u32 = 1000;

impl Default for Profile {
    /// Returns a link without delay, loss and limits.
    fn default() -> Profile {
        let bottleneck = Bottleneck {
            loss: 0.0,
            rate: None,
            queue: QUEUE,
        };
        Profile {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            down: bottleneck.clone(),
            up: bottleneck,
        }
    }
}

impl Profile {
    /// Sets one value by its name: `delay`, `jitter`, `loss`, `rate` or `queue`. The last three may have two values,
    /// `down/up`.
    ///
    /// Errors: an unknown name, or a value that can't be read or is out of bounds.
    pub fn set(&mut self, name: &str, value: &str) -> anyhow::Result<()> {
        let Profile { down, up, .. } = self;
        match name {
            "delay" => self.delay = time(value)?,
            "jitter" => self.jitter = time(value)?,
            "loss" => (down.loss, up.loss) = pair(value, loss)?,
            "rate" => (down.rate, up.rate) = pair(value, rate)?,
            "queue" => (down.queue, up.queue) = pair(value, queue)?,
            _ => bail!("unknown: {name:?}; the values are delay, jitter, loss, rate and queue"),
        }
        Ok(())
    }

    /// Checks that the values fit together.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(self.jitter <= self.delay, "the jitter is at most the delay");
        Ok(())
    }

    /// Returns the settings of the direction from the far end to the near end.
    pub fn down_link(&self) -> LinkSettings {
        self.link(&self.down)
    }

    /// Returns the settings of the direction from the near end to the far end.
    pub fn up_link(&self) -> LinkSettings {
        self.link(&self.up)
    }

    fn link(&self, bottleneck: &Bottleneck) -> LinkSettings {
        LinkSettings {
            delay: self.delay / 2,
            jitter: self.jitter / 2,
            loss: bottleneck.loss,
            rate: bottleneck.rate,
            queue: bottleneck.queue,
        }
    }
}

impl FromStr for Profile {
    type Err = anyhow::Error;

    /// Reads the name of a profile, or values such as `delay=80ms,loss=1%,rate=50Mbit/10Mbit`, or a name with values
    /// that replace its own.
    fn from_str(text: &str) -> anyhow::Result<Profile> {
        let mut profile = Profile::default();
        for (index, item) in text.split(',').enumerate() {
            if let Some((name, value)) = item.split_once('=') {
                profile.set(name.trim(), value.trim())?;
                continue;
            }
            let named = PROFILES.iter().find(|(name, _)| *name == item.trim());
            match named {
                Some((_, values)) if index == 0 => profile = values.parse()?,
                _ => {
                    let names: Vec<&str> = PROFILES.iter().map(|(name, _)| *name).collect();
                    let names = names.join(", ");
                    bail!("{item:?} is neither a profile ({names}) nor a value such as delay=80ms");
                }
            }
        }
        profile.check()?;
        Ok(profile)
    }
}

impl fmt::Display for Profile {
    /// Writes the notation that [`FromStr`] reads.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        write!(
            out,
            "delay={}ms,jitter={}ms",
            ms(self.delay),
            ms(self.jitter)
        )?;
        let rate = |rate: Option<u64>| rate.map_or("none".to_owned(), rate_text);
        let both = |down: String, up: String| match down == up {
            true => down,
            false => format!("{down}/{up}"),
        };
        let (down, up) = (&self.down, &self.up);
        let percent = |loss: f64| format!("{}%", (loss * 1e8).round() / 1e6);
        let loss = both(percent(down.loss), percent(up.loss));
        let queue = both(down.queue.to_string(), up.queue.to_string());
        let rate = both(rate(down.rate), rate(up.rate));
        write!(out, ",loss={loss},rate={rate},queue={queue}")
    }
}

/// Writes a rate with the largest unit that makes it a whole number.
fn rate_text(rate: u64) -> String {
    let units = [(1_000_000_000, "Gbit"), (1_000_000, "Mbit"), (1000, "kbit")];
    let unit = units
        .iter()
        .find(|(factor, _)| rate.is_multiple_of(*factor));
    match unit {
        Some((factor, unit)) => format!("{}{unit}", rate / factor),
        None => format!("{rate}bit"),
    }
}

fn milliseconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64() * 1000.0)
}

/// Reads `value`, or `down/up`.
fn pair<T: Clone>(text: &str, read: impl Fn(&str) -> anyhow::Result<T>) -> anyhow::Result<(T, T)> {
    match text.split_once('/') {
        Some((down, up)) => Ok((read(down)?, read(up)?)),
        None => read(text).map(|both| (both.clone(), both)),
    }
}

/// Splits a number from its unit. The number is finite and not negative.
fn number(text: &str) -> Option<(f64, &str)> {
    let digit = |letter: char| letter.is_ascii_digit() || letter == '.';
    let end = text.find(|letter| !digit(letter)).unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    Some((number, text[end..].trim()))
}

fn time(text: &str) -> anyhow::Result<Duration> {
    let (number, unit) = number(text).context("write a time, as in 80ms")?;
    let seconds = match unit {
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        _ => bail!("write a time, as in 80ms"),
    };
    let within = seconds <= DELAY_MAX.as_secs_f64();
    ensure!(within, "at most {} s", DELAY_MAX.as_secs());
    Ok(Duration::from_secs_f64(seconds))
}

fn loss(text: &str) -> anyhow::Result<f64> {
    match number(text) {
        Some((percent, "%")) if percent <= 100.0 => Ok(percent / 100.0),
        _ => bail!("write a share, as in 1%"),
    }
}

fn rate(text: &str) -> anyhow::Result<Option<u64>> {
    if text == "none" {
        return Ok(None);
    }
    let hint = "write a rate in bits per second, as in 8Mbit, or none";
    let (number, unit) = number(text).context(hint)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => bail!(hint),
    };
    let rate = (number * factor) as u64;
    ensure!(RATES.contains(&rate), "8kbit to 10Gbit, or none");
    Ok(Some(rate))
}

fn queue(text: &str) -> anyhow::Result<u32> {
    let queue = text.parse().ok().filter(|queue| QUEUES.contains(queue));
    queue.context("1 to 100000 packets")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> anyhow::Result<Profile> {
        text.parse()
    }

    #[test]
    fn named_profiles_have_their_documented_values() {
        let docs = include_str!("../../../docs/lab.md");
        for (name, values) in PROFILES {
            assert_eq!(parse(name).expect(name), parse(values).expect(values));
            assert!(
                docs.contains(&format!("| `{name}` | `{values}` |")),
                "{name}"
            );
        }
        let profile = parse("eu-uswest").expect("a profile");
        assert_eq!(profile.delay, Duration::from_millis(80));
        assert_eq!(profile.down_link().delay, Duration::from_millis(40));
        let profile = parse("dsl").expect("a profile");
        let rates = (profile.down_link().rate, profile.up_link().rate);
        assert_eq!(rates, (Some(50_000_000), Some(10_000_000)));
    }

    #[test]
    fn values_are_read_with_their_units() {
        let profile = parse("delay=80ms, jitter=500us,loss=1%/0.5%,rate=8Mbit/none,queue=100");
        let profile = profile.expect("a profile");
        let bottleneck = |loss, rate| Bottleneck {
            loss,
            rate,
            queue: 100,
        };
        let expected = Profile {
            delay: Duration::from_millis(80),
            jitter: Duration::from_micros(500),
            down: bottleneck(0.01, Some(8_000_000)),
            up: bottleneck(0.005, None),
        };
        assert_eq!(profile, expected);
        assert_eq!(
            profile.to_string(),
            "delay=80ms,jitter=0.5ms,loss=1%/0.5%,rate=8Mbit/none,queue=100"
        );
        let profile = parse("dsl,delay=1s").expect("a profile");
        assert_eq!(
            (profile.delay, profile.down.queue),
            (Duration::from_secs(1), 200)
        );
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "wifi",
            "delay",
            "delay=",
            "delay=80",
            "delay=-1ms",
            "delay=11s",
            "delay=1e3ms",
            "jitter=NaNms",
            "loss=1",
            "loss=101%",
            "loss=-1%",
            "rate=8",
            "rate=1bit",
            "rate=11Gbit",
            "rate=8MB",
            "queue=0",
            "queue=100001",
            "queue=1.5",
            "speed=1",
            "delay=1ms,jitter=2ms",
            "delay=80ms,dsl",
            "rate=1Mbit/2Mbit/3Mbit",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(delay|jitter|loss|rate|queue|dsl)?[=,]?[0-9.]{0,30}(ms|s|%|Mbit|é)?[/,]?.{0,9}") {
            let _ = parse(&text);
        }

        #[test]
        fn the_notation_is_read_back(
            delay in 0u64..10_000, jitter in 0u64..10_000, loss in 0u32..=10_000,
            rates in prop::array::uniform2(prop::option::of(RATES)), queues in prop::array::uniform2(QUEUES),
        ) {
            let bottleneck = |index: usize| Bottleneck {
                loss: f64::from(loss) / 10_000.0,
                rate: rates[index],
                queue: queues[index],
            };
            let profile = Profile {
                delay: Duration::from_millis(delay.max(jitter)),
                jitter: Duration::from_millis(jitter),
                down: bottleneck(0),
                up: bottleneck(1),
            };
            let again = parse(&profile.to_string()).expect("a profile");
            prop_assert!((again.down.loss - profile.down.loss).abs() < 1e-9);
            prop_assert_eq!(again.to_string(), profile.to_string());
            prop_assert_eq!((again.delay, again.down.rate, again.up.queue), (profile.delay, profile.down.rate, profile.up.queue));
        }
    }
}
