// SPDX-License-Identifier: GPL-2.0
//! The function as a whole.

use crate::config::BadConfig;
use crate::config::Config;
use crate::datapath::DataPath;
use crate::host::Host;
use crate::host::Trace;
use crate::mr::Domain;
use crate::registers::Registers;
use crate::subject::DoorbellPage;
use crate::table::Table;
use qpair_abi::counters::Counter;

/// A PCI function.
pub struct Function<H: Host> {
    pub(crate) data: DataPath<H>,
    pub(crate) domains: Table<Domain>,
    pub(crate) pages: Vec<DoorbellPage>,
    pub(crate) registers: Registers,
}

impl<H: Host> Function<H> {
    /// Powers a function on.
    pub fn new(host: H, config: Config) -> Result<Self, BadConfig> {
        config.check()?;
        let mut function = Self {
            domains: Table::new(config.pds),
            pages: Vec::new(),
            registers: Registers::default(),
            data: DataPath::new(host, config),
        };
        function.power_on();
        Ok(function)
    }

    /// Returns everything to power-on. Afterwards no memory is mapped, and no call of
    /// [`run`](Self::run) is asked for.
    pub fn reset(&mut self) {
        self.data.core.bus.host.trace(Trace::Reset);
        self.power_on();
        self.data.core.bus.clear();
    }

    fn power_on(&mut self) {
        self.registers = Registers::default();
        self.data.power_on();
        self.domains = Table::new(self.config().pds);
        self.pages = vec![DoorbellPage::default(); self.config().pages as usize];
    }

    /// Halts the core, because the machine is stopped, or lets it go on. A halted core executes no
    /// turn and handles no timer. Registers and doorbells still work; the events that they cause
    /// are written when the core continues.
    pub fn set_halted(&mut self, halted: bool) {
        self.data.core.halted = halted;
        self.resume();
    }

    /// Continues with what has waited, unless the function is halted or taken away.
    pub(crate) fn resume(&mut self) {
        let data = &mut self.data;
        if data.core.halted || data.core.is_dead() {
            return;
        }
        data.events.resume(&mut data.core);
        for (cq, words) in core::mem::take(&mut data.injected) {
            if data.core.is_ready() {
                data.put_completion(cq, words, true);
            }
        }
        if core::mem::take(&mut data.frees_held) {
            data.end_holds();
        }
        data.core.bus.host.wake();
    }

    /// The machine.
    pub fn host(&self) -> &H {
        &self.data.core.bus.host
    }

    /// The machine.
    pub fn host_mut(&mut self) -> &mut H {
        &mut self.data.core.bus.host
    }

    /// The properties of the function.
    pub fn config(&self) -> &Config {
        &self.data.core.config
    }

    /// A counter.
    pub fn counter(&self, counter: Counter) -> u64 {
        let count = self.counters().get(counter as usize);
        count.copied().unwrap_or(0)
    }

    /// All counters, in the order of [`Counter::ALL`].
    pub fn counters(&self) -> &[u64; Counter::COUNT] {
        self.data.core.bus.counts()
    }

    /// How many objects of all kinds exist. The admin queue pair, its CQ and EQ 0 count, and each
    /// member of a group.
    pub fn objects(&self) -> u64 {
        let data = &self.data;
        let queues = data.events.eqs.count() + data.cqs.count() + data.qps.count();
        let regions = data.regions.count() + data.regions.frmrs.count();
        let memory = regions + data.windows.count() + self.domains.count();
        (queues + data.srqs.count() + memory + data.groups.members()) as u64
    }

    /// How many queue pairs wait for a receive of an SRQ.
    pub fn waiting(&self) -> usize {
        self.data.starved.count()
    }

    /// Drops the mappings of a range of DMA addresses before it returns: the system takes the
    /// range away.
    pub fn unmap(&mut self, addr: u64, bytes: u64) {
        if let Some(more) = bytes.checked_sub(1) {
            self.data.unmap(addr, addr.saturating_add(more));
        }
    }

    /// Drops all mappings: bus mastering was switched off, or the function is unplugged.
    pub fn unmap_all(&mut self) {
        self.unmap(0, u64::MAX);
    }
}
