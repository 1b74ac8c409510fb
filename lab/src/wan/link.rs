//! One direction of an emulated link, as a pure model: decides from the sizes and times of packets when each one
//! arrives, and which ones are dropped.
//!
//! A packet passes, in this order: jitter, the queue in front of the bottleneck, the bottleneck with its rate, random
//! loss, and the constant delay. Jitter comes first and changes slowly, so that it neither reorders packets nor lets
//! them leave the bottleneck faster than its rate.

use std::collections::VecDeque;
use std::time::Duration;

use crate::noise::{Dice, mix};

/// Properties of one direction of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkSettings {
    /// Mean time from sending a packet to its arrival, without its transmission and its wait in the queue.
    pub delay: Duration,
    /// Largest difference between this time and its mean; at most `delay`.
    pub jitter: Duration,
    /// Share of the packets that are lost at random, from 0 to 1.
    pub loss: f64,
    /// Rate of the bottleneck in bits per second; `None`: no bottleneck.
    pub rate: Option<u64>,
    /// Maximum number of packets that wait for the bottleneck, in addition to the packet in transmission. Further
    /// packets are dropped.
    pub queue: u32,
}

/// The way in which a packet leaves the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The packet arrives at this time.
    Arrives(Duration),
    /// The packet is lost at random, after the bottleneck.
    Lost,
    /// The packet is dropped because the queue is full.
    QueueFull,
}

/// The state of one direction of a link. All times count from the same moment, such as the start of the emulator.
#[derive(Debug)]
pub struct Link {
    settings: LinkSettings,
    seed: u64,
    dice: Dice,
    latest: Duration,
    /// Time at which the bottleneck has transmitted all packets that it accepted.
    free_at: Duration,
    /// Times at which the transmissions of the accepted packets end, without those that have certainly ended.
    transmissions: VecDeque<Duration>,
}

/// Jitter takes this many times its own size from one random value to the next. The delay then changes by at most half
/// of the elapsed time, so a packet never overtakes an earlier one.
const JITTER_STEP: u32 = 4;

/// Streams of the random generator.
const LOSS: u64 = 0;
const JITTER: u64 = 1;

impl Link {
    /// Returns an idle link. `seed` determines losses and jitter.
    pub fn new(settings: LinkSettings, seed: u64) -> Link {
        Link {
            settings,
            seed,
            dice: Dice::new(seed, LOSS),
            latest: Duration::ZERO,
            free_at: Duration::ZERO,
            transmissions: VecDeque::new(),
        }
    }

    /// Sends a packet of `bytes` bytes at the time `now`. A time before that of an earlier packet counts as the time of
    /// that packet.
    pub fn send(&mut self, now: Duration, bytes: usize) -> Fate {
        self.latest = self.latest.max(now);
        let at_queue = self.latest + self.jitter(self.latest);
        if let Some(rate) = self.settings.rate {
            if self.waiting(at_queue) > self.settings.queue as usize {
                return Fate::QueueFull;
            }
            self.free_at = self.free_at.max(at_queue) + transmission(bytes, rate);
            self.transmissions.push_back(self.free_at);
        } else {
            self.free_at = at_queue;
        }
        if self.loses() {
            return Fate::Lost;
        }
        Fate::Arrives(self.free_at + self.settings.delay - self.settings.jitter)
    }

    /// Returns the time after `now` for which the bottleneck is busy with the packets that it has accepted.
    pub fn backlog(&self, now: Duration) -> Duration {
        self.free_at.saturating_sub(now)
    }

    /// Returns the number of packets at the bottleneck at this time, including the one in transmission. The time must
    /// not be before that of an earlier call.
    fn waiting(&mut self, now: Duration) -> usize {
        while self.transmissions.front().is_some_and(|end| *end <= now) {
            self.transmissions.pop_front();
        }
        self.transmissions.len()
    }

    fn loses(&mut self) -> bool {
        // The random number has 53 bits, so that its conversion is exact.
        let share = (self.dice.roll() >> 11) as f64 / (1u64 << 53) as f64;
        share < self.settings.loss
    }

