// SPDX-License-Identifier: GPL-2.0
//! Fault points: rules by which the device fails, delays or loses work requests and frames, for tests
//! of other programs.
//!
//! A rule has one action, filters and a frequency. Each work request that its filters match is an
//! *occasion* of it, once, however often the request is tried; or each frame, if its action is one of
//! `wire`; or each entry that the device writes, if it is one of `garble`. Whether the nth occasion of
//! a rule has the fault depends on the rule, its place, the seed and n, and on nothing else: one seed
//! gives one trace.
//!
//! ```text
//!   faults    = clause *( ";" clause )            none: no faults
//!   clause    = "seed=" number / rule             a seed holds for all rules; else it is 0
//!   rule      = part *( "," part )                one action; each part at most once
//!   part      = action / filter / frequency
//!   action    = "fail=" status / "delay=" time / "drop-ack" / "rnr=" count / "overrun"
//!             / "event=" event / "freeze"
//!             / "wire=" ( "drop" / "dup" / "corrupt" / "reorder" / "delay:" time )
//!             / "garble=" ( "cqe" / "eqe" / "answer" / "register" ) [ ":" word ]
//!   filter    = "qp=" number / "opcode=" opcode / "dir=" ( "in" / "out" )
//!   frequency = "nth=" count / "every=" count / "chance=" fraction / "times=" count
//! ```

use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::Eqe;
use qpair_abi::regs::offset;
use qpair_abi::status::Event;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_queue::index::Index;

/// Most bytes of a text of rules.
const MAX_BYTES: usize = 1000;
/// Most rules.
const MAX_RULES: usize = 16;
/// Characters of a part that an error message shows.
const SHOWN: usize = 40;
/// Queue pair numbers up to this one are an index, of any generation.
const MAX_INDEX: u64 = 0xffff;
/// Most nanoseconds of a delay.
const MAX_DELAY: u64 = 1 << 40;
/// A chance is a number of billionths.
const CERTAIN: u64 = 1_000_000_000;

/// The statuses by name, which are those of `enum ibv_wc_status`.
const STATUSES: &[(&str, Status)] = &[
    ("loc-len", Status::LocalLength),
    ("loc-qp-op", Status::LocalQpOperation),
    ("loc-prot", Status::LocalProtection),
    ("wr-flush", Status::Flush),
    ("mw-bind", Status::WindowBind),
    ("loc-access", Status::LocalAccess),
    ("rem-inv-req", Status::RemoteInvalidRequest),
    ("rem-access", Status::RemoteAccess),
    ("rem-op", Status::RemoteOperation),
    ("retry-exc", Status::RetryExceeded),
    ("rnr-retry-exc", Status::RnrRetryExceeded),
    ("fatal", Status::Fatal),
    ("general", Status::General),
];

const EVENTS: &[(&str, Event)] = &[
    ("cq-overrun", Event::CqOverrun),
    ("qp-fatal", Event::QpFatal),
    ("qp-access", Event::QpAccess),
    ("qp-request", Event::QpRequest),
    ("doorbell-violation", Event::DoorbellViolation),
    ("device-fatal", Event::DeviceFatal),
    ("link-up", Event::LinkUp),
    ("link-down", Event::LinkDown),
    ("last-receive", Event::LastReceive),
    ("srq-limit", Event::SrqLimit),
    ("srq-fatal", Event::SrqFatal),
    ("sq-drained", Event::SqDrained),
];

const OPCODES: &[(&str, u8)] = &[
    ("nop", opcode::NOP),
    ("send", opcode::SEND),
    ("send-imm", opcode::SEND_IMM),
    ("write", opcode::WRITE),
    ("write-imm", opcode::WRITE_IMM),
    ("read", opcode::READ),
    ("cmp-swap", opcode::COMPARE_SWAP),
    ("fetch-add", opcode::FETCH_ADD),
    ("flush", opcode::FLUSH),
    ("atomic-write", opcode::ATOMIC_WRITE),
    ("bind", opcode::BIND),
    ("local-inv", opcode::LOCAL_INV),
    ("send-inv", opcode::SEND_INV),
    ("reg-mr", opcode::REG_MR),
    ("recv", opcode::RECV),
];

const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

const PARTS: &str = "fail=, delay=, drop-ack, rnr=, overrun, event=, freeze, wire=, garble=, qp=, \
                     opcode=, dir=, nth=, every=, chance=, times=";

