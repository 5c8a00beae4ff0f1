// SPDX-License-Identifier: GPL-2.0
//! From two snapshots to a view: rates, depths, coalescing.
//!
//! Rates are differences between two samples: of 64-bit counters directly, of a ring's indices
//! modulo 2^32. An object has rates if it is in both snapshots; a number is never used for two
//! objects in an epoch. A counter that decreased, or another epoch, means that the device was
//! reset: then the earlier snapshot is ignored.

use std::collections::BTreeMap;

use serde_json::{json, Map, Value};

use super::snapshot::{Kind, Record, Snapshot};

/// Per second; `None` without an earlier sample.
type Rate = Option<f64>;

/// A device between two samples.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) name: String,
    pub(crate) health: String,
    pub(crate) epoch: u64,
    /// Time between the samples.
    pub(crate) seconds: Option<f64>,
    pub(crate) tuning: Record,
    /// The device's counters since its reset, and their rates.
    pub(crate) counters: BTreeMap<String, (u64, Rate)>,
    pub(crate) eqs: Vec<Eq>,
    pub(crate) cqs: Vec<Cq>,
    pub(crate) qps: Vec<Qp>,
}

/// The activity of an EQ.
#[derive(Debug)]
pub(crate) struct Eq {
    pub(crate) number: u64,
    pub(crate) vector: u64,
    pub(crate) depth: u64,
    /// Entries whose slot is not free.
    pub(crate) used: u64,
    pub(crate) cqs: u64,
    pub(crate) interrupts: Rate,
    pub(crate) polls: Rate,
    pub(crate) events: Rate,
    /// Completions of all its CQs, those of processes included.
    pub(crate) completions: Rate,
    /// Doorbells that publish the head of the EQ.
    pub(crate) heads: Rate,
    pub(crate) arms: Rate,
    pub(crate) completions_per_interrupt: Rate,
    pub(crate) completions_per_event: Rate,
    pub(crate) events_per_head: Rate,
    pub(crate) moderation_count: u64,
    pub(crate) moderation_usecs: u64,
    /// CQs that are polled without an event.
    pub(crate) pending: u64,
    /// Slots to arm with.
    pub(crate) spare: u64,
    pub(crate) lost_interrupts: u64,
    /// Events of CQs that do not exist or are not armed, and asynchronous ones without a handler.
    pub(crate) errors: u64,
}

/// The activity of a CQ.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) number: u64,
    /// Doorbell page; 0 is the kernel's.
    pub(crate) page: u64,
    /// Number of its EQ.
    pub(crate) eq: u64,
    pub(crate) depth: u64,
    /// Completions whose slot is not free.
    pub(crate) used: u64,
    pub(crate) completions: Rate,
}

/// The activity of a queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) number: u64,
    pub(crate) page: u64,
    pub(crate) state: &'static str,
    pub(crate) send_cq: u64,
    pub(crate) recv_cq: u64,
    pub(crate) sq_depth: u64,
    /// Blocks that the device has not completed.
    pub(crate) sq_used: u64,
    /// Blocks that the device has completed.
    pub(crate) sends: Rate,
    pub(crate) rq_depth: u64,
    pub(crate) rq_used: u64,
    /// Receives that messages have taken.
    pub(crate) receives: Rate,
}

/// The fields of an object, now and in the earlier snapshot.
struct Look<'a> {
    now: &'a Record,
    before: Option<&'a Record>,
    seconds: f64,
}

impl Look<'_> {
    fn get(&self, name: &str) -> u64 {
        self.now.get(name).copied().unwrap_or(0)
    }

    /// The rate of a 64-bit counter.
    fn rate(&self, name: &str) -> Rate {
        let before = self.before?.get(name)?;
        let more = self.now.get(name)?.checked_sub(*before)?;
        Some(more as f64 / self.seconds)
    }

    /// The rate of an index, which wraps.
    fn index_rate(&self, name: &str) -> Rate {
        let before = *self.before?.get(name)? as u32;
        let more = (*self.now.get(name)? as u32).wrapping_sub(before);
        Some(f64::from(more) / self.seconds)
    }

    /// The slots between two indices.
    fn used(&self, producer: &str, consumer: &str) -> u64 {
        (self.get(producer) as u32)
            .wrapping_sub(self.get(consumer) as u32)
            .into()
    }
}

/// The ratio of two rates.
fn per(one: Rate, other: Rate) -> Rate {
    let (one, other) = (one?, other?);
    (other > 0.0).then(|| one / other)
}

