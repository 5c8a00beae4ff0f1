// SPDX-License-Identifier: GPL-2.0
//! The tables.

use crate::here;
use crate::source::Source;
use serde::de::DeserializeOwned;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;

/// The types to derive for, by file.
pub(crate) type Types = BTreeMap<String, Vec<String>>;

/// The variants that do not apply to a source, with the reason.
pub(crate) type Lost<'a> = Vec<(&'a str, String)>;

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
    pub(crate) fn apply(&self, file: &str, source: &mut Source) -> Lost<'_> {
        let mut lost = Vec::new();
        for (name, places) in &self.0 {
            for place in places.iter().filter(|place| place.file == file) {
                let function = place.function.as_deref();
                if let Err(why) = source.replace(name, function, &place.right, &place.wrong) {
                    lost.push((name.as_str(), why));
                }
            }
        }
        lost
    }

    /// The module that names the variants, and those of them that do not apply.
    pub(crate) fn module(&self, lost: &BTreeSet<String>) -> String {
        let mut module = "qpair_testkit::variants! {\n".to_string();
        for (name, places) in &self.0 {
            let Place { what, by, .. } = &places[0];
            let (what, by) = (what.as_deref(), by.as_deref());
            let applies = !lost.contains(name);
            module += &format!("    {name}: {:?}, {by:?}, {applies},\n", what.unwrap_or(""));
        }
        module + "}\n"
    }
}

#[cfg(test)]
mod tests {
    use super::Source;
    use super::Table;
    use std::collections::BTreeSet;

    #[test]
    fn a_variant_whose_line_has_changed_is_lost_and_the_others_apply() {
        let text = r#"
            Gone = [{ what = "", file = "a.rs", right = "a + 2", wrong = "a" }]
            Odd = [{ what = "", file = "a.rs", right = "a + 1", wrong = "a" }]
        "#;
        let table = Table(toml::from_str(text).expect("a table"));
        let mut source = Source::new("fn next(a: u8) -> u8 { a + 1 }".into());
        let lost = table.apply("a.rs", &mut source);
        assert_eq!(lost, [("Gone", "found 0 times, not once: a + 2".into())]);
        assert!(source.finish().expect("a copy").contains("Mutant::Odd"));
        let module = table.module(&BTreeSet::from(["Gone".into()]));
        assert!(module.contains(r#"Gone: "", None, false,"#));
        assert!(module.contains(r#"Odd: "", None, true,"#));
    }
}