const ON_WIRE: &[(&str, OnWire)] = &[
    ("drop", OnWire::Drop),
    ("dup", OnWire::Repeat),
    ("corrupt", OnWire::Corrupt),
    ("reorder", OnWire::Reorder),
];

const DIRECTIONS: &[(&str, Direction)] = &[("in", Direction::In), ("out", Direction::Out)];

/// With the last word of the longest.
const WRITTEN: &[(&str, (Written, usize))] = &[
    ("cqe", (Written::Cqe, Cqe::WORDS - 1)),
    ("eqe", (Written::Eqe, Eqe::WORDS - 1)),
    // The longest answer is that of QUERY of the device.
    ("answer", (Written::Answer, Counter::COUNT - 1)),
    ("register", (Written::Register, offset::ALL.len() - 1)),
];

/// What software reads that the device has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Cqe,
    Eqe,
    /// The context of a QUERY.
    Answer,
    Register,
}

/// Whether a frame comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}

/// What a rule does to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnWire {
    /// It is lost.
    Drop,
    /// It comes twice.
    Repeat,
    /// One of its bits is wrong.
    Corrupt,
    /// It comes after the next one.
    Reorder,
    /// It comes so many nanoseconds later.
    Delay(u64),
}

/// What a rule does to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The request completes with this status, and moves nothing.
    Fail(Status),
    /// The request begins so many nanoseconds later.
    Delay(u64),
    /// The request is performed; its sender gets no answer.
    DropAck,
    /// The peer has no receive for so many tries.
    Rnr(u8),
    /// The send CQ overruns.
    Overrun,
    /// The receive that the request takes completes with this status.
    FailReceive(Status),
    /// The CQ of that receive overruns.
    OverrunReceive,
    /// An event without its cause.
    Event(Event),
    /// The queue pair does nothing until the rules change.
    Freeze,
}

impl Action {
    /// The name in the report.
    fn name(self) -> &'static str {
        match self {
            Self::Fail(_) | Self::FailReceive(_) => "fail",
            Self::Delay(_) => "delay",
            Self::DropAck => "drop-ack",
            Self::Rnr(_) => "rnr",
            Self::Overrun | Self::OverrunReceive => "overrun",
            Self::Event(_) => "event",
            Self::Freeze => "freeze",
        }
    }

    /// The action on a receive; `None` if it has none.
    fn of_receives(self) -> Option<Self> {
        match self {
            Self::Fail(status) => Some(Self::FailReceive(status)),
            Self::Overrun => Some(Self::OverrunReceive),
            _ => None,
        }
    }
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Request(Action),
    Frame(OnWire),
    /// To this word of what the device writes, or to any.
    Words(Written, Option<usize>),
}

/// When a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// At the nth occasion alone.
    Nth(u64),
    /// At each nth occasion.
    Every(u64),
    /// At an occasion with so many billionths.
    Chance(u64),
}

/// A work request that begins.
pub(crate) struct Occasion {
    /// The queue pair that sends.
    pub(crate) qp: Number,
    /// The queue pair whose receive the request takes, if it takes one of a connection.
    pub(crate) receiver: Option<Number>,
    pub(crate) opcode: u8,
    /// The request is of a reliable connection, and has an answer.
    pub(crate) is_answered: bool,
}

/// A rule, and how often it applied.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    does: Does,
    qp: Option<u32>,
    opcode: Option<u8>,
    direction: Option<Direction>,
    when: When,
    /// Most faults of this rule.
    times: u64,
    occasions: u64,
    injected: u64,
}

impl Rule {
    /// Whether it names a queue pair, if it names one.
    fn names(&self, qp: Number) -> bool {
        match self.qp {
            None => true,
            Some(number) if u64::from(number) <= MAX_INDEX => qp.index() == number as usize,
            Some(number) => qp.raw() == number,
        }
    }

    /// What it does to a request, if the request is an occasion of it.
    fn on_request(&self, occasion: &Occasion) -> Option<Action> {
        let Does::Request(action) = self.does else {
            return None;
        };
        let receives = self.opcode == Some(opcode::RECV);
        let qp = match receives {
            true => occasion.receiver,
            false => Some(occasion.qp),
        };
        let can = match action {
            Action::DropAck => occasion.is_answered,
            Action::Rnr(_) => occasion.is_answered && occasion.receiver.is_some(),
            _ => true,
        };
        let of_opcode = receives || self.opcode.is_none_or(|opcode| opcode == occasion.opcode);
        let matches = can && of_opcode && qp.is_some_and(|qp| self.names(qp));
        matches.then_some(action)
    }

