// SPDX-License-Identifier: GPL-2.0
//! BARs that are unmapped while they are accessed.

use std::fs::File;
use std::fs::OpenOptions;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;

use crate::devices;
use crate::ktap::skip;
use crate::ktap::Setup;
use crate::pair::works;
use crate::raw::page_size;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::world;

/// The command register of a function, and its bit for memory.
const COMMAND: u64 = 4;
const MEMORY: u8 = 1 << 1;

/// What is read where nothing is mapped.
const NOTHING: u32 = u32::MAX;

/// A register that keeps what is written, as a driver writes it before it enables the function:
/// the lower half of EQ 0's address.
const KEPT: usize = 0x40;

/// A function without a driver.
struct Function {
    config: File,
    registers: Buffer,
    /// The value of its register, which no other function has.
    own: u32,
}

impl Function {
    fn open(address: &str, own: u32) -> Result<Self> {
        let path = |name| format!("/sys/bus/pci/devices/{address}/{name}");
        let write = OpenOptions::new().read(true).write(true).to_owned();
        let bar = write.open(path("resource0"))?;
        Ok(Self {
            config: write.open(path("config"))?,
            registers: Buffer::of_file(bar.as_fd(), page_size(), true)?,
            own,
        })
    }

    /// Maps its BARs, or unmaps them.
    fn decode(&self, on: bool) -> Result<()> {
        let mut command = [0];
        self.config.read_exact_at(&mut command, COMMAND)?;
        command[0] = command[0] & !MEMORY | if on { MEMORY } else { 0 };
        Ok(self.config.write_all_at(&command, COMMAND)?)
    }

    fn read(&self) -> u32 {
        self.registers.load_half(KEPT)
    }
}

/// The BARs of one function are unmapped and mapped again, while a processor reads a register of
/// each function, which has another value in each. Without the stand-ins of
/// `qemu/qpair_sections.c` QEMU 10.0 looks the address up in the wrong memory map: it ends, or
/// another device answers.
pub(super) fn unmapped_beside_reads(setup: &Setup) -> Result<()> {
    if Context::path(1).is_err() {
        return Err(skip("needs two devices"));
    }
    let addresses = [world::function(0)?, world::function(1)?];
    for address in &addresses {
        devices::unbind(address)?;
    }
    let result = unmap_beside_reads(&addresses);
    // Both are bound again, whatever happens to the first.
    let devices = [
        devices::bind(&addresses[0]).context("afterwards"),
        devices::bind(&addresses[1]).context("afterwards"),
    ];
    result?;
    for device in devices {
        works(device?, &mut setup.rng())?;
    }
    Ok(())
}

fn unmap_beside_reads(addresses: &[String; 2]) -> Result<()> {
    let functions = [
        Function::open(&addresses[0], 0x1000)?,
        Function::open(&addresses[1], 0x2000)?,
    ];
    for (toggled, other) in [
        (&functions[0], &functions[1]),
        (&functions[1], &functions[0]),
    ] {
        for function in &functions {
            function.decode(true)?;
            function.registers.store_half(KEPT, function.own);
            ensure!(function.read() == function.own, "the register is not kept");
        }
        let ended = AtomicBool::new(false);
        let (gone, found) = std::thread::scope(|scope| -> Result<_> {
            let reader = scope.spawn(|| -> Result<_> {
                let (mut gone, mut found) = (0, 0);
                while !ended.load(Relaxed) {
                    let word = other.read();
                    ensure!(word == other.own, "{word:#x} of the other function");
                    match toggled.read() {
                        NOTHING => gone += 1,
                        word => {
                            ensure!(word == toggled.own, "{word:#x} of the function");
                            found += 1;
                        }
                    }
                }
                Ok((gone, found))
            });
            let result = (0..200).try_for_each(|_| {
                toggled.decode(false)?;
                toggled.decode(true)
            });
            ended.store(true, Relaxed);
            let read = reader.join().expect("the reader does not panic");
            result.and(read)
        })?;
        ensure!(
            gone > 0 && found > 0,
            "{gone} reads without, {found} with the BARs"
        );
    }
    Ok(())
}
