// SPDX-License-Identifier: GPL-2.0
//! C, in the kernel's style: structures with kernel-doc comments, definitions with plain ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::facts::{Facts, Field, Part};

/// Columns of a comment.
const WIDTH: usize = 76;

/// What stands around the facts of a header.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The name that is defined once the header is included.
    pub guard: &'static str,
    /// What the header is.
    pub intro: &'static str,
    /// Definitions that take arguments.
    pub macros: &'static str,
}

/// A header.
pub fn header(facts: &Facts, frame: &Frame) -> String {
    let Frame { guard, macros, .. } = frame;
    let mut out = String::from("/* SPDX-License-Identifier: GPL-2.0 */\n");
    block(&mut out, "/*", frame.intro);
    let _ = write!(
        out,
        "#ifndef {guard}\n#define {guard}\n\n#include <linux/types.h>\n\n"
    );
    for part in &facts.parts {
        write_part(&mut out, part, facts);
    }
    let _ = write!(out, "\n{macros}\n#endif /* {guard} */\n");
    out
}

fn write_part(out: &mut String, part: &Part, facts: &Facts) {
    let text = |doc: &str| plain(doc, &facts.names);
    match part {
        Part::Section(title) => {
            if !out.ends_with("\n\n") {
                out.push('\n');
            }
            short(out, &text(title));
            out.push('\n');
        }
        Part::Define { name, value, doc } => {
            short(out, &text(doc));
            let tabs = "\t".repeat(tabs(8 + name.len()));
            let _ = writeln!(out, "#define {name}{tabs}{value}");
        }
        Part::Struct { name, doc, fields } => {
            let mut lines = format!("struct {name} - {}\n", text(doc));
            for Field { name, doc, .. } in fields.iter() {
                let plain_name = name.split('[').next().unwrap_or(name);
                let _ = write!(lines, "\n@{plain_name}: {}", text(doc).replace('\n', " "));
            }
            if !out.ends_with("\n\n") {
                out.push('\n');
            }
            block(out, "/**", &lines);
            let _ = writeln!(out, "struct {name} {{");
            for Field { name, kind, .. } in fields {
                let _ = writeln!(out, "\t{kind} {name};");
            }
            out.push_str("};\n\n");
        }
    }
}

/// Tabs that bring a definition's value to a common column, if its name permits.
fn tabs(used: usize) -> usize {
    const COLUMN: usize = 48;
    (COLUMN.saturating_sub(used)).div_ceil(8).max(1)
}

/// A comment in one line, where it fits.
fn short(out: &mut String, text: &str) {
    match text {
        "" => {}
        text if text.len() <= WIDTH - 3 && !text.contains('\n') => {
            let _ = writeln!(out, "/* {text} */");
        }
        text => block(out, "/*", text),
    }
}

/// A comment of paragraphs, with what continues a field or a table's row indented.
fn block(out: &mut String, open: &str, text: &str) {
    let _ = writeln!(out, "{open}");
    for line in text.lines() {
        let hang = match line {
            line if line.starts_with('@') => "  ".to_owned(),
            line => " ".repeat(line.find("  ").map_or(0, |at| {
                at + line[at..].len() - line[at..].trim_start().len()
            })),
        };
        let options = textwrap::Options::new(WIDTH)
            .subsequent_indent(&hang)
            .break_words(false)
            .word_separator(textwrap::WordSeparator::AsciiSpace)
            .word_splitter(textwrap::WordSplitter::NoHyphenation);
        for piece in textwrap::wrap(line, options) {
            let _ = writeln!(out, "{}", format!(" * {piece}").trim_end());
        }
    }
    out.push_str(" */\n");
}

/// From rustdoc's marks to plain text, a paragraph or a table's row to a line, with C's names.
fn plain(doc: &str, names: &BTreeMap<String, String>) -> String {
    static LINK: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\[(?<text>[^\]]+)\]\((?<target>[^)]*)\)|\[`(?<link>[^`]+)`\]|`(?<code>[^`]*)`")
            .unwrap()
    });
    static RULE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\|[-|]*\|$").unwrap());
    let known = |path: &str| {
        let last = path.rsplit("::").next().unwrap_or(path);
        names.get(path).or_else(|| names.get(last)).cloned()
    };
    let replace = |m: &Captures<'_>| {
        let part = |name| m.name(name).map(|m| m.as_str());
        match (part("text"), part("target"), part("link"), part("code")) {
            (Some(text), Some(target), ..) => known(target).unwrap_or_else(|| text.to_owned()),
            (.., Some(link), _) => known(link).unwrap_or_else(|| link.to_owned()),
            (.., code) => code.unwrap_or_default().to_owned(),
        }
    };
    let mut lines: Vec<String> = Vec::new();
    let mut open = false;
    for line in doc.lines() {
        let line = LINK.replace_all(line, replace).replace("**", "");
        if RULE.is_match(&line) {
            continue;
        }
        if let Some(row) = line.strip_prefix('|') {
            let cells: Vec<&str> = row
                .trim_end_matches('|')
                .split('|')
                .map(str::trim)
                .collect();
            lines.push(format!("{:<11} {}", cells[0], cells[1..].join(" ")));
            open = false;
        } else if line.is_empty() {
            lines.push(String::new());
            open = false;
        } else if open {
            if let Some(last) = lines.last_mut() {
                last.push(' ');
                last.push_str(&line);
            }
        } else {
            lines.push(line);
            open = true;
        }
    }
    lines.join("\n")
}