    /// What it does to a frame for this queue pair, if the frame is an occasion of it.
    fn on_wire(&self, direction: Direction, dest: Number) -> Option<OnWire> {
        let Does::Frame(action) = self.does else {
            return None;
        };
        let matches = self.direction.is_none_or(|only| only == direction) && self.names(dest);
        matches.then_some(action)
    }

    /// The word that it changes of those that begin at `first`, by a random number, if they are an
    /// occasion of it.
    fn on_words(&self, written: Written, first: usize, words: usize, random: u64) -> Option<usize> {
        let Does::Words(only, word) = self.does else {
            return None;
        };
        let any = || (random as usize).checked_rem(words);
        let at = word.map_or_else(any, |word| word.checked_sub(first));
        at.filter(|&at| only == written && at < words)
    }

    /// Counts an occasion: whether it has the fault.
    fn meets(&mut self, place: usize, seed: u64) -> bool {
        self.occasions = self.occasions.saturating_add(1);
        let strikes = self.strikes(place, seed, self.occasions);
        strikes && self.injected < self.times
    }

    /// Whether its nth occasion has the fault.
    fn strikes(&self, place: usize, seed: u64, nth: u64) -> bool {
        match self.when {
            When::Nth(wanted) => nth == wanted,
            When::Every(period) => nth % period.max(1) == 0,
            When::Chance(chance) => {
                let drawn = mixed(seed ^ mixed(place as u64 ^ mixed(nth)));
                (u128::from(drawn) * u128::from(CERTAIN)) >> 64 < u128::from(chance)
            }
        }
    }
}

/// The finalizer of splitmix64: each bit of the result depends on each bit of the argument.
fn mixed(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Another word of so many bits: none, all, one changed, or any, by a random number.
fn wrong(word: u64, bits: u32, random: u64) -> u64 {
    let all = u64::MAX
        .checked_shr(64_u32.saturating_sub(bits))
        .unwrap_or(0);
    let flipped = word ^ (1 << ((random >> 2) % u64::from(bits.clamp(1, 64))));
    let wrong = match random % 4 {
        0 => 0,
        1 => all,
        2 => flipped,
        _ => mixed(random) & all,
    };
    if wrong == word {
        flipped
    } else {
        wrong
    }
}

/// Rules, and what they did since they were set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    text: String,
    seed: u64,
    rules: Vec<Rule>,
}

