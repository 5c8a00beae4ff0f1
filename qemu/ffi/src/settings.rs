// SPDX-License-Identifier: GPL-2.0
//! The device's properties: one table of names, descriptions and effects. QEMU registers one
//! property for each line.
//!
//! A setting is a parameter of the function's creation (a field of [`Config`], whose range the
//! model checks), or changes the function while it runs (a knob for tests), or both.

use core::str;

use qpair_model::{
    Config,
    Function, //
};

use crate::host::Qemu;
use crate::QpairKind;

/// Functions to read a value of a `T`, and to change it.
type Place<T> = (fn(&T) -> u64, fn(&mut T, u64));
/// The count of numbers, and a function that executes them; it returns whether it succeeded.
type Act<T> = (usize, fn(&mut T, &[u64]) -> bool);

/// Functions to read a text of a `T`, and to change it if that is possible.
type Text<T> = (
    fn(&T) -> String,
    Option<fn(&mut T, &str) -> Result<(), String>>,
);

/// A property.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    pub(crate) kind: QpairKind,
    /// The maximum that its field can hold.
    most: u64,
    /// The field of the configuration.
    pub(crate) config: Option<Place<Config>>,
    /// Changes it on an existing function.
    pub(crate) knob: Option<Place<Function<Qemu>>>,
    /// Its value on an existing function, if it is read-only.
    shows: Option<fn(&Function<Qemu>) -> u64>,
    /// Executes several numbers on an existing function.
    words: Option<Act<Function<Qemu>>>,
    /// Its text on an existing function.
    as_text: Option<Text<Function<Qemu>>>,
}

impl Setting {
    const NONE: Self = Self {
        name: "",
        text: "",
        kind: QpairKind::Number,
        most: u64::MAX,
        config: None,
        knob: None,
        shows: None,
        words: None,
        as_text: None,
    };

    /// The message for a value that is out of range.
    pub(crate) fn refuse(name: &str, value: u64, least: u64, most: u64) -> String {
        format!("Property 'qpair.{name}' doesn't take value {value} (minimum: {least}, maximum: {most})")
    }

    /// Whether the value fits into its field.
    pub(crate) fn check(&self, value: u64) -> Result<(), String> {
        if value > self.most {
            return Err(Self::refuse(self.name, value, 0, self.most));
        }
        Ok(())
    }

    /// Its default.
    pub(crate) fn initial(&self, config: &Config) -> u64 {
        self.config.map_or(0, |(get, _)| get(config))
    }

    /// Its value on this function.
    pub(crate) fn get(&self, function: &Function<Qemu>) -> u64 {
        match (self.knob, self.config, self.shows) {
            (Some((get, _)), _, _) => get(function),
            (None, Some((get, _)), _) => get(function.config()),
            (None, None, Some(get)) => get(function),
            (None, None, None) => 0,
        }
    }

    /// Its text on this function; empty if its value is a number.
    pub(crate) fn get_text(&self, function: &Function<Qemu>) -> String {
        self.as_text.map_or(String::new(), |(get, _)| get(function))
    }

    /// Changes it on this function.
    pub(crate) fn set(&self, function: &mut Function<Qemu>, value: u64) -> Result<(), String> {
        let Some((_, set)) = self.knob else {
            if self.shows.is_some() {
                return self.read_only();
            }
            return Err(format!(
                "Property 'qpair.{}' can only be set when the device is created",
                self.name
            ));
        };
        self.check(value)?;
        set(function, value);
        Ok(())
    }

    fn read_only(&self) -> Result<(), String> {
        Err(format!("Property 'qpair.{}' cannot be set", self.name))
    }

    /// Changes its text on this function, or executes numbers that are separated by colons.
    pub(crate) fn set_text(
        &self,
        function: &mut Function<Qemu>,
        text: &[u8],
    ) -> Result<(), String> {
        // Bytes that are no text are no number and no rule either.
        let text = str::from_utf8(text).unwrap_or("\u{fffd}");
        match self.as_text {
            Some((_, Some(set))) => {
                let done = set(function, text);
                return done.map_err(|why| format!("Property 'qpair.{}': {why}", self.name));
            }
            Some((_, None)) => return self.read_only(),
            None => {}
        }
        let Some((count, act)) = self.words else {
            return Err(format!("Property 'qpair.{}' is one number", self.name));
        };
        let words: Option<Vec<u64>> = text.split(':').map(number).collect();
        let words = words.filter(|words| words.len() == count).ok_or_else(|| {
            format!(
                "Property 'qpair.{}' takes {count} numbers separated by colons, not '{text}'",
                self.name
            )
        })?;
        if act(function, &words) {
            Ok(())
        } else {
            Err(format!(
                "Property 'qpair.{}': there is no such queue, or the function is not ready",
                self.name
            ))
        }
    }
}

