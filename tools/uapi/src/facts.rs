// SPDX-License-Identifier: GPL-2.0
//! What the sources of `rust/abi` say, in C's terms.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{bail, ensure, Context as _};
use heck::{ToShoutySnakeCase as _, ToSnakeCase as _};
use quote::ToTokens as _;
use syn::{Item, ItemConst};

use crate::source::{c_bytes, c_type, c_value, consts, doc, macros, Codes, Counters, Layout};

/// A part of the header.
#[derive(Debug)]
pub enum Part {
    /// A heading, and what stands under it.
    Section(String),
    /// `#define name value`.
    Define {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
        /// Its comment.
        doc: String,
    },
    /// A structure.
    Struct {
        /// Its name.
        name: String,
        /// Its comment.
        doc: String,
        /// Its fields.
        fields: Vec<Field>,
    },
    /// An ioctl: `_IOWR` of this number and structure.
    Ioctl {
        /// Its name.
        name: String,
        /// Its number.
        number: String,
        /// The structure that it takes.
        argument: String,
        /// What it does, where the structure does not say.
        doc: String,
    },
}

/// A field of a structure.
#[derive(Debug)]
pub struct Field {
    /// Its name, with `[n]` if it is an array.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// Its comment.
    pub doc: String,
}

/// All that the header says.
#[derive(Debug, Default)]
pub struct Facts {
    /// The comment of the whole.
    pub doc: String,
    /// Its parts, in order.
    pub parts: Vec<Part>,
    /// How what a comment may name is called in C.
    pub names: BTreeMap<String, String>,
    /// What names of structures begin with.
    pub(crate) prefix: &'static str,
    /// Numbers are little-endian by their type.
    pub(crate) little_endian: bool,
    /// Words of each structure that is laid out in words.
    pub(crate) words: BTreeMap<String, u32>,
}

/// Reads one of the sources.
pub(crate) fn file(abi: &Path, name: &str) -> anyhow::Result<syn::File> {
    let path = abi.join(name);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    syn::parse_file(&text).with_context(|| format!("cannot parse {}", path.display()))
}

/// Reads what programs must know in the sources in `abi`.
pub fn read(abi: &Path) -> anyhow::Result<Facts> {
    let file = |name: &str| file(abi, name);
    let mut facts = Facts {
        prefix: "qpair_",
        ..Facts::default()
    };
    facts.uapi(&file("uapi.rs")?).context("uapi.rs")?;
    facts
        .doorbells(&file("doorbell.rs")?)
        .context("doorbell.rs")?;
    facts.entries(&file("entry.rs")?).context("entry.rs")?;
    facts.codes(&file("status.rs")?).context("status.rs")?;
    facts
        .counters(&file("counters.rs")?)
        .context("counters.rs")?;
    Ok(facts)
}

impl Facts {
    /// Ioctls and their structures are in C what they are in Rust.
    fn uapi(&mut self, file: &syn::File) -> anyhow::Result<()> {
        self.doc = doc(&file.attrs);
        let mut ioctls = Vec::new();
        for item in &file.items {
            match item {
                Item::Const(item) => {
                    let name = item.ident.to_string();
                    match name.strip_prefix("QPAIR_NR_") {
                        Some(verb) => ioctls.push(ioctl(verb, item)?),
                        None => self.define(name, item)?,
                    }
                }
                Item::Struct(item) => {
                    let fields = item.fields.iter().map(|field| {
                        let name = field.ident.as_ref().context("a field without a name")?;
                        Ok(Field {
                            name: name.to_string(),
                            kind: c_type(&field.ty.to_token_stream().to_string())?.to_owned(),
                            doc: doc(&field.attrs),
                        })
                    });
                    let name = item.ident.to_string();
                    self.names.insert(name.clone(), format!("struct {name}"));
                    self.parts.push(Part::Struct {
                        name,
                        doc: doc(&item.attrs),
                        fields: fields.collect::<anyhow::Result<_>>()?,
                    });
                }
                // How the number of an ioctl is made is C's own business.
                Item::Fn(_) => {}
                other => bail!("what is this? {}", other.to_token_stream()),
            }
        }
        for ioctl in &ioctls {
            if let Part::Ioctl { argument, .. } = ioctl {
                let known = self
                    .parts
                    .iter()
                    .any(|part| matches!(part, Part::Struct { name, .. } if name == argument));
                ensure!(known, "an ioctl takes {argument}, which is no structure");
            }
        }
        self.section("The ioctls.");
        self.parts.append(&mut ioctls);
        Ok(())
    }