impl Faults {
    /// Reads rules, in the grammar of `Documentation/faults.rst`. An empty text has none.
    ///
    /// # Errors
    ///
    /// A message that names the part that is refused, and what is allowed instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            let bytes = text.len();
            return Err(format!("{bytes} bytes of rules, and at most {MAX_BYTES}"));
        }
        let mut faults = Self {
            text: text.into(),
            ..Self::default()
        };
        if text.is_empty() {
            return Ok(faults);
        }
        let mut seeds = 0;
        for clause in text.split(';') {
            if let Some(seed) = clause.strip_prefix("seed=") {
                seeds += 1;
                let seed = number(seed).filter(|_| seeds == 1);
                faults.seed = seed.ok_or("'seed=' has a number, once")?;
                continue;
            }
            let place = faults.rules.len() + 1;
            if place > MAX_RULES {
                return Err(format!("more than {MAX_RULES} rules"));
            }
            let rule = Draft::default().read(clause);
            let rule = rule.map_err(|why| format!("rule {place}, {why}"))?;
            faults.rules.push(rule);
        }
        Ok(faults)
    }

    /// The rules as they were set.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Of each rule, in their order: its action, the number of faults, and the number of its
    /// occasions.
    pub fn report(&self) -> String {
        let lines = self.rules.iter().map(|rule| {
            let injected = rule.injected;
            let name = match rule.does {
                Does::Request(action) => action.name(),
                Does::Frame(_) => "wire",
                Does::Words(..) => "garble",
            };
            format!("{name} {injected} of {}", rule.occasions)
        });
        lines.collect::<Vec<_>>().join("; ")
    }

    /// Whether there is a rule.
    #[inline(always)]
    pub(crate) fn are_set(&self) -> bool {
        !self.rules.is_empty()
    }

    /// How many rules there are.
    pub(crate) fn count(&self) -> usize {
        self.rules.len()
    }

    /// Counts an occasion of the rule at `place`, if it is one: the action, if it has the fault.
    pub(crate) fn meets(&mut self, place: usize, occasion: &Occasion) -> Option<Action> {
        let rule = self.rules.get_mut(place)?;
        let action = rule.on_request(occasion)?;
        rule.meets(place, self.seed).then_some(action)
    }

    /// The fault of a frame for this queue pair: the rule, and what it does. A number for each frame
    /// comes with it, of which the seed decides.
    pub(crate) fn meets_frame(
        &mut self,
        direction: Direction,
        dest: Number,
    ) -> Option<(usize, OnWire, u64)> {
        let mut found = None;
        for (place, rule) in self.rules.iter_mut().enumerate() {
            let Some(action) = rule.on_wire(direction, dest) else {
                continue;
            };
            if rule.meets(place, self.seed) && found.is_none() {
                rule.injected = rule.injected.saturating_add(1);
                found = Some((place, action, mixed(self.seed ^ mixed(rule.occasions))));
            }
        }
        found
    }

    /// Counts an occasion of the rule at `place`, if words that the device is about to write are one:
    /// those from `first` on, of so many bits each. Returns which it has made wrong.
    pub(crate) fn garbles(
        &mut self,
        place: usize,
        written: Written,
        first: usize,
        bits: u32,
        words: &mut [u64],
    ) -> Option<usize> {
        let rule = self.rules.get_mut(place)?;
        let nth = rule.occasions.saturating_add(1);
        let random = mixed(self.seed ^ mixed(place as u64 ^ mixed(nth)));
        let at = rule.on_words(written, first, words.len(), random)?;
        let word = words.get_mut(at)?;
        if !rule.meets(place, self.seed) {
            return None;
        }
        rule.injected = rule.injected.saturating_add(1);
        *word = wrong(*word, bits, mixed(random));
        first.checked_add(at)
    }

    /// Counts a fault of the rule at `place`.
    pub(crate) fn injected(&mut self, place: usize) {
        if let Some(rule) = self.rules.get_mut(place) {
            rule.injected = rule.injected.saturating_add(1);
        }
    }
}

/// A rule that is being read.
#[derive(Default)]
struct Draft {
    does: Option<Does>,
    qp: Option<u32>,
    opcode: Option<u8>,
    direction: Option<Direction>,
    when: Option<When>,
    times: Option<u64>,
}

impl Draft {
    fn read(mut self, clause: &str) -> Result<Rule, String> {
        for part in clause.split(',') {
            self.part(part)
                .map_err(|why| format!("'{}': {why}", shown(part)))?;
        }
        let whole = |why| Err(format!("'{}': {why}", shown(clause)));
        let Some(mut does) = self.does else {
            return whole(
                "no action; it has one of fail=, delay=, drop-ack, rnr=, overrun, event=, freeze, \
                 wire=, garble=",
            );
        };
        match (does, self.opcode) {
            (Does::Frame(_), None) => {}
            (Does::Words(..), None) if self.direction.is_none() => {
                if self.qp.is_some() {
                    return whole("qp= does not go with garble=");
                }
            }
            (Does::Request(action), opcode) if self.direction.is_none() => {
                if opcode == Some(opcode::RECV) {
                    let Some(of_receives) = action.of_receives() else {
                        return whole("opcode=recv goes with fail= and overrun alone");
                    };
                    does = Does::Request(of_receives);
                }
            }
            _ => {
                return whole(
                    "dir= goes with wire= alone, and opcode= neither with it nor with garble=",
                )
            }
        }
        Ok(Rule {
            does,
            qp: self.qp,
            opcode: self.opcode,
            direction: self.direction,
            when: self.when.unwrap_or(When::Every(1)),
            times: self.times.unwrap_or(u64::MAX),
            occasions: 0,
            injected: 0,
        })
    }