/// A number in text, decimal or with 0x.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A limit or time that is fixed when the device is created.
macro_rules! fixed {
    ($name:literal, $field:ident: $type:ty, $text:literal) => {
        Setting {
            name: $name,
            text: $text,
            most: <$type>::MAX as u64,
            config: Some((|c| c.$field as u64, |c, v| c.$field = v as $type)),
            ..Setting::NONE
        }
    };
}

/// A number that can change at any time.
macro_rules! knob {
    ($name:literal, $type:ty, $get:expr, $set:expr, $text:literal) => {
        Setting {
            name: $name,
            text: $text,
            most: <$type>::MAX as u64,
            knob: Some(($get, $set)),
            ..Setting::NONE
        }
    };
}

/// A time or a seed that the function is created with, and that can change at any time.
macro_rules! time {
    ($name:literal, $field:ident, $set:ident, $text:literal) => {
        Setting {
            knob: Some((|f| f.knobs().$field, |f, v| f.$set(v))),
            ..fixed!($name, $field: u64, $text)
        }
    };
}

/// A switch that can change at any time.
macro_rules! switch {
    ($name:literal, $get:expr, $set:expr, $text:literal) => {
        Setting {
            name: $name,
            text: $text,
            kind: QpairKind::Switch,
            most: 1,
            knob: Some(($get, $set)),
            ..Setting::NONE
        }
    };
}

/// Several numbers that are executed at once.
macro_rules! words {
    ($name:literal, $count:literal, $act:expr, $text:literal) => {
        Setting {
            name: $name,
            text: $text,
            kind: QpairKind::Words,
            words: Some(($count, $act)),
            ..Setting::NONE
        }
    };
}

/// The defaults of the properties. Those of the model leave all work to the core.
pub(crate) fn defaults() -> Config {
    Config {
        doorbell_wqes: 64,
        ..Config::default()
    }
}

