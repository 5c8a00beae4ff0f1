// SPDX-License-Identifier: GPL-2.0
//! A source, and what is changed in it.

use std::ops::Range;

/// A source.
pub(crate) struct Source {
    pub(crate) text: String,
    /// Where the bytes are that are neither white space nor in a comment.
    code: Vec<usize>,
    edits: Vec<Edit>,
}

/// A place of a wrong variant, or what is inserted if the range is empty.
struct Edit {
    at: Range<usize>,
    name: String,
    wrong: String,
}

impl Source {
    pub(crate) fn new(text: String) -> Self {
        let code = code(&text);
        Self {
            text,
            code,
            edits: Vec::new(),
        }
    }

    /// Where the fragment is.
    fn find(&self, fragment: &str) -> Vec<Range<usize>> {
        let wanted: Vec<u8> = bare(fragment).collect();
        let (Some(&first), Some(&last)) = (wanted.first(), wanted.last()) else {
            return Vec::new();
        };
        let text = self.text.as_bytes();
        let is_word = |at: usize| text.get(at).is_some_and(|&byte| word(byte));
        let is_here = |at: &&[usize]| {
            let (from, to) = (at[0], at[at.len() - 1] + 1);
            let cut = word(first) && from != 0 && is_word(from - 1) || word(last) && is_word(to);
            !cut && at.iter().zip(&wanted).all(|(&at, &byte)| text[at] == byte)
        };
        let windows = self.code.windows(wanted.len()).filter(is_here);
        windows.map(|at| at[0]..at[at.len() - 1] + 1).collect()
    }

    /// The functions of a name.
    fn functions(&self, name: &str) -> Vec<Range<usize>> {
        let text = self.text.as_bytes();
        let end = |head: Range<usize>| {
            let mut depth = 0;
            for &at in self.code.iter().skip_while(|&&at| at < head.end) {
                match text[at] {
                    b'{' => depth += 1,
                    b'}' if depth == 1 => return head.start..at + 1,
                    b'}' => depth -= 1,
                    _ => {}
                }
            }
            head
        };
        self.find(&format!("fn {name}"))
            .into_iter()
            .map(end)
            .collect()
    }

    /// Makes the only place where `right` is, in the functions of a name, one that `name` makes
    /// wrong.
    pub(crate) fn replace(
        &mut self,
        name: &str,
        function: Option<&str>,
        right: &str,
        wrong: &str,
    ) -> Result<(), String> {
        let mut found = self.find(right);
        if let Some(function) = function {
            let functions = self.functions(function);
            found.retain(|at| {
                let holds = |whole: &Range<usize>| whole.start <= at.start && at.end <= whole.end;
                functions.iter().any(holds)
            });
        }
        let [at] = &found[..] else {
            return Err(format!("found {} times, not once: {right}", found.len()));
        };
        let (head, tail) = match ends(right) {
            (head, tail) if wrong.get(..head) == right.get(..head) => (head, tail),
            _ => (0, ""),
        };
        let skipped = bare(&right[..head]).count();
        let at = match self.code.iter().position(|&code| code == at.start) {
            Some(first) => self.code[first + skipped]..at.end - tail.len(),
            None => at.clone(),
        };
        let wrong = &wrong[head..];
        self.edits.push(Edit {
            at,
            name: name.into(),
            wrong: wrong.strip_suffix(tail).unwrap_or(wrong).into(),
        });
        Ok(())
    }

