// SPDX-License-Identifier: GPL-2.0
//! What the sources of `rust/abi` say to a driver, in C's terms.

use std::path::Path;

use crate::facts::{file, Facts};
use crate::render::Frame;
use crate::source::consts;

/// What every name begins with.
const PREFIX: &str = "QPAIR_HW_";

/// What stands around the facts.
pub const FRAME: Frame = Frame {
    guard: "_QPAIR_DEVICE_H",
    intro: "Queue pairs: the numbers of the PCI function, for driver writers. \
            Generated from rust/abi by tools/header; do not edit.\n\n\
            What they mean is said in Documentation/device.rst. A field that is not listed, or is \
            called reserved, is zero.",
    macros: "/* What is written to a doorbell. */\n\
             #define QPAIR_HW_DOORBELL(number, index) \\\n\
             \t((__u64)(__u32)(index) << 32 | (__u32)(number))\n\
             /* The opcode of a command. */\n\
             #define QPAIR_HW_COMMAND(kind, verb)\t\t((kind) << 4 | (verb))\n\
             /* The index and the generation of an object's number. */\n\
             #define QPAIR_HW_INDEX(number)\t\t\t((number) & 0xffff)\n\
             #define QPAIR_HW_GENERATION(number)\t\t((number) >> 16)\n\
             /* The key of a memory window. */\n\
             #define QPAIR_HW_KEY_OF_WINDOW(number, tag) \\\n\
             \t(QPAIR_HW_WINDOW_KEY | ((number) >> 16 & 0x7ff) << 20 | ((number) & 0xfff) << 8 | (tag))\n\
             /* The key of an FRMR. */\n\
             #define QPAIR_HW_KEY_OF_FRMR(number, tag) \\\n\
             \t(QPAIR_HW_FRMR_KEY | ((number) >> 16 & 0x3f) << 24 | ((number) & 0xffff) << 8 | (tag))\n",
};

/// Reads what drivers must know in the sources in `abi`.
pub fn read(abi: &Path) -> anyhow::Result<Facts> {
    let mut facts = Facts {
        prefix: "qpair_hw_",
        ..Facts::default()
    };
    let (entry, command) = (file(abi, "entry.rs")?, file(abi, "command.rs")?);
    let of_processes = file(abi, "entry/process.rs")?;
    let (status, detail) = (file(abi, "status.rs")?, file(abi, "status/detail.rs")?);

    facts.section("The PCI function.");
    facts.constants(
        &file(abi, "mod.rs")?,
        "",
        &["PCI_VENDOR", "PCI_DEVICE", "PCI_REVISION"],
    )?;
    let doorbell = file(abi, "doorbell.rs")?;
    let bars = ["BAR_REGS", "BAR_DOORBELLS", "BAR_MSIX"];
    facts.constants(&doorbell, "", &bars)?;

    facts.section(
        "Registers: offsets in the BAR, and masks of fields. A field of 32 bits has no mask.",
    );
    let regs = file(abi, "regs.rs")?;
    facts.registers(&regs, "REG_")?;
    facts.section("What registers read as.");
    facts.constants(&regs, "", &["MAGIC_VALUE", "MAJOR", "MINOR"])?;
    facts.constants(&regs, "REG_", &["BYTES"])?;
    facts.codes_of(&status, "EnableError", "CAUSE", "STATUS.cause.")?;

    facts.section(
        "The doorbell page. A doorbell is one aligned 64-bit write of \
         QPAIR_HW_DOORBELL(number, index) to one of these offsets.",
    );
    let places: Vec<String> = consts(&doorbell.items)
        .map(|item| item.ident.to_string())
        .filter(|name| !bars.contains(&name.as_str()))
        .collect();
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    facts.constants(&doorbell, "DB_", &places)?;

    facts.section(
        "The rings. An SQ is an array of 64-byte blocks, an RQ of WQEs of one stride; CQs and EQs \
         are arrays of entries. All is little-endian.",
    );
    facts.constants(
        &entry,
        "",
        &[
            "ATOMIC_BYTES",
            "DATAGRAM_BYTES",
            "OWN_Q_KEY",
            "GRH_BYTES",
            "BLOCK_BYTES",
            "MAX_BLOCKS",
            "MAX_STRIDE_SHIFT",
            "MAX_WINDOWS",
            "OWNER",
            "WINDOW_KEY",
            "FRMR_KEY",
        ],
    )?;
    // A part of a WQE.
    facts.layout_of(&command, "BufferList")?;
    facts.layouts(&entry)?;
    facts.layouts(&of_processes)?;
    for (name, prefix) in [
        ("opcode", "OP_"),
        ("send_flags", "SEND_"),
        ("cqe_flags", "CQE_"),
    ] {
        facts.module(&entry, name, &format!("{PREFIX}{prefix}"))?;
    }
    facts.module(&of_processes, "flush", &format!("{PREFIX}FLUSH_"))?;
    facts.codes_of(
        &status,
        "Status",
        "STATUS",
        "Statuses of completions, with the numbers of enum ibv_wc_status.",
    )?;
    facts.codes_of(
        &detail,
        "Detail",
        "DETAIL",
        "Vendor details of completions: which check refused.",
    )?;
    facts.codes_of(&status, "Event", "EVENT", "Kinds of events.")?;

    facts.section("Admin commands, and the contexts that they name.");
    facts
        .names
        .insert("opcode()".into(), "QPAIR_HW_COMMAND()".into());
    facts.constants(&command, "", &["MAX_CONTEXT_BYTES"])?;
    facts.layouts(&command)?;
    for (name, prefix) in [
        ("kind", "KIND_"),
        ("verb", "VERB_"),
        ("cq_flags", "CQ_"),
        ("srq_flags", "SRQ_"),
        ("service", "SERVICE_"),
        ("qp_state", "QPS_"),
        ("waits_for", "WAITS_FOR_"),
        ("qp_flags", "QP_"),
        ("qp_mask", "QP_MASK_"),
        ("access", "ACCESS_"),
        ("mr_mask", "MR_MASK_"),
        ("srq_mask", "SRQ_MASK_"),
        ("mw_type", "MW_TYPE_"),
    ] {
        facts.module(&command, name, &format!("{PREFIX}{prefix}"))?;
    }
    facts.codes_of(
        &status,
        "AdminError",
        "ADMIN",
        "Vendor details of commands that are refused, with status QPAIR_HW_STATUS_GENERAL.",
    )?;

    facts.section("Places in the array that QUERY DEVICE writes.");
    facts.counter(&file(abi, "counters.rs")?, &format!("{PREFIX}COUNTER"))?;
    Ok(facts)
}