/// All properties.
#[rustfmt::skip] // one line each is a table
pub(crate) const SETTINGS: &[Setting] = &[
    fixed!("eqs", eqs: u32, "event queues, and MSI-X vectors"),
    fixed!("max-qps", qps: u32, "queue pairs, the admin queue pair included"),
    fixed!("max-cqs", cqs: u32, "completion queues, the admin one included"),
    fixed!("max-mrs", mrs: u32, "memory regions"),
    fixed!("max-pds", pds: u32, "protection domains"),
    fixed!("max-srqs", srqs: u32, "shared receive queues"),
    fixed!("max-mws", mws: u32, "memory windows"),
    fixed!("max-frmrs", frmrs: u32, "fast registration memory regions"),
    fixed!("max-groups", groups: u32, "groups of multicast"),
    fixed!("max-group-members", group_members: u32, "members of a group of multicast"),
    fixed!("doorbell-pages", pages: u32, "doorbell pages, the driver's page 0 included"),
    fixed!("log-max-sq", log_sq: u8, "log2 of the maximum number of 64-byte blocks of an SQ"),
    fixed!("log-max-rq", log_rq: u8, "log2 of the maximum number of WQEs of an RQ"),
    fixed!("log-max-cq", log_cq: u8, "log2 of the maximum number of entries of a CQ"),
    fixed!("log-max-eq", log_eq: u8, "log2 of the maximum number of entries of an EQ"),
    fixed!("max-ring-pages", ring_pages: u32, "pages of all rings that are described by tables"),
    fixed!("max-send-sge", send_sges: u8, "gather or scatter entries of a send work request"),
    fixed!("max-recv-sge", recv_sges: u8, "scatter entries of a receive"),
    fixed!("max-inline", inline_bytes: u16, "bytes of inline data"),
    fixed!("max-message", message_bytes: u32, "bytes of the largest message"),
    fixed!("log-max-region", log_region: u8, "log2 of the bytes of the largest memory region"),
    fixed!("min-page-shift", min_page_shift: u8, "log2 of the smallest page of a buffer list"),
    fixed!("max-page-shift", max_page_shift: u8, "log2 of the largest page of a buffer list"),
    fixed!("async-reserve", async_events: u32, "asynchronous events that are in EQ 0 at a time"),
    fixed!("wqes-per-turn", turn_wqes: u32, "work requests of a doorbell page's turn in the core"),
    fixed!("bytes-per-turn", turn_bytes: u32, "payload bytes of a doorbell page's turn in the core"),
    fixed!("wqes-per-doorbell", doorbell_wqes: u32, "work requests that the thread of a doorbell does itself if the core is idle; 0 leaves all to the core"),
    fixed!("bytes-per-doorbell", doorbell_bytes: u32, "payload bytes that the thread of a doorbell moves itself"),
    fixed!("retry-ns", retry_ns: u64, "virtual time between retries of a sender"),
    time!("key-seed", key_seed, set_key_seed, "seed of the keys after a reset; 0 is random"),
    time!("core-delay-ns", core_delay_ns, set_core_delay, "virtual time from a doorbell to the work"),
    time!("wqe-ns", wqe_ns, set_wqe_ns, "virtual time that a send work request takes"),

    Setting {
        name: "mac",
        text: "address of the network device that the port belongs to, whose port is then one of RoCE; empty is none",
        kind: QpairKind::Text,
        as_text: Some((|f| f.mac(), Some(|f, text| f.set_mac(text)))),
        ..Setting::NONE
    },

    knob!("fail-command", u32, |f| f.knobs().fail_command.into(), |f, n| f.fail_command(n as u32),
        "test: the Nth admin command from now on fails; 0 is none"),
    knob!("drop-interrupts", u32, |f| f.knobs().drop_interrupts.into(), |f, n| f.drop_interrupts(n as u32),
        "test: the next N interrupts get lost"),
    knob!("delay-interrupts-ns", u64, |f| f.knobs().delay_interrupts, |f, n| f.delay_interrupts(n),
        "test: delay of each interrupt"),
    switch!("stall", |f| f.is_stalled().into(), |f, on| f.set_stall(on != 0),
        "test: the core does nothing"),
    knob!("ignore-stops", u32, |f| f.knobs().ignore_stops.into(), |f, n| f.ignore_stops(n as u32),
        "test: the next N writes that reset the function or switch bus mastering off do nothing"),
    switch!("vanish", |f| f.is_vanished().into(), |f, on| f.set_vanish(on != 0),
        "test: the function is gone: all reads are ones, writes do nothing"),
    switch!("link-down", |f| f.knobs().link_down.into(), |f, on| f.set_link_down(on != 0),
        "test: the link is down"),
    switch!("unmapped", |f| f.host().is_unmapped().into(), |f, on| {
        f.host_mut().set_unmapped(on != 0);
        f.unmap_all();
    }, "test: no mappings are kept"),
    switch!("fatal", |f| u64::from(f.status() >> 1 & 1), |f, on| if on != 0 { f.go_fatal() },
        "test: stops the function as if by itself; a reset clears it"),
    Setting {
        name: "objects",
        text: "test: number of EQs, CQs, queue pairs, regions and protection domains; read-only",
        shows: Some(|f| f.objects()),
        ..Setting::NONE
    },
    switch!("restart", |f| u64::from(f.status() & 3 == 0), |f, on| if on != 0 { f.reset() },
        "test: returns the function to power-on, as if its own power had failed"),
    Setting {
        name: "faults",
        text: "test: the rules by which work requests fail; see Documentation/faults.rst",
        kind: QpairKind::Text,
        as_text: Some((|f| f.faults().text().into(), Some(|f, text| f.set_faults(text)))),
        ..Setting::NONE
    },
    Setting {
        name: "faults-injected",
        text: "test: what the rules did since they were set: ACTION COUNT of OCCASIONS, for each; read-only",
        kind: QpairKind::Text,
        as_text: Some((|f| f.faults().report(), None)),
        ..Setting::NONE
    },
    words!("inject-cqe", 5, |f, w| inject(w, |i, e| f.inject_cqe(i, e)),
        "test: INDEX:WORD0:WORD1:WORD2:WORD3 writes a CQE of these words to the CQ with this index"),
    words!("inject-eqe", 3, |f, w| inject(w, |i, e| f.inject_eqe(i, e)),
        "test: INDEX:WORD0:WORD1 writes an EQE of these words to the EQ with this index"),
];

/// The index of a queue, and the words of an entry.
fn inject<const N: usize>(words: &[u64], act: impl FnOnce(u16, [u64; N]) -> bool) -> bool {
    let Some((&index, entry)) = words.split_first() else {
        return false;
    };
    match (u16::try_from(index), entry.try_into()) {
        (Ok(index), Ok(entry)) => act(index, entry),
        _ => false,
    }
}