    /// Derives for a type what a checker needs.
    pub(crate) fn derive(&mut self, name: &str) -> Result<(), String> {
        let mut found = self.find(&format!("struct {name}"));
        found.extend(self.find(&format!("enum {name}")));
        let [at] = &found[..] else {
            return Err(format!(
                "type {name} is found {} times, not once",
                found.len()
            ));
        };
        let line = |at: usize| self.text[..at].rfind('\n').map_or(0, |end| end + 1);
        let start = line(at.start);
        // Its attributes are in the lines before it.
        let mut first = start;
        while first != 0 {
            let before = line(first - 1);
            let text = self.text[before..first].trim_start();
            if !text.starts_with("#[") && !text.starts_with("//") {
                break;
            }
            first = before;
        }
        let has = &self.text[first..start];
        let traits = ["Clone", "PartialEq", "Eq", "Hash"];
        let is_derived = |name: &&str| {
            let derives = has.lines().filter(|line| line.starts_with("#[derive("));
            let mut words = derives.flat_map(|line| line.split(|c: char| !c.is_alphanumeric()));
            words.any(|word| word == *name)
        };
        let missing: Vec<_> = traits
            .into_iter()
            .filter(|name| !is_derived(name))
            .collect();
        self.edits.push(Edit {
            at: start..start,
            name: String::new(),
            wrong: format!("#[derive({})]\n", missing.join(", ")),
        });
        Ok(())
    }

    /// The text with what was changed.
    pub(crate) fn finish(mut self) -> Result<String, String> {
        let order = |edit: &Edit| (edit.at.start, usize::MAX - edit.at.end);
        self.edits.sort_by_key(order);
        self.render(0..self.text.len(), &self.edits)
    }

    /// A part of the text; the edits are sorted, and all inside it.
    fn render(&self, part: Range<usize>, mut edits: &[Edit]) -> Result<String, String> {
        let mut out = String::new();
        let mut at = part.start;
        while let Some(edit) = edits.first() {
            out += &self.text[at..edit.at.start];
            at = edit.at.end;
            if edit.at.is_empty() {
                out += &edit.wrong;
                edits = &edits[1..];
                continue;
            }
            let here = edits.iter().take_while(|other| other.at == edit.at).count();
            let inside = edits.iter().take_while(|other| other.at.start < at).count();
            if let Some(other) = edits[..inside].iter().find(|other| other.at.end > at) {
                return Err(format!("{} and {} overlap", edit.name, other.name));
            }
            let right = self.render(edit.at.clone(), &edits[here..inside])?;
            let mut chosen = String::new();
            for Edit { name, wrong, .. } in &edits[..here] {
                chosen += "if crate::mutant::is_active(crate::mutant::Mutant::";
                chosen += &format!("{name}) {{ {wrong} }} else ");
            }
            chosen += &format!("{{ {right} }}");
            out += &match right.ends_with([';', '}']) {
                true => chosen,
                false => format!("({chosen})"),
            };
            edits = &edits[inside..];
        }
        out += &self.text[at..part.end];
        Ok(out)
    }
}

/// What is not white space.
fn bare(text: &str) -> impl Iterator<Item = u8> + '_ {
    text.bytes().filter(|byte| !byte.is_ascii_whitespace())
}

/// How long the beginning is that belongs to no expression, and what such an end there is: of `let
/// NAME = VALUE;`, `FIELD: VALUE`, `PATTERN => VALUE` and, in a table, `(NAME, |ARGUMENTS| VALUE)`.
fn ends(fragment: &str) -> (usize, &'static str) {
    let head = |mark: &str| fragment.find(mark).map_or(0, |at| at + mark.len());
    if fragment.starts_with("let ") {
        return (head(" = "), ";");
    }
    if let (Some(last), Some('(')) = (fragment.rfind("| "), fragment.chars().next()) {
        return (last + 2, ")");
    }
    let field = fragment.find(|c: char| c != '_' && !c.is_alphanumeric());
    if field.is_some_and(|at| fragment[at..].starts_with(": ")) {
        return (head(": "), "");
    }
    (head(" => "), "")
}

fn word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Where the bytes of a text are that are neither white space nor in a comment.
fn code(text: &str) -> Vec<usize> {
    let mut code = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let comment = line
            .match_indices("//")
            .map(|(at, _)| at)
            // Not in a string.
            .find(|&at| line[..at].matches('"').count() % 2 == 0);
        let bytes = line[..comment.unwrap_or(line.len())].bytes().enumerate();
        let bytes = bytes.filter(|(_, byte)| !byte.is_ascii_whitespace());
        code.extend(bytes.map(|(at, _)| start + at));
        start += line.len();
    }
    code
}
