// SPDX-License-Identifier: GPL-2.0
//! Reading the sources of `rust/abi`: comments, constants, and the tables of its macros.

use anyhow::{bail, Context as _};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Expr, ExprCall, Ident, Item, ItemConst, ItemMacro, Lit, LitInt, LitStr, Meta, Token,
};

/// The comment, a line of the source to a line, without the space after the slashes.
pub(crate) fn doc(attrs: &[Attribute]) -> String {
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

pub(crate) fn consts(items: &[Item]) -> impl Iterator<Item = &ItemConst> {
    items.iter().filter_map(|item| match item {
        Item::Const(item) => Some(item),
        _ => None,
    })
}

pub(crate) fn macros<'a>(items: &'a [Item], name: &'a str) -> impl Iterator<Item = &'a ItemMacro> {
    items.iter().filter_map(move |item| match item {
        Item::Macro(item) if item.mac.path.is_ident(name) => Some(item),
        _ => None,
    })
}

pub(crate) fn c_type(rust: &str) -> anyhow::Result<&'static str> {
    Ok(match rust {
        "u8" => "__u8",
        "u16" => "__u16",
        "u32" | "Number" => "__u32",
        "u64" => "__aligned_u64",
        "i32" => "__s32",
        other => bail!("no C type for {other}"),
    })
}

pub(crate) fn c_bytes(kind: &str) -> u32 {
    match kind {
        "__u8" => 1,
        "__u16" => 2,
        "__aligned_u64" => 8,
        _ => 4,
    }
}

pub(crate) fn c_value(item: &ItemConst) -> anyhow::Result<String> {
    let expr = &*item.expr;
    let text = match expr {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Int(value) => value.to_string(),
            Lit::Byte(value) => format!("'{}'", char::from(value.value())),
            other => bail!("no C value: {}", other.to_token_stream()),
        },
        // Sums of what C knows by other names are not for C.
        Expr::Unary(_) | Expr::Binary(_) if !has_path(expr) => {
            format!("({})", expr.to_token_stream()).replace("- ", "-")
        }
        Expr::Call(call) => format!("{:#x}", from_le_bytes(call).context("no C value")?),
        other => bail!("no C value: {}", other.to_token_stream()),
    };
    // What is shifted has to be as wide as what comes of it.
    Ok(match text.strip_prefix("(1 <<") {
        Some(rest) if item.ty.to_token_stream().to_string() == "u64" => format!("(1ULL <<{rest}"),
        _ => text,
    })
}

fn has_path(expr: &Expr) -> bool {
    match expr {
        Expr::Path(_) => true,
        Expr::Unary(unary) => has_path(&unary.expr),
        Expr::Binary(binary) => has_path(&binary.left) || has_path(&binary.right),
        _ => false,
    }
}

/// `u32::from_le_bytes(*b"abcd")`.
fn from_le_bytes(call: &ExprCall) -> Option<u32> {
    let function = call.func.to_token_stream().to_string();
    let Some(Expr::Unary(unary)) = call.args.first() else {
        return None;
    };
    match (function.as_str(), &*unary.expr) {
        ("u32 :: from_le_bytes", Expr::Lit(lit)) => match &lit.lit {
            Lit::ByteStr(bytes) => Some(u32::from_le_bytes(bytes.value().try_into().ok()?)),
            _ => None,
        },
        _ => None,
    }
}

/// The body of a `layout!`.
pub(crate) struct Layout {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) name: Ident,
    pub(crate) words: u32,
    pub(crate) fields: Vec<Row>,
    /// Structures in it: `name: type = word`.
    pub(crate) nested: Vec<Row>,
}

/// `name: type = word @ shift`, or `name: type = word`.
pub(crate) struct Row {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) name: Ident,
    pub(crate) kind: Ident,
    pub(crate) word: u32,
    pub(crate) shift: u32,
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
        let (mut fields, mut nested) = (Vec::new(), Vec::new());
        let mut below = false;
        while !body.is_empty() {
            if body.peek(Token![..]) {
                body.parse::<Token![..]>()?;
                body.parse::<Token![;]>()?;
                below = true;
                continue;
            }
            let rows = if below { &mut nested } else { &mut fields };
            rows.push(body.parse::<Row>()?);
            body.parse::<Token![,]>()?;
        }
        Ok(Self {
            attrs,
            name,
            words,
            fields,
            nested,
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
        // A structure begins with a word.
        let shift = match input.parse::<Option<Token![@]>>()? {
            Some(_) => input.parse::<LitInt>()?.base10_parse()?,
            None => 0,
        };
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
pub(crate) struct Codes {
    pub(crate) name: Ident,
    pub(crate) codes: Vec<Code>,
}

/// `Name = value, "text"`.
pub(crate) struct Code {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) name: Ident,
    pub(crate) value: LitInt,
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
pub(crate) struct Counters(pub(crate) Vec<(Ident, String)>);

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

/// The table of registers: what `registers!` hands on.
pub(crate) struct Registers(pub(crate) Vec<Register>);

/// `pub NAME(type) @ offset { fields }`.
pub(crate) struct Register {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) name: Ident,
    pub(crate) offset: LitInt,
    pub(crate) fields: Vec<Bits>,
}

/// `high:low name;`.
pub(crate) struct Bits {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) high: u32,
    pub(crate) low: u32,
    pub(crate) name: Ident,
}

impl Registers {
    /// From `macro_rules! registers { (..) => { $($with)*! { table } }; }`.
    pub(crate) fn find(items: &[Item]) -> anyhow::Result<Self> {
        let rules = macros(items, "macro_rules")
            .find(|item| item.ident.as_ref().is_some_and(|name| name == "registers"))
            .context("no macro registers")?;
        let braces = |tokens: TokenStream| {
            let groups = tokens.into_iter().filter_map(|tree| match tree {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group),
                _ => None,
            });
            groups.last().map(|group| group.stream())
        };
        let body = braces(rules.mac.tokens.clone()).context("registers! has no body")?;
        let table = braces(body).context("registers! hands nothing on")?;
        Ok(syn::parse2(table)?)
    }
}

impl Parse for Registers {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut registers = Vec::new();
        while !input.is_empty() {
            let attrs = input.call(Attribute::parse_outer)?;
            input.parse::<Token![pub]>()?;
            let name = input.parse()?;
            let (kind, body);
            syn::parenthesized!(kind in input);
            kind.parse::<Ident>()?;
            input.parse::<Token![@]>()?;
            let offset = input.parse()?;
            syn::braced!(body in input);
            let fields = body.parse_terminated(Bits::parse, Token![;])?;
            registers.push(Register {
                attrs,
                name,
                offset,
                fields: fields.into_iter().collect(),
            });
        }
        Ok(Self(registers))
    }
}

impl Parse for Bits {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let high = input.parse::<LitInt>()?.base10_parse()?;
        input.parse::<Token![:]>()?;
        let low = input.parse::<LitInt>()?.base10_parse()?;
        let name = input.parse()?;
        Ok(Self {
            attrs,
            high,
            low,
            name,
        })
    }
}
