// SPDX-License-Identifier: GPL-2.0
//! What the sources of `rust/abi` say, in C's terms.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{bail, ensure, Context as _};
use heck::{ToShoutySnakeCase as _, ToSnakeCase as _};
use syn::{Item, ItemConst};

use crate::source::{
    c_bytes, c_type, c_value, consts, doc, macros, Codes, Counters, Layout, Registers,
};

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
    /// Its parts, in order.
    pub parts: Vec<Part>,
    /// How what a comment may name is called in C.
    pub names: BTreeMap<String, String>,
    /// What names of structures begin with.
    pub(crate) prefix: &'static str,
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

impl Facts {
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
            "__u16" => "__le16",
            "__u32" => "__le32",
            "__aligned_u64" => "__le64",
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
            // A set of the others.
            if !matches!(constant.as_str(), "ALL" | "GRANTS" | "REMOTE") {
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
    /// What names of definitions begin with.
    fn upper(&self, name: &str) -> String {
        format!("{}{name}", self.prefix.to_uppercase())
    }

    /// Constants of a file, by name.
    pub(crate) fn constants(
        &mut self,
        file: &syn::File,
        prefix: &str,
        names: &[&str],
    ) -> anyhow::Result<()> {
        let mut found = 0;
        for item in consts(&file.items) {
            let name = item.ident.to_string();
            if names.contains(&name.as_str()) {
                self.alias(&name, self.upper(&format!("{prefix}{name}")), item)?;
                found += 1;
            }
        }
        ensure!(found == names.len(), "one of {names:?} is missing");
        Ok(())
    }

    /// The table of registers of a file.
    pub(crate) fn registers(&mut self, file: &syn::File, prefix: &str) -> anyhow::Result<()> {
        for register in Registers::find(&file.items)?.0 {
            let name = self.upper(&format!("{prefix}{}", register.name));
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
        Ok(())
    }

    /// One table of codes, under a prefix.
    pub(crate) fn codes_of(
        &mut self,
        file: &syn::File,
        name: &str,
        prefix: &str,
        title: &str,
    ) -> anyhow::Result<()> {
        let prefix = self.upper(&format!("{prefix}_"));
        self.code(file, name, &prefix, title)
    }

    /// The structures of a file which are not there yet.
    pub(crate) fn layouts(&mut self, file: &syn::File) -> anyhow::Result<()> {
        for table in macros(&file.items, "layout") {
            let table: Layout = table.mac.parse_body()?;
            if !self.words.contains_key(&table.name.to_string()) {
                self.layout(table)?;
            }
        }
        Ok(())
    }

    /// One structure of a file.
    pub(crate) fn layout_of(&mut self, file: &syn::File, name: &str) -> anyhow::Result<()> {
        for table in macros(&file.items, "layout") {
            let table: Layout = table.mac.parse_body()?;
            if table.name == name {
                return self.layout(table);
            }
        }
        bail!("no structure {name}")
    }
}
