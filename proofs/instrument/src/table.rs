// SPDX-License-Identifier: GPL-2.0
//! The tables.

use crate::here;
use crate::source::Source;
use serde::de::DeserializeOwned;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;

/// The types to derive for, by file.
pub(crate) type Types = BTreeMap<String, Vec<String>>;

/// The wrong variants, by name.
pub(crate) struct Table(BTreeMap<String, Vec<Place>>);

/// A place of a wrong variant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    what: Option<String>,
    by: Option<String>,
    file: String,
    #[serde(rename = "in")]
    function: Option<String>,
    right: String,
    wrong: String,
}

/// Reads a table of the crate whose build script calls.
pub(crate) fn read<T: DeserializeOwned>(name: &str) -> Result<T, String> {
    let path = here().join(name);
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

impl Table {
    pub(crate) fn read(name: &str) -> Result<Self, String> {
        let table = Self(read(name)?);
        for (variant, places) in &table.0 {
            let says = |place: &Place| place.what.is_some() || place.by.is_some();
            if places[0].what.is_none() || places[1..].iter().any(says) {
                return Err(format!(
                    "{name}: {variant}: `what` and `by` are in its first entry only"
                ));
            }
        }
        Ok(table)
    }

    /// The files that have places.
    pub(crate) fn files(&self) -> impl Iterator<Item = &String> {
        self.0.values().flatten().map(|place| &place.file)
    }

    /// Makes the places of a file.
    pub(crate) fn apply(&self, file: &str, source: &mut Source) -> Result<(), String> {
        for (name, places) in &self.0 {
            for place in places.iter().filter(|place| place.file == file) {
                let function = place.function.as_deref();
                source
                    .replace(name, function, &place.right, &place.wrong)
                    .map_err(|said| format!("{name}: {said}"))?;
            }
        }
        Ok(())
    }

    /// The module that names the variants.
    pub(crate) fn module(&self) -> String {
        let mut module = "qpair_testkit::variants! {\n".to_string();
        for (name, places) in &self.0 {
            let Place { what, by, .. } = &places[0];
            let (what, by) = (what.as_deref(), by.as_deref());
            module += &format!("    {name}: {:?}, {by:?},\n", what.unwrap_or(""));
        }
        module + "}\n"
    }
}