impl View {
    /// The view of `now`, with rates since `before`, `seconds` ago.
    pub(crate) fn between(before: Option<&Snapshot>, now: &Snapshot, seconds: f64) -> Self {
        let epoch = |snapshot: &Snapshot| snapshot.device.get("epoch").copied();
        let before = before.filter(|before| epoch(before) == epoch(now) && seconds > 0.0);
        let nothing = Record::new();
        let live = |kind| {
            let all = now.live.iter().filter(move |(key, _)| key.0 == kind);
            all.map(move |(key, record)| {
                let before = before.and_then(|before| before.live.get(key));
                (
                    key.1,
                    Look {
                        now: record,
                        before,
                        seconds,
                    },
                )
            })
        };
        let cqs: Vec<Cq> = live(Kind::Cq)
            .map(|(number, look)| Cq {
                number,
                page: look.get("page"),
                eq: look.get("eq"),
                depth: look.get("depth"),
                used: look.used("producer", "consumer"),
                completions: look.index_rate("producer"),
            })
            .collect();
        let qps = live(Kind::Qp)
            .map(|(number, look)| Qp {
                number,
                page: look.get("page"),
                state: state(look.get("state")),
                send_cq: look.get("send-cq"),
                recv_cq: look.get("recv-cq"),
                sq_depth: look.get("sq-depth"),
                sq_used: look.used("sq-producer", "sq-consumer"),
                sends: look.index_rate("sq-consumer"),
                rq_depth: look.get("rq-depth"),
                rq_used: look.used("rq-producer", "rq-consumer"),
                receives: look.index_rate("rq-consumer"),
            })
            .collect();
        let eqs = live(Kind::Eq)
            .map(|(number, look)| {
                let polls = Look {
                    now: now.eqs.get(&number).unwrap_or(&nothing),
                    before: before.and_then(|before| before.eqs.get(&number)),
                    seconds,
                };
                let mine = cqs.iter().filter(|cq| cq.eq == number);
                let rates = mine.filter_map(|cq| cq.completions);
                // Not `sum`, which is -0 for an empty iterator.
                let completions = before.map(|_| rates.fold(0.0, |sum, rate| sum + rate));
                let (interrupts, events) = (polls.rate("interrupts"), polls.rate("events"));
                Eq {
                    number,
                    vector: look.get("vector"),
                    depth: look.get("depth"),
                    used: look.used("producer", "consumer"),
                    cqs: polls.get("cqs"),
                    interrupts,
                    polls: polls.rate("polls"),
                    events,
                    completions,
                    heads: polls.rate("heads"),
                    arms: polls.rate("arms"),
                    completions_per_interrupt: per(completions, interrupts),
                    completions_per_event: per(completions, events),
                    events_per_head: per(events, polls.rate("heads")),
                    moderation_count: look.get("moderation-count"),
                    moderation_usecs: look.get("moderation-usecs"),
                    pending: polls.get("pending"),
                    spare: polls.get("spare"),
                    lost_interrupts: polls.get("lost"),
                    errors: polls.get("stale") + polls.get("unclaimed") + polls.get("spurious"),
                }
            })
            .collect();
        let device = Look {
            now: &now.device,
            before: before.map(|before| &before.device),
            seconds,
        };
        let counters = now
            .device
            .iter()
            .filter(|(name, _)| !["epoch", "vectors", "dma-held"].contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), (*value, device.rate(name))))
            .collect();
        Self {
            name: now.name.clone(),
            health: now.health.clone(),
            epoch: device.get("epoch"),
            seconds: before.map(|_| seconds),
            tuning: now.tuning.clone(),
            counters,
            eqs,
            cqs,
            qps,
        }
    }

    /// One of the device's counters and its rate.
    pub(crate) fn counter(&self, name: &str) -> (u64, Rate) {
        self.counters.get(name).copied().unwrap_or((0, None))
    }

    /// The form that `--help` describes.
    pub(crate) fn json(&self) -> Value {
        let counters = self.counters.iter().map(|(name, (value, rate))| {
            let both = json!({ "total": value, "rate": round(*rate) });
            (name.clone(), both)
        });
        json!({
            "device": self.name,
            "health": self.health,
            "epoch": self.epoch,
            "seconds": round(self.seconds),
            "tuning": self.tuning,
            "counters": counters.collect::<Map<_, _>>(),
            "eqs": self.eqs.iter().map(Eq::json).collect::<Vec<_>>(),
            "cqs": self.cqs.iter().map(Cq::json).collect::<Vec<_>>(),
            "qps": self.qps.iter().map(Qp::json).collect::<Vec<_>>(),
        })
    }
}

impl Eq {
    fn json(&self) -> Value {
        json!({
            "number": self.number,
            "vector": self.vector,
            "depth": self.depth,
            "used": self.used,
            "cqs": self.cqs,
            "interrupts": round(self.interrupts),
            "polls": round(self.polls),
            "events": round(self.events),
            "completions": round(self.completions),
            "heads": round(self.heads),
            "arms": round(self.arms),
            "completions_per_interrupt": round(self.completions_per_interrupt),
            "completions_per_event": round(self.completions_per_event),
            "events_per_head": round(self.events_per_head),
            "moderation": { "count": self.moderation_count, "usecs": self.moderation_usecs },
            "pending": self.pending,
            "spare": self.spare,
            "lost_interrupts": self.lost_interrupts,
            "errors": self.errors,
        })
    }
}

impl Cq {
    fn json(&self) -> Value {
        json!({
            "number": self.number,
            "page": self.page,
            "eq": self.eq,
            "depth": self.depth,
            "used": self.used,
            "completions": round(self.completions),
        })
    }
}

