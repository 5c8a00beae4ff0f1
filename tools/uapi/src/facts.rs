// SPDX-License-Identifier: GPL-2.0
//! What the sources of `rust/abi` say, in C's terms.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{bail, ensure, Context as _};
use heck::{ToShoutySnakeCase as _, ToSnakeCase as _};
use quote::ToTokens as _;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Expr, Ident, Item, ItemConst, ItemMacro, Lit, LitInt, LitStr, Meta, Token};

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
    pub kind: &'static str,
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
}

/// Reads the sources in `abi`.
pub fn read(abi: &Path) -> anyhow::Result<Facts> {
    let file = |name: &str| -> anyhow::Result<syn::File> {
        let path = abi.join(name);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        syn::parse_file(&text).with_context(|| format!("cannot parse {}", path.display()))
    };
    let mut facts = Facts::default();
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
                            kind: c_type(&field.ty.to_token_stream().to_string())?,
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
        const OURS: [&str; 6] = [
            "PAGE_BYTES",
            "SQ",
            "RQ",
            "CQ_HEAD",
            "CQ_ARM_NEXT",
            "CQ_ARM_SOLICITED",
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
        for (name, prefix, title) in [
            (
                "Status",
                "QPAIR_STATUS_",
                "Statuses of completions, with the numbers of enum ibv_wc_status.",
            ),
            (
                "Detail",
                "QPAIR_DETAIL_",
                "Vendor details of completions: which check refused.",
            ),
        ] {
            self.section(title);
            self.names.insert(name.into(), format!("{prefix}*"));
            let mut found = false;
            for table in macros(&file.items, "codes") {
                let table: Codes = table.mac.parse_body()?;
                if table.name != name {
                    continue;
                }
                found = true;
                for code in table.codes {
                    self.parts.push(Part::Define {
                        name: format!("{prefix}{}", code.name.to_string().to_shouty_snake_case()),
                        value: code.value.to_string(),
                        doc: doc(&code.attrs),
                    });
                }
            }
            ensure!(found, "no codes of {name}");
        }
        Ok(())
    }

    /// Places in the array of counters.
    fn counters(&mut self, file: &syn::File) -> anyhow::Result<()> {
        self.section("Places in the array of struct qpair_query_counters.");
        let table = macros(&file.items, "counters")
            .next()
            .context("no counters")?;
        let table: Counters = table.mac.parse_body()?;
        for (place, (name, text)) in table.0.iter().enumerate() {
            self.parts.push(Part::Define {
                name: format!("QPAIR_COUNTER_{}", name.to_string().to_shouty_snake_case()),
                value: place.to_string(),
                doc: text.clone(),
            });
        }
        self.parts.push(Part::Define {
            name: "QPAIR_COUNTERS".into(),
            value: table.0.len().to_string(),
            doc: "How many there are.".into(),
        });
        Ok(())
    }

    /// A structure whose fields are told by word and bit. Its bytes are those of a little-endian C structure.
    fn layout(&mut self, table: Layout) -> anyhow::Result<()> {
        let name = format!("qpair_{}", table.name.to_string().to_snake_case());
        let mut at = 0;
        let mut fields = Vec::new();
        let pad = |fields: &mut Vec<Field>, bytes: u32| {
            if bytes > 0 {
                fields.push(Field {
                    name: format!("reserved{}[{bytes}]", fields.len()),
                    kind: "__u8",
                    doc: "Zero.".into(),
                });
            }
        };
        let mut rows = table.fields;
        rows.sort_by_key(|row| (row.word, row.shift));
        for row in rows {
            let kind = c_type(&row.kind.to_string())?;
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
            at = start + c_bytes(kind);
        }
        ensure!(at <= table.words * 8, "{name} is longer than it says");
        pad(&mut fields, table.words * 8 - at);
        self.names
            .insert(table.name.to_string(), format!("struct {name}"));
        self.parts.push(Part::Struct {
            name,
            doc: doc(&table.attrs),
            fields,
        });
        Ok(())
    }

    /// The constants of a module, with a prefix.
    fn module(&mut self, file: &syn::File, name: &str, prefix: &str) -> anyhow::Result<()> {
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

    fn section(&mut self, title: &str) {
        self.parts.push(Part::Section(title.to_owned()));
    }

    fn alias(&mut self, rust: &str, name: String, item: &ItemConst) -> anyhow::Result<()> {
        self.names.insert(rust.to_owned(), name.clone());
        self.define(name, item)
    }

    fn define(&mut self, name: String, item: &ItemConst) -> anyhow::Result<()> {
        self.parts.push(Part::Define {
            value: c_value(&item.expr).with_context(|| name.clone())?,
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

/// The comment, a line of the source to a line, without the space after the slashes.
fn doc(attrs: &[Attribute]) -> String {
    let lines = attrs.iter().filter_map(|attr| match &attr.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            Expr::Lit(lit) => match &lit.lit {
                Lit::Str(text) => {
                    let text = text.value();
                    Some(text.strip_prefix(' ').unwrap_or(&text).to_owned())
                }
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn consts(items: &[Item]) -> impl Iterator<Item = &ItemConst> {
    items.iter().filter_map(|item| match item {
        Item::Const(item) => Some(item),
        _ => None,
    })
}

fn macros<'a>(items: &'a [Item], name: &'a str) -> impl Iterator<Item = &'a ItemMacro> {
    items.iter().filter_map(move |item| match item {
        Item::Macro(item) if item.mac.path.is_ident(name) => Some(item),
        _ => None,
    })
}

fn c_type(rust: &str) -> anyhow::Result<&'static str> {
    Ok(match rust {
        "u8" => "__u8",
        "u16" => "__u16",
        "u32" | "Number" => "__u32",
        "u64" => "__aligned_u64",
        "i32" => "__s32",
        other => bail!("no C type for {other}"),
    })
}

fn c_bytes(kind: &str) -> u32 {
    match kind {
        "__u8" => 1,
        "__u16" => 2,
        "__aligned_u64" => 8,
        _ => 4,
    }
}

fn c_value(expr: &Expr) -> anyhow::Result<String> {
    Ok(match expr {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Int(value) => value.to_string(),
            Lit::Byte(value) => format!("'{}'", char::from(value.value())),
            other => bail!("no C value: {}", other.to_token_stream()),
        },
        Expr::Unary(_) | Expr::Binary(_) => {
            format!("({})", expr.to_token_stream()).replace("- ", "-")
        }
        other => bail!("no C value: {}", other.to_token_stream()),
    })
}

/// The body of a `layout!`.
struct Layout {
    attrs: Vec<Attribute>,
    name: Ident,
    words: u32,
    fields: Vec<Row>,
}

/// `name: type = word @ shift`.
struct Row {
    attrs: Vec<Attribute>,
    name: Ident,
    kind: Ident,
    word: u32,
    shift: u32,
}

impl Parse for Layout {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        input.parse::<Token![pub]>()?;
        input.parse::<Token![struct]>()?;
        let name = input.parse()?;
        input.parse::<Token![:]>()?;
        let words = input.parse::<LitInt>()?.base10_parse()?;
        let body;
        syn::braced!(body in input);
        let fields = body.parse_terminated(Row::parse, Token![,])?;
        Ok(Self {
            attrs,
            name,
            words,
            fields: fields.into_iter().collect(),
        })
    }
}

impl Parse for Row {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let name = input.parse()?;
        input.parse::<Token![:]>()?;
        let kind = input.parse()?;
        input.parse::<Token![=]>()?;
        let word = input.parse::<LitInt>()?.base10_parse()?;
        input.parse::<Token![@]>()?;
        let shift = input.parse::<LitInt>()?.base10_parse()?;
        Ok(Self {
            attrs,
            name,
            kind,
            word,
            shift,
        })
    }
}

/// The body of a `codes!`.
struct Codes {
    name: Ident,
    codes: Vec<Code>,
}

/// `Name = value, "text"`.
struct Code {
    attrs: Vec<Attribute>,
    name: Ident,
    value: LitInt,
}

impl Parse for Codes {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        input.call(Attribute::parse_outer)?;
        input.parse::<Token![pub]>()?;
        input.parse::<Token![enum]>()?;
        let name = input.parse()?;
        let body;
        syn::braced!(body in input);
        let codes = body.parse_terminated(Code::parse, Token![;])?;
        Ok(Self {
            name,
            codes: codes.into_iter().collect(),
        })
    }
}

impl Parse for Code {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let name = input.parse()?;
        input.parse::<Token![=]>()?;
        let value = input.parse()?;
        input.parse::<Token![,]>()?;
        input.parse::<LitStr>()?;
        Ok(Self { attrs, name, value })
    }
}

/// The body of a `counters!`: `Name = "name", "text";`.
struct Counters(Vec<(Ident, String)>);

impl Parse for Counters {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let row = |input: ParseStream<'_>| {
            let name = input.parse()?;
            input.parse::<Token![=]>()?;
            input.parse::<LitStr>()?;
            input.parse::<Token![,]>()?;
            Ok((name, input.parse::<LitStr>()?.value()))
        };
        let rows = input.parse_terminated(row, Token![;])?;
        Ok(Self(rows.into_iter().collect()))
    }
}