    /// Returns the part of the delay that varies, from zero to twice the jitter: random values at regular times, and
    /// straight lines between them.
    fn jitter(&self, now: Duration) -> Duration {
        let size = self.settings.jitter.as_nanos() as u64;
        if size == 0 {
            return Duration::ZERO;
        }
        let step = u128::from(size) * u128::from(JITTER_STEP);
        let (index, within) = (now.as_nanos() / step, now.as_nanos() % step);
        let value = |index: u128| {
            // Mixed, because links whose seeds are neighbours would otherwise have the same values at other times.
            let seed = mix(self.seed).wrapping_add(index as u64);
            u128::from(Dice::new(seed, JITTER).between(0, 2 * size))
        };
        let sum = value(index) * (step - within) + value(index + 1) * within;
        Duration::from_nanos((sum / step) as u64)
    }
}

/// Returns the time that a packet of `bytes` bytes occupies the bottleneck, rounded up.
pub fn transmission(bytes: usize, rate: u64) -> Duration {
    let nanos = (bytes as u128 * 8 * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settings() -> LinkSettings {
        LinkSettings {
            delay: Duration::from_millis(40),
            jitter: Duration::ZERO,
            loss: 0.0,
            rate: None,
            queue: 100,
        }
    }

    fn any_settings() -> impl Strategy<Value = LinkSettings> {
        let delays = (0u64..200_000, 0u64..200_000).prop_map(|(a, b)| (a.max(b), a.min(b)));
        let rate = prop_oneof![Just(None), (8_000u64..200_000_000).prop_map(Some)];
        (delays, 0.0..0.5, rate, 0u32..300).prop_map(|((delay, jitter), loss, rate, queue)| {
            LinkSettings {
                delay: Duration::from_micros(delay),
                jitter: Duration::from_micros(jitter),
                loss,
                rate,
                queue,
            }
        })
    }

    /// Gaps in microseconds before packets, and the sizes of the packets.
    fn any_packets() -> impl Strategy<Value = Vec<(u64, usize)>> {
        let gap = prop_oneof![Just(0), 0u64..2000, 0u64..200_000];
        prop::collection::vec((gap, 20usize..=1500), 1..400)
    }

    /// Sends the packets and returns the time, size and fate of each.
    fn send(link: &mut Link, packets: &[(u64, usize)]) -> Vec<(Duration, usize, Fate)> {
        let mut now = Duration::ZERO;
        let each = |&(gap, bytes): &(u64, usize)| {
            now += Duration::from_micros(gap);
            (now, bytes, link.send(now, bytes))
        };
        packets.iter().map(each).collect()
    }

    fn arrivals(sent: &[(Duration, usize, Fate)]) -> Vec<(Duration, usize)> {
        let arrival = |(_, bytes, fate): &(Duration, usize, Fate)| match fate {
            Fate::Arrives(at) => Some((*at, *bytes)),
            _ => None,
        };
        sent.iter().filter_map(arrival).collect()
    }

    proptest! {
        #[test]
        fn packets_keep_their_order(settings in any_settings(), packets in any_packets(), seed: u64) {
            let arrivals = arrivals(&send(&mut Link::new(settings, seed), &packets));
            prop_assert!(arrivals.is_sorted_by_key(|(at, _)| *at));
        }

        #[test]
        fn the_rate_is_never_exceeded(settings in any_settings(), packets in any_packets(), seed: u64) {
            let arrivals = arrivals(&send(&mut Link::new(settings, seed), &packets));
            let Some(rate) = settings.rate else { return Ok(()) };
            for first in 0..arrivals.len() {
                let mut needed = Duration::ZERO;
                for (at, bytes) in &arrivals[first + 1..] {
                    needed += transmission(*bytes, rate);
                    prop_assert!(*at - arrivals[first].0 >= needed);
                }
            }
        }

        #[test]
        fn delay_and_jitter_bound_the_time_of_each_packet(
            settings in any_settings(), packets in any_packets(), seed: u64,
        ) {
            for (now, bytes, fate) in send(&mut Link::new(settings, seed), &packets) {
                let Fate::Arrives(at) = fate else { continue };
                let own = settings.rate.map_or(Duration::ZERO, |rate| transmission(bytes, rate));
                let queue = settings.rate.map_or(Duration::ZERO, |rate| {
                    transmission(1500, rate) * (settings.queue + 1)
                });
                let took = at - now;
                prop_assert!(took >= settings.delay - settings.jitter + own);
                prop_assert!(took <= settings.delay + settings.jitter + own + queue);
            }
        }

        #[test]
        fn the_queue_is_bounded_and_drops_only_when_it_is_full(
            settings in any_settings(), packets in any_packets(), seed: u64,
        ) {
            let mut link = Link::new(settings, seed);
            let mut now = Duration::ZERO;
            for (gap, bytes) in packets {
                now += Duration::from_micros(gap);
                let fate = link.send(now, bytes);
                prop_assert!(link.transmissions.len() <= settings.queue as usize + 1);
                if fate == Fate::QueueFull {
                    prop_assert!(settings.rate.is_some());
                    prop_assert_eq!(link.transmissions.len(), settings.queue as usize + 1);
                }
            }
        }

        #[test]
        fn the_same_seed_gives_the_same_fates(settings in any_settings(), packets in any_packets(), seed: u64) {
            let once = send(&mut Link::new(settings, seed), &packets);
            prop_assert_eq!(once, send(&mut Link::new(settings, seed), &packets));
        }
    }

    #[test]
    fn the_share_of_lost_packets_is_that_of_the_settings() {
        for loss in [0.0, 0.001, 0.01, 0.2, 1.0] {
            let mut link = Link::new(LinkSettings { loss, ..settings() }, 7);
            let lost = (0..100_000)
                .filter(|packet| link.send(Duration::from_micros(*packet), 100) == Fate::Lost)
                .count();
            let share = lost as f64 / 100_000.0;
            // Six standard deviations.
            let margin = 6.0 * (loss * (1.0 - loss) / 100_000.0_f64).sqrt();
            assert!((share - loss).abs() <= margin, "{loss}: {share}");
        }
    }

    #[test]
    fn links_with_neighbouring_seeds_have_nothing_in_common() {
        let jitter = Duration::from_millis(10);
        let loss = 0.5;
        let settings = LinkSettings {
            jitter,
            loss,
            ..settings()
        };
        let values = |link: &Link| -> Vec<Duration> {
            (0..1000)
                .map(|index| link.jitter(jitter * JITTER_STEP * index))
                .collect()
        };
        let packets: Vec<(u64, usize)> = (0..1000).map(|_| (1000, 100)).collect();
        let lost = |link: &mut Link| -> Vec<bool> {
            let sent = send(link, &packets);
            sent.iter().map(|(.., fate)| *fate == Fate::Lost).collect()
        };
        for seed in [0, 1, 7] {
            let (mut one, mut other) = (Link::new(settings, seed), Link::new(settings, seed + 1));
            let (first, second) = (values(&one), values(&other));
            let (first_lost, second_lost) = (lost(&mut one), lost(&mut other));
            for shift in 0..3 {
                let pairs = first[shift..].iter().zip(&second);
                let same = pairs.filter(|(a, b)| a == b).count();
                assert!(same < 10, "{same} of 1000 with a shift of {shift}");
                let pairs = first_lost[shift..].iter().zip(&second_lost);
                let same = pairs.filter(|(a, b)| a == b).count();
                assert!((400..600).contains(&same), "{same} of 1000 losses");
            }
        }
    }

    #[test]
    fn a_backlogged_bottleneck_is_used_fully() {
        let rate = Some(8_000_000);
        let mut link = Link::new(LinkSettings { rate, ..settings() }, 1);
        // 1,000 packets of 1,500 bytes per second are 12 Mbit/s, so every third packet is dropped.
        let packets: Vec<(u64, usize)> = (0..10_000).map(|_| (1000, 1500)).collect();
        let arrivals = arrivals(&send(&mut link, &packets));
        let took = arrivals[arrivals.len() - 1].0 - arrivals[0].0;
        let bits = (arrivals.len() - 1) as f64 * 1500.0 * 8.0;
        let measured = bits / took.as_secs_f64();
        assert!((measured - 8e6).abs() < 8.0, "{measured}");
    }

    #[test]
    fn jitter_varies_around_the_delay() {
        let jitter = Duration::from_millis(10);
        let mut link = Link::new(
            LinkSettings {
                jitter,
                ..settings()
            },
            3,
        );
        let packets: Vec<(u64, usize)> = (0..100_000).map(|_| (1000, 100)).collect();
        let sent = send(&mut link, &packets);
        let took = arrivals(&sent);
        let took = took
            .iter()
            .zip(&sent)
            .map(|((at, _), (now, ..))| *at - *now);
        let took: Vec<f64> = took.map(|took| took.as_secs_f64() * 1000.0).collect();
        let mean = took.iter().sum::<f64>() / took.len() as f64;
        let least = took.iter().copied().fold(f64::INFINITY, f64::min);
        let most = took.iter().copied().fold(0.0, f64::max);
        assert!((mean - 40.0).abs() < 0.5, "{mean}");
        assert!(least < 31.0 && most > 49.0, "{least} to {most}");
    }
}