impl Qp {
    fn json(&self) -> Value {
        json!({
            "number": self.number,
            "page": self.page,
            "state": self.state,
            "send_cq": self.send_cq,
            "recv_cq": self.recv_cq,
            "sq": { "depth": self.sq_depth, "used": self.sq_used, "rate": round(self.sends) },
            "rq": { "depth": self.rq_depth, "used": self.rq_used, "rate": round(self.receives) },
        })
    }
}

/// Rounded to thousandths; `null` for `None`.
fn round(rate: Rate) -> Value {
    rate.map_or(Value::Null, |rate| ((rate * 1e3).round() / 1e3).into())
}

fn state(code: u64) -> &'static str {
    ["RESET", "INIT", "RTR", "RTS", "SQD", "ERROR"]
        .get(code as usize)
        .copied()
        .unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::{recorded, FIRST, SECOND};
    use super::*;

    fn eq(view: &View) -> &Eq {
        &view.eqs[0]
    }

    #[test]
    fn rates_are_differences_a_second() {
        let view = View::between(Some(&recorded(FIRST)), &recorded(SECOND), 2.0);
        assert_eq!(eq(&view).interrupts, Some(30.0));
        assert_eq!(eq(&view).events, Some(344.5));
        let cq = view.cqs.iter().find(|cq| cq.number == 65538).unwrap();
        assert_eq!(cq.completions, Some(f64::from(310_682 - 77_582) / 2.0));
        let qp = view.qps.iter().find(|qp| qp.number == 65538).unwrap();
        assert_eq!((qp.page, qp.state, qp.sq_used), (1, "RTS", 0));
        assert_eq!(qp.sends, Some(f64::from(60_192 - 14_304) / 2.0));
    }

    #[test]
    fn completions_of_processes_count_for_their_eq() {
        let view = View::between(Some(&recorded(FIRST)), &recorded(SECOND), 1.0);
        let all: f64 = view.cqs.iter().filter_map(|cq| cq.completions).sum();
        assert_eq!(eq(&view).completions, Some(all));
        assert_eq!(eq(&view).completions_per_interrupt, Some(all / 60.0));
        assert_eq!(view.eqs[1].completions, Some(0.0));
        // No interrupt, so there is no such number.
        assert_eq!(view.eqs[1].completions_per_interrupt, None);
    }

    #[test]
    fn the_first_look_has_no_rates() {
        let view = View::between(None, &recorded(FIRST), 1.0);
        assert_eq!(view.seconds, None);
        assert_eq!(eq(&view).interrupts, None);
        assert_eq!(view.json()["cqs"][0]["completions"], Value::Null);
        assert_eq!(view.qps.len(), 13);
    }

    #[test]
    fn what_is_new_has_no_rates_and_what_is_gone_is_not_there() {
        let (mut first, mut second) = (recorded(FIRST), recorded(SECOND));
        first.live.remove(&(Kind::Qp, 65537));
        second.live.remove(&(Kind::Cq, 65537));
        second.eqs.clear();
        let view = View::between(Some(&first), &second, 1.0);
        let qp = view.qps.iter().find(|qp| qp.number == 65537).unwrap();
        assert_eq!(qp.sends, None);
        assert!(view.cqs.iter().all(|cq| cq.number != 65537));
        assert_eq!(eq(&view).interrupts, None);
    }

    #[test]
    fn an_index_wraps() {
        let (mut first, mut second) = (recorded(FIRST), recorded(SECOND));
        let set = |snapshot: &mut Snapshot, producer: u32| {
            let cq = snapshot.live.get_mut(&(Kind::Cq, 65538)).unwrap();
            cq.insert("producer".into(), producer.into());
            cq.insert("consumer".into(), u64::from(producer.wrapping_sub(5)));
        };
        set(&mut first, u32::MAX - 9);
        set(&mut second, 2);
        let view = View::between(Some(&first), &second, 1.0);
        let cq = view.cqs.iter().find(|cq| cq.number == 65538).unwrap();
        assert_eq!((cq.completions, cq.used), (Some(12.0), 5));
    }

    #[test]
    fn a_reset_is_a_first_look() {
        let (first, mut second) = (recorded(FIRST), recorded(SECOND));
        second.device.insert("epoch".into(), 1);
        let view = View::between(Some(&first), &second, 1.0);
        assert_eq!((view.seconds, view.epoch), (None, 1));
        // A counter that decreased in the same epoch has no rate either.
        let view = View::between(Some(&recorded(SECOND)), &recorded(FIRST), 1.0);
        assert_eq!(view.counter("cqes"), (95929, None));
    }

    #[test]
    fn json_names_every_object() {
        let json = View::between(Some(&recorded(FIRST)), &recorded(SECOND), 1.0).json();
        let count = |key: &str| json[key].as_array().map_or(0, Vec::len);
        assert_eq!((count("eqs"), count("cqs"), count("qps")), (2, 3, 13));
        assert_eq!(json["eqs"][0]["moderation"]["count"], 0);
        assert_eq!(json["counters"]["cqes"]["total"], 341_938);
        assert_eq!(json["tuning"]["events"], 32);
    }
}
