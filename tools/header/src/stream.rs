// SPDX-License-Identifier: GPL-2.0
//! What the sources of `rust/abi/stream` say to a driver, in C's terms.

use std::path::Path;

use crate::facts::{file, Facts};
use crate::render::Frame;

/// What every name begins with.
const PREFIX: &str = "QPAIR_STREAM_";

/// What stands around the facts.
pub const FRAME: Frame = Frame {
    guard: "_QPAIR_STREAM_H",
    intro: "Channels of descriptors: the numbers of the PCI function qpair-stream, for driver \
            writers. Generated from rust/abi/stream by tools/header; do not edit.\n\n\
            What they mean is said in Documentation/stream.rst. A field that is not listed, or is \
            called reserved, is zero.",
    macros: "/* The MSI-X vector of a channel; side is 0 for transmit, 1 for receive. */\n\
             #define QPAIR_STREAM_VECTOR(pair, side)\t\t(2 * (pair) + (side))\n\
             /* The offset in the BAR of a channel's block. */\n\
             #define QPAIR_STREAM_BLOCK(pair, side) \\\n\
             \t(QPAIR_STREAM_BLOCKS + \\\n\
             \t QPAIR_STREAM_BLOCK_BYTES * QPAIR_STREAM_VECTOR(pair, side))\n",
};

/// Reads what drivers must know in the sources in `abi`.
pub fn read(abi: &Path) -> anyhow::Result<Facts> {
    let mut facts = Facts {
        prefix: "qpair_stream_",
        ..Facts::default()
    };
    let top = file(abi, "stream/mod.rs")?;
    facts.section("The PCI function.");
    let function = [
        "PCI_VENDOR",
        "PCI_DEVICE",
        "PCI_REVISION",
        "BAR_REGS",
        "BAR_MSIX",
    ];
    facts.constants(&top, "", &function)?;

    facts.section("Registers of the function: offsets in the BAR, and masks of fields.");
    let regs = file(abi, "stream/regs.rs")?;
    facts.registers(&regs, "REG_")?;
    facts.section("What registers read as.");
    facts.constants(&regs, "", &["MAGIC_VALUE", "MAJOR", "MINOR"])?;
    facts.constants(&regs, "REG_", &["BYTES"])?;

    facts.section("Blocks of registers, one for each channel.");
    facts.constants(&top, "", &["BLOCKS", "BLOCK_BYTES", "MAX_PAIRS"])?;
    facts.codes_of(&top, "Kind", "KIND", "KIND: how a channel shares its ring.")?;
    facts.codes_of(&top, "Cause", "CAUSE", "SR.cause: why a channel halted.")?;

    facts.section(
        "Channels of linked descriptors: offsets of registers in the block, and masks of fields.",
    );
    let chain = file(abi, "stream/chain.rs")?;
    facts.registers(&chain, "CH_")?;
    facts.constants(&chain, "CH_", &["ALIGN", "DELAY_NS"])?;
    facts.layouts(&chain)?;
    for (name, prefix) in [("control", "CH_CONTROL_"), ("status", "CH_STATUS_")] {
        facts.module(&chain, name, &format!("{PREFIX}{prefix}"))?;
    }

    facts.section(
        "Channels with a head and a tail: offsets of registers in the block, and masks of fields.",
    );
    let ring = file(abi, "stream/headtail.rs")?;
    facts.registers(&ring, "HT_")?;
    let units = [
        "ALIGN",
        "BUFFER_UNIT",
        "BUFFER_DEFAULT",
        "BUFFER_MAX",
        "INTERVAL_NS",
    ];
    facts.constants(&ring, "HT_", &units)?;
    facts.layouts(&ring)?;
    for (name, prefix) in [("cmd", "HT_CMD_"), ("sta", "HT_STA_")] {
        facts.module(&ring, name, &format!("{PREFIX}{prefix}"))?;
    }
    Ok(facts)
}
