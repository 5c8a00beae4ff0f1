// SPDX-License-Identifier: GPL-2.0
//! What the sources of `rust/abi` say to a driver, in C's terms.

use std::path::Path;

use anyhow::ensure;
use heck::ToShoutySnakeCase as _;

use crate::facts::{file, Facts, Part};
use crate::source::{consts, doc, macros, Layout, Registers};

/// What every name begins with.
const PREFIX: &str = "QPAIR_HW_";

/// Reads what drivers must know in the sources in `abi`.
pub fn read(abi: &Path) -> anyhow::Result<Facts> {
    let mut facts = Facts {
        prefix: "qpair_hw_",
        ..Facts::default()
    };
    let (entry, command) = (file(abi, "entry.rs")?, file(abi, "command.rs")?);
    let status = file(abi, "status.rs")?;

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
    facts.registers(&file(abi, "regs.rs")?)?;
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
        &["BLOCK_BYTES", "MAX_BLOCKS", "MAX_STRIDE_SHIFT", "OWNER"],
    )?;
    facts.layouts(&entry)?;
    for (name, prefix) in [
        ("opcode", "OP_"),
        ("send_flags", "SEND_"),
        ("cqe_flags", "CQE_"),
    ] {
        facts.module(&entry, name, &format!("{PREFIX}{prefix}"))?;
    }
    facts.codes_of(
        &status,
        "Status",
        "STATUS",
        "Statuses of completions, with the numbers of enum ibv_wc_status.",
    )?;
    facts.codes_of(
        &status,
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
        ("service", "SERVICE_"),
        ("qp_state", "QPS_"),
        ("qp_mask", "QP_MASK_"),
        ("access", "ACCESS_"),
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

impl Facts {
    /// Constants of a file, by name.
    fn constants(&mut self, file: &syn::File, prefix: &str, names: &[&str]) -> anyhow::Result<()> {
        let mut found = 0;
        for item in consts(&file.items) {
            let name = item.ident.to_string();
            if names.contains(&name.as_str()) {
                self.alias(&name, format!("{PREFIX}{prefix}{name}"), item)?;
                found += 1;
            }
        }
        ensure!(found == names.len(), "one of {names:?} is missing");
        Ok(())
    }

    fn registers(&mut self, file: &syn::File) -> anyhow::Result<()> {
        for register in Registers::find(&file.items)?.0 {
            let name = format!("{PREFIX}REG_{}", register.name);
            self.parts.push(Part::Define {
                name: name.clone(),
                value: register.offset.to_string(),
                doc: doc(&register.attrs),
            });
            for field in register.fields {
                ensure!(field.low <= field.high && field.high < 32, "{name} is wide");
                let mask = u32::MAX >> (31 - (field.high - field.low)) << field.low;
                if mask != u32::MAX {
                    let field_name = field.name.to_string().to_shouty_snake_case();
                    self.parts.push(Part::Define {
                        name: format!("{name}_{field_name}"),
                        value: format!("{mask:#010x}"),
                        doc: doc(&field.attrs),
                    });
                }
            }
        }
        self.section("What registers read as.");
        self.constants(file, "", &["MAGIC_VALUE", "MAJOR", "MINOR"])?;
        self.constants(file, "REG_", &["BYTES"])
    }

    fn codes_of(
        &mut self,
        file: &syn::File,
        name: &str,
        prefix: &str,
        title: &str,
    ) -> anyhow::Result<()> {
        self.code(file, name, &format!("{PREFIX}{prefix}_"), title)
    }

    fn layouts(&mut self, file: &syn::File) -> anyhow::Result<()> {
        for table in macros(&file.items, "layout") {
            let table: Layout = table.mac.parse_body()?;
            self.layout(table)?;
        }
        Ok(())
    }
}
