// SPDX-License-Identifier: GPL-2.0
//! Makes a copy of a crate's sources that contains its wrong variants.
//!
//! A test that guards a rule has to fail when the rule is broken. The sources are to be read, so the
//! broken forms are in a table beside the tests, `wrong.toml`. Each entry is a place of a variant:
//!
//! ```toml
//! [[OwnerPolarity]]
//! what = "the owner bit is 0 in the first pass"
//! by = "owner_bits_alternate"
//! file = "index.rs"
//! right = "!odd"
//! wrong = "odd"
//! ```
//!
//! In the copy each place is an `if` that chooses between both, by the variant that the thread has
//! activated. So all variants are one build. A variant with several places has several entries, of
//! which the first has `what` and `by`: the check that catches it, which runs first.
//!
//! `right` is an expression, statements, a `let`, a `FIELD: VALUE`, a `PATTERN => VALUE`, or a row of
//! a table whose second column is a closure. It has to be in `file` exactly once; `in` names the
//! function to look in. White space and comments do not count, so that a change of format does no
//! harm. Places may be equal or inside each other.
//!
//! A variant that does not apply any more is a warning of the build, and its test fails: the other
//! tests still show what the changed line breaks. With `CI` in the environment the build fails.
//!
//! For a checker that explores states, types of the copy can be cloned, compared and hashed:
//! `explore/types.toml` lists them by file. `explore/FILE` is a module inside that of `FILE`, and
//! reaches its private fields.

mod source;
mod table;

use source::Source;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::exit;
use table::read;
use table::Lost;
use table::Table;
use table::Types;

/// Paths of sources, by their names in the copy.
type Files = BTreeMap<String, PathBuf>;

/// The types to derive for.
const TYPES: &str = "explore/types.toml";

/// Copies sources to `OUT_DIR`: each a folder or a file, by its path relative to the crate whose
/// build script calls, and by its name in the copy, which the tables use. The first is a folder with
/// the name `""`, in which `root` is the root of the crate. There the root is included, so it loses
/// its inner attributes; the other sources are its modules.
pub fn instrument(root: &str, sources: &[(&str, &str)]) {
    if let Err(said) = copy(root, sources) {
        eprintln!("{}: {said}", here().display());
        exit(1)
    }
    for (from, _) in sources {
        println!("cargo::rerun-if-changed={from}");
    }
    println!("cargo::rerun-if-changed=wrong.toml");
    println!("cargo::rerun-if-env-changed=CI");
    if here().join(TYPES).exists() {
        println!("cargo::rerun-if-changed=explore");
    }
}

fn copy(root: &str, sources: &[(&str, &str)]) -> Result<(), String> {
    let table = Table::read("wrong.toml")?;
    let types = match here().join(TYPES).exists() {
        true => read(TYPES)?,
        false => Types::new(),
    };
    let mut files = Files::new();
    for (from, to) in sources {
        list(Path::new(from), Path::new(to), &mut files);
    }
    let mut named = table.files().chain(types.keys());
    if let Some(name) = named.find(|&name| !files.contains_key(name)) {
        return Err(format!("no file {name}"));
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("a build script"));
    let mut lost = BTreeSet::new();
    let mut said = Vec::new();
    for (name, path) in files {
        let text = fs::read_to_string(&path).expect("a file in UTF-8");
        let types = types.get(&name).map_or(&[][..], Vec::as_slice);
        let (mut text, gone) = changed(text, &name, &table, types)
            .map_err(|said| format!("{}: {said}", path.display()))?;
        for (variant, why) in gone {
            said.push(warning(variant, &path, &why));
            lost.insert(variant.to_string());
        }
        let own = here().join("explore").join(&name);
        if own.exists() {
            text += &format!("\n#[path = {own:?}]\nmod explore;\n");
        }
        if name == root {
            text = outer(&text);
            let others = sources.iter().map(|(_, to)| to.trim_end_matches(".rs"));
            for module in others.filter(|to| !to.is_empty()).chain(["mutant"]) {
                text += &format!("pub mod {module};\n");
            }
        }
        let to = out.join(&name);
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        fs::write(to, text).expect("a copy");
    }
    fs::write(out.join("mutant.rs"), table.module(&lost)).expect("a module");
    if !said.is_empty() && env::var_os("CI").is_some_and(|value| !value.is_empty()) {
        return Err(said.join("\n"));
    }
    for line in said {
        println!("cargo::warning={line}");
    }
    Ok(())
}

/// The line about a variant that does not apply to a source.
fn warning(variant: &str, path: &Path, why: &str) -> String {
    let path = path.strip_prefix("../..").unwrap_or(path).display();
    let why: Vec<_> = why.split_whitespace().collect();
    format!(
        "the wrong variant {variant} does not apply to {path} any more ({}): change `right` and `wrong` \
         of [[{variant}]] in wrong.toml as you changed the line; until then its test fails",
        why.join(" ")
    )
}

/// A source with the places of its variants, and the variants that do not apply to it.
fn changed<'a>(
    text: String,
    name: &str,
    table: &'a Table,
    types: &[String],
) -> Result<(String, Lost<'a>), String> {
    if let Some((_, after)) = text.split_once("mutant!(") {
        let variant = after.split(')').next().unwrap_or("");
        return Err(format!(
            "the variant {variant} belongs into wrong.toml, with `what`, `file`, `right` and `wrong`"
        ));
    }
    let mut source = Source::new(text);
    let lost = table.apply(name, &mut source);
    for name in types {
        source.derive(name)?;
    }
    Ok((source.finish()?, lost))
}

/// The folder of the crate whose build script calls.
fn here() -> PathBuf {
    PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("a build script"))
}

/// The Rust files at a path, by their names in the copy.
fn list(from: &Path, to: &Path, files: &mut Files) {
    if from.is_dir() {
        for entry in fs::read_dir(from).expect("a folder") {
            let name = entry.expect("an entry").file_name();
            list(&from.join(&name), &to.join(&name), files);
        }
    } else if from.extension().is_some_and(|extension| extension == "rs") {
        let name = to.to_str().expect("a name in UTF-8");
        files.insert(name.into(), from.into());
    }
}

/// Without inner attributes and comments.
fn outer(text: &str) -> String {
    let inner = |line: &&str| line.starts_with("//!") || line.starts_with("#![");
    let lines = text.lines().filter(|line| !inner(line));
    lines.map(|line| format!("{line}\n")).collect()
}