    fn part(&mut self, part: &str) -> Result<(), String> {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let bare = !part.contains('=');
        match key {
            "drop-ack" if bare => once(&mut self.does, Does::Request(Action::DropAck)),
            "overrun" if bare => once(&mut self.does, Does::Request(Action::Overrun)),
            "freeze" if bare => once(&mut self.does, Does::Request(Action::Freeze)),
            "fail" => {
                let status = named("a status", STATUSES, value)?;
                once(&mut self.does, Does::Request(Action::Fail(status)))
            }
            "delay" => once(&mut self.does, Does::Request(Action::Delay(time(value)?))),
            "rnr" => {
                let count = ranged(value, 1, u64::from(u8::MAX))?;
                once(&mut self.does, Does::Request(Action::Rnr(count as u8)))
            }
            "event" => {
                let event = named("an event", EVENTS, value)?;
                once(&mut self.does, Does::Request(Action::Event(event)))
            }
            "wire" => {
                let on_wire = match value.strip_prefix("delay:") {
                    Some(value) => OnWire::Delay(time(value)?),
                    None => named("besides delay:TIME a fault of frames", ON_WIRE, value)?,
                };
                once(&mut self.does, Does::Frame(on_wire))
            }
            "garble" => {
                let (name, word) = value.split_once(':').unzip();
                let name = name.unwrap_or(value);
                let (written, last) = named("what the device writes", WRITTEN, name)?;
                let of_word = |why| format!("the word of {name} is {why}");
                let word = word.map(|word| ranged(word, 0, last as u64).map_err(of_word));
                let word = word.transpose()?.map(|word| word as usize);
                once(&mut self.does, Does::Words(written, word))
            }
            "dir" => once(
                &mut self.direction,
                named("a direction", DIRECTIONS, value)?,
            ),
            "qp" => {
                let qp = ranged(value, 1, u64::from(u32::MAX >> 8))?;
                once(&mut self.qp, qp as u32)
            }
            "opcode" => once(&mut self.opcode, named("an opcode", OPCODES, value)?),
            "nth" => once(&mut self.when, When::Nth(ranged(value, 1, u64::MAX)?)),
            "every" => once(&mut self.when, When::Every(ranged(value, 1, u64::MAX)?)),
            "chance" => once(&mut self.when, When::Chance(chance(value)?)),
            "times" => once(&mut self.times, ranged(value, 1, u64::MAX)?),
            _ => Err(format!("a part is one of {PARTS}")),
        }
    }
}

/// A part for the error message, which has a limit.
fn shown(part: &str) -> String {
    let mut text: String = part.chars().take(SHOWN).collect();
    if text.len() < part.len() {
        text.push_str("...");
    }
    text
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(
            "a rule has one action, and one of nth=, every= and chance=; \
                        each other part once"
                .into(),
        ),
    }
}

fn named<T: Copy>(what: &str, table: &[(&str, T)], name: &str) -> Result<T, String> {
    let found = table.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = table.iter().map(|(known, _)| *known).collect();
        format!("{what} is one of {}", names.join(", "))
    })
}

/// A number in text, decimal or with 0x.
fn number(text: &str) -> Option<u64> {
    // The standard library takes a sign.
    if text.starts_with('+') {
        return None;
    }
    match text.strip_prefix("0x") {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => text.parse().ok(),
    }
}

fn ranged(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let value = number(text).filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| format!("a number from {least} to {most}"))
}

/// A number with a unit, in nanoseconds.
fn time(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = UNITS
        .iter()
        .find(|(name, _)| text.strip_prefix(digits) == Some(*name));
    let nanos = unit.and_then(|(_, unit)| number(digits)?.checked_mul(*unit));
    let nanos = nanos.filter(|nanos| (1..=MAX_DELAY).contains(nanos));
    nanos.ok_or_else(|| format!("a number with ns, us, ms or s, at most {MAX_DELAY}ns"))
}

/// A fraction above 0 and up to 1, in billionths.
fn chance(text: &str) -> Result<u64, String> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = fraction.bytes().all(|digit| digit.is_ascii_digit());
    let billionths = || {
        let whole = number(whole)?.checked_mul(CERTAIN)?;
        whole.checked_add(format!("{fraction:0<9}").parse().ok()?)
    };
    let value = if digits && fraction.len() <= 9 {
        billionths()
    } else {
        None
    };
    let value = value.filter(|value| (1..=CERTAIN).contains(value));
    value.ok_or_else(|| {
        "a fraction above 0 and up to 1, with at most 9 digits after the point".into()
    })
}

/// What becomes of a request that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Perform,
    /// It completes with this status.
    Fail(Status),
    /// The receive that it takes completes with this status.
    FailReceive(Status),
}

/// The request at the head of an SQ, which a fault holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The index past the request.
    pub(crate) past: Index,
    /// Until when; `u64::MAX` until the rules change.
    pub(crate) due: u64,
    pub(crate) then: Then,
}