    /// The doorbells of a process's page.
    fn doorbells(&mut self, file: &syn::File) -> anyhow::Result<()> {
        self.section(
            "The doorbell page: mmap at offset 0. A doorbell is one aligned 64-bit write of \
             QPAIR_DOORBELL(number, index) to one of these offsets. Entries must be in memory \
             before it: a release fence, or whatever orders stores before a store to the device.",
        );
        const OURS: [&str; 8] = [
            "PAGE_BYTES",
            "SQ",
            "RQ",
            "CQ_HEAD",
            "CQ_ARM_NEXT",
            "CQ_ARM_SOLICITED",
            "CQ_NOTIFY",
            "CQ_NOTIFY_SOLICITED",
        ];
        for item in consts(&file.items) {
            let name = item.ident.to_string();
            if OURS.contains(&name.as_str()) {
                self.alias(&name, format!("QPAIR_DB_{name}"), item)?;
            }
        }
        Ok(())
    }

    /// What lies in the rings of a process.
    fn entries(&mut self, file: &syn::File) -> anyhow::Result<()> {
        self.names.insert("OWNER".into(), "QPAIR_CQE_OWNER".into());
        self.section(
            "The rings. An SQ is an array of 64-byte blocks; a WQE takes 1 to QPAIR_MAX_BLOCKS of them \
             and may wrap: struct qpair_send_wqe, then struct qpair_sge, or with \
             QPAIR_SEND_INLINE the bytes themselves. An RQ is an array of WQEs of one stride: struct \
             qpair_recv_wqe, then struct qpair_sge. Indices have 32 bits and run free; the low bits \
             are the place in the ring. All is little-endian.",
        );
        for item in consts(&file.items) {
            let name = item.ident.to_string();
            if ["BLOCK_BYTES", "MAX_BLOCKS", "MAX_STRIDE_SHIFT"].contains(&name.as_str()) {
                self.alias(&name, format!("QPAIR_{name}"), item)?;
            }
        }
        for table in macros(&file.items, "layout") {
            let table: Layout = table.mac.parse_body()?;
            // Events are the driver's.
            if table.name != "Eqe" {
                self.layout(table)?;
            }
        }
        for (module, prefix) in [
            ("opcode", "QPAIR_OP_"),
            ("send_flags", "QPAIR_SEND_"),
            ("cqe_flags", "QPAIR_CQE_"),
        ] {
            self.module(file, module, prefix)?;
        }
        self.parts.push(Part::Define {
            name: "QPAIR_CQE_OWNER".into(),
            value: "(1 << 7)".into(),
            doc: "Whose it is: a CQE is there when this bit is !((index / depth) & 1), index being the \
                  consumer's free-running one and depth the ring's. Load these flags first, with \
                  acquire order, then the rest."
                .into(),
        });
        Ok(())
    }

    /// Statuses and details of completions.
    fn codes(&mut self, file: &syn::File) -> anyhow::Result<()> {
        self.code(
            file,
            "Status",
            "QPAIR_STATUS_",
            "Statuses of completions, with the numbers of enum ibv_wc_status.",
        )?;
        self.code(
            file,
            "Detail",
            "QPAIR_DETAIL_",
            "Vendor details of completions: which check refused.",
        )
    }

    /// One table of codes.
    pub(crate) fn code(
        &mut self,
        file: &syn::File,
        name: &str,
        prefix: &str,
        title: &str,
    ) -> anyhow::Result<()> {
        self.section(title);
        self.names.insert(name.into(), format!("{prefix}*"));
        for table in macros(&file.items, "codes") {
            let table: Codes = table.mac.parse_body()?;
            if table.name != name {
                continue;
            }
            for code in table.codes {
                self.parts.push(Part::Define {
                    name: format!("{prefix}{}", code.name.to_string().to_shouty_snake_case()),
                    value: code.value.to_string(),
                    doc: doc(&code.attrs),
                });
            }
            return Ok(());
        }
        bail!("no codes of {name}")
    }

    /// Places in the array of counters.
    fn counters(&mut self, file: &syn::File) -> anyhow::Result<()> {
        self.section("Places in the array of struct qpair_query_counters.");
        self.counter(file, "QPAIR_COUNTER")
    }

    /// Counters by name, and how many there are.
    pub(crate) fn counter(&mut self, file: &syn::File, prefix: &str) -> anyhow::Result<()> {
        let table = macros(&file.items, "counters")
            .next()
            .context("no counters")?;
        let table: Counters = table.mac.parse_body()?;
        for (place, (name, text)) in table.0.iter().enumerate() {
            self.parts.push(Part::Define {
                name: format!("{prefix}_{}", name.to_string().to_shouty_snake_case()),
                value: place.to_string(),
                doc: text.clone(),
            });
        }
        self.parts.push(Part::Define {
            name: format!("{prefix}S"),
            value: table.0.len().to_string(),
            doc: "How many there are.".into(),
        });
        Ok(())
    }

