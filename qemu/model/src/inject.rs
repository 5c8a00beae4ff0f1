// SPDX-License-Identifier: GPL-2.0
//! Faults that a test injects while the function runs.

use crate::faults::Faults;
use crate::function::Function;
use crate::host::Host;
use crate::knobs::Knobs;
use crate::subject::Subject;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::Eqe;
use qpair_abi::status::EnableError;

const NO_MAC: [u8; 6] = [0; 6];

/// The bit of the first byte of an address that is not of one device.
const GROUP: u8 = 1;

/// An address of one device: six bytes in hexadecimal, separated by colons.
fn unicast(text: &str) -> Option<[u8; 6]> {
    let mut mac = NO_MAC;
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        if !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    let [first, ..] = mac;
    let valid = parts.next().is_none() && first & GROUP == 0 && mac != NO_MAC;
    valid.then_some(mac)
}

impl<H: Host> Function<H> {
    /// The faults and times that are set.
    pub fn knobs(&self) -> &Knobs {
        &self.data.core.knobs
    }

    /// The rules of fault points, and what they did.
    pub fn faults(&self) -> &Faults {
        &self.data.core.faults
    }

    /// Sets the rules of fault points, and begins their counts anew. Requests that the former rules
    /// held go on, or fail now if their answer was dropped.
    ///
    /// # Errors
    ///
    /// A message that names what is refused; the former rules stay.
    pub fn set_faults(&mut self, text: &str) -> Result<(), String> {
        let faults = Faults::parse(text)?;
        if self.data.core.halted {
            self.data.frees_held = true;
        } else {
            self.data.end_holds();
        }
        self.data.release_frames();
        self.data.core.faults = faults;
        self.paced_anew();
        Ok(())
    }

    /// Makes the `nth` admin command from now fail, 1 being the next; 0 makes none fail.
    pub fn fail_command(&mut self, nth: u32) {
        self.data.core.knobs.fail_command = nth;
    }

    /// Loses the next interrupts.
    pub fn drop_interrupts(&mut self, count: u32) {
        self.data.core.knobs.drop_interrupts = count;
    }

    /// Delays interrupts.
    pub fn delay_interrupts(&mut self, nanos: u64) {
        self.data.core.knobs.delay_interrupts = nanos;
    }

    /// Stops the core, or lets it go on. A stopped core still accepts doorbells.
    pub fn set_stall(&mut self, stalled: bool) {
        self.data.core.knobs.stalled = stalled;
        if !stalled && !self.data.core.run_queue.is_empty() {
            self.data.core.bus.host.wake();
        }
    }

    /// Whether the core is stopped.
    pub fn is_stalled(&self) -> bool {
        self.data.core.knobs.stalled
    }

    /// Ignores the next attempts to stop the function: resets by its register, and those that
    /// [`Self::ignores_stop`] asks about.
    pub fn ignore_stops(&mut self, count: u32) {
        self.data.core.knobs.ignore_stops = count;
    }

    /// An attempt to stop the function; whether it is to be ignored.
    pub fn ignores_stop(&mut self) -> bool {
        let left = &mut self.data.core.knobs.ignore_stops;
        let ignored = *left != 0;
        *left = left.saturating_sub(1);
        ignored
    }

    /// Takes the function away, as if it had been unplugged, or brings it back as it was.
    pub fn set_vanish(&mut self, vanished: bool) {
        self.data.core.knobs.vanished = vanished;
        // A call that was asked for may have come meanwhile.
        self.resume();
    }

    /// Whether the function is taken away.
    pub fn is_vanished(&self) -> bool {
        self.data.core.knobs.vanished
    }

    /// Takes the link down, or up again. Messages within the function need no link.
    pub fn set_link_down(&mut self, down: bool) {
        let core = &mut self.data.core;
        if core.knobs.link_down == down {
            return;
        }
        core.knobs.link_down = down;
        if core.is_ready() && !core.knobs.vanished {
            self.data.events.report(core, Subject::Link, 0);
        }
    }

    /// The address of the network device that the port belongs to, as text; empty if there is none.
    pub fn mac(&self) -> String {
        match self.data.core.knobs.mac {
            NO_MAC => String::new(),
            mac => mac.map(|byte| format!("{byte:02x}")).join(":"),
        }
    }

    /// Sets it; an empty text is none. Software reads it when it takes the function.
    ///
    /// # Errors
    ///
    /// A message: the text is no address of one device.
    pub fn set_mac(&mut self, text: &str) -> Result<(), String> {
        let mac = if text.is_empty() {
            Some(NO_MAC)
        } else {
            unicast(text)
        };
        let wrong = || format!("'{text}' is no address of a network device");
        self.data.core.knobs.mac = mac.ok_or_else(wrong)?;
        Ok(())
    }

    /// Sets how long after a doorbell an idle core begins.
    pub fn set_core_delay(&mut self, nanos: u64) {
        self.data.core.knobs.core_delay_ns = nanos;
        self.paced_anew();
    }

    /// Sets how long the core takes for a WQE.
    pub fn set_wqe_ns(&mut self, nanos: u64) {
        self.data.core.knobs.wqe_ns = nanos;
        self.paced_anew();
    }

    /// The core has another pace: queue pairs that wait for the clock may not need to any more.
    fn paced_anew(&mut self) {
        let core = &mut self.data.core;
        let pace = core.knobs.core_delay_ns.max(core.knobs.wqe_ns);
        let latest = core.bus.host.now().saturating_add(pace);
        core.timers.core = core.timers.core.min(latest);
        core.set_timer();
        if !self.data.core.run_queue.is_empty() {
            self.data.core.bus.host.wake();
        }
    }

    /// Sets the seed of the keys of memory regions after the next reset.
    pub fn set_key_seed(&mut self, seed: u64) {
        self.data.core.knobs.key_seed = seed;
    }

    /// Sets where the indices of new rings begin.
    pub fn set_first_index(&mut self, index: u32) {
        self.data.core.knobs.first_index = index;
    }

    /// Makes the function stop as if by itself.
    pub fn go_fatal(&mut self) {
        self.data
            .events
            .fatal(&mut self.data.core, EnableError::Injected);
    }

    /// Writes a CQE with this content and a valid owner bit into the CQ at `index`. False if there
    /// is no such CQ.
    pub fn inject_cqe(&mut self, index: u16, words: [u64; Cqe::WORDS]) -> bool {
        let cq = self.data.cqs.at(usize::from(index));
        if !self.data.core.is_ready() || self.data.core.knobs.vanished {
            return false;
        }
        match cq {
            Some(cq) if self.data.core.halted => self.data.injected.push((cq, words)),
            Some(cq) => _ = self.data.put_completion(cq, words, true),
            None => return false,
        }
        true
    }

    /// Writes an EQE with this content and a valid owner bit into the EQ at `index`. False if there
    /// is no such EQ.
    pub fn inject_eqe(&mut self, index: u16, words: [u64; Eqe::WORDS]) -> bool {
        let eq = self.data.events.eqs.at(usize::from(index));
        if !self.data.core.is_ready() || self.data.core.knobs.vanished {
            return false;
        }
        if let Some(eq) = eq {
            self.data.events.inject(&mut self.data.core, eq, words);
        }
        eq.is_some()
    }
}