    /// A structure whose fields are told by word and bit. Its bytes are those of a little-endian C structure.
    pub(crate) fn layout(&mut self, table: Layout) -> anyhow::Result<()> {
        let name = format!("{}{}", self.prefix, table.name.to_string().to_snake_case());
        let mut at = 0;
        let mut fields = Vec::new();
        let pad = |fields: &mut Vec<Field>, bytes: u32| {
            if bytes > 0 {
                fields.push(Field {
                    name: format!("reserved{}[{bytes}]", fields.len()),
                    kind: "__u8".into(),
                    doc: "Zero.".into(),
                });
            }
        };
        let mut rows = table.fields;
        rows.extend(table.nested);
        rows.sort_by_key(|row| (row.word, row.shift));
        for row in rows {
            let rust = row.kind.to_string();
            let (kind, bytes) = match self.words.get(&rust) {
                Some(words) => (self.names[&rust].clone(), words * 8),
                None => {
                    let kind = c_type(&rust)?;
                    (self.word(kind).to_owned(), c_bytes(kind))
                }
            };
            let start = row.word * 8 + row.shift / 8;
            ensure!(
                row.shift % 8 == 0 && start >= at,
                "{name}.{} is no C field",
                row.name
            );
            pad(&mut fields, start - at);
            fields.push(Field {
                name: row.name.to_string(),
                kind,
                doc: doc(&row.attrs),
            });
            at = start + bytes;
        }
        ensure!(at <= table.words * 8, "{name} is longer than it says");
        pad(&mut fields, table.words * 8 - at);
        self.words.insert(table.name.to_string(), table.words);
        self.names
            .insert(table.name.to_string(), format!("struct {name}"));
        self.parts.push(Part::Struct {
            name,
            doc: doc(&table.attrs),
            fields,
        });
        Ok(())
    }

    /// The type of a number in memory.
    fn word(&self, kind: &'static str) -> &'static str {
        match kind {
            "__u16" if self.little_endian => "__le16",
            "__u32" if self.little_endian => "__le32",
            "__aligned_u64" if self.little_endian => "__le64",
            other => other,
        }
    }

    /// The constants of a module, with a prefix.
    pub(crate) fn module(
        &mut self,
        file: &syn::File,
        name: &str,
        prefix: &str,
    ) -> anyhow::Result<()> {
        let module = file
            .items
            .iter()
            .find_map(|item| match item {
                Item::Mod(module) if module.ident == name => Some(module),
                _ => None,
            })
            .with_context(|| format!("no module {name}"))?;
        let (_, items) = module
            .content
            .as_ref()
            .context("a module in a file of its own")?;
        self.names.insert(name.into(), format!("{prefix}*"));
        self.section(&doc(&module.attrs));
        for item in consts(items) {
            let constant = item.ident.to_string();
            if constant != "ALL" {
                self.names
                    .insert(format!("{name}::{constant}"), format!("{prefix}{constant}"));
                self.alias(&constant, format!("{prefix}{constant}"), item)?;
            }
        }
        Ok(())
    }

    pub(crate) fn section(&mut self, title: &str) {
        self.parts.push(Part::Section(title.to_owned()));
    }

    pub(crate) fn alias(
        &mut self,
        rust: &str,
        name: String,
        item: &ItemConst,
    ) -> anyhow::Result<()> {
        self.names.insert(rust.to_owned(), name.clone());
        self.define(name, item)
    }

    fn define(&mut self, name: String, item: &ItemConst) -> anyhow::Result<()> {
        self.parts.push(Part::Define {
            value: c_value(item).with_context(|| name.clone())?,
            name,
            doc: doc(&item.attrs),
        });
        Ok(())
    }
}

/// The comment of a number names the structure: `` [`qpair_destroy`] of a queue pair. ``
fn ioctl(verb: &str, item: &ItemConst) -> anyhow::Result<Part> {
    let doc = doc(&item.attrs);
    let argument = doc
        .split('`')
        .nth(1)
        .with_context(|| format!("{verb} names no structure"))?;
    Ok(Part::Ioctl {
        name: format!("QPAIR_IOC_{verb}"),
        number: item.expr.to_token_stream().to_string(),
        argument: argument.to_owned(),
        // What one structure is for is said with it.
        doc: if doc.ends_with("].") {
            String::new()
        } else {
            doc
        },
    })
}
