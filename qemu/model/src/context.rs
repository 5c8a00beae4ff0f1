// SPDX-License-Identifier: GPL-2.0
//! Contexts of admin commands, and their checks.

use crate::bus::to_bytes;
use crate::bus::Bus;
use crate::faults::Written;
use crate::host::Host;
use crate::schedule::Core;
use qpair_abi::command::Command;
use qpair_abi::command::EqContext;
use qpair_abi::command::MAX_CONTEXT_BYTES;
use qpair_abi::status::AdminError;
use qpair_abi::Number;

/// The results of a command.
#[derive(Clone, Copy, Default)]
pub(crate) struct Results {
    pub(crate) first: u32,
    pub(crate) second: u32,
    pub(crate) third: u32,
}

impl Results {
    /// Those of CREATE.
    pub(crate) fn created(number: Number) -> Self {
        Self {
            first: number.raw(),
            ..Self::default()
        }
    }
}

/// The alignment of contexts.
const CONTEXT_ALIGN: u64 = 64;
/// Refuses bits of no field.
pub(crate) fn check_reserved<const N: usize>(
    words: &[u64; N],
    reserved: &[u64; N],
) -> Result<(), AdminError> {
    let mut pairs = words.iter().zip(reserved);
    if pairs.any(|(word, reserved)| word & reserved != 0) {
        return Err(AdminError::Reserved);
    }
    Ok(())
}

/// Refuses words or fields that this command does not use.
pub(crate) fn check_unset<T: PartialEq + Default>(
    mut unused: impl Iterator<Item = T>,
) -> Result<(), AdminError> {
    if unused.any(|value| value != T::default()) {
        return Err(AdminError::Reserved);
    }
    Ok(())
}

/// Refuses access rights other than `known`.
pub(crate) fn check_access(access: u8, known: u8) -> Result<(), AdminError> {
    check_unset([access & !known].into_iter())
}

/// Refuses moderation by a count or a time alone.
pub(crate) fn check_moderation(context: &EqContext) -> Result<(), AdminError> {
    if (context.moderation_count == 0) != (context.moderation_usecs == 0) {
        return Err(AdminError::Attribute);
    }
    Ok(())
}

/// The words of a command's context, which may be more or less than its type has.
fn context_words(command: &Command) -> Result<usize, AdminError> {
    let bytes = command.context_bytes;
    let fits = bytes != 0 && bytes % 8 == 0 && bytes <= MAX_CONTEXT_BYTES;
    if !fits || command.context % CONTEXT_ALIGN != 0 {
        return Err(AdminError::Context);
    }
    Ok(bytes as usize / 8)
}

/// Reads a command's context. Words that a shorter one lacks are zero; words beyond the known
/// ones must be zero.
pub(crate) fn read<H: Host, const N: usize>(
    bus: &mut Bus<H>,
    command: &Command,
) -> Result<[u64; N], AdminError> {
    let count = context_words(command)?;
    let mut words = vec![0; count.max(N)];
    let given = words.get_mut(..count).ok_or(AdminError::Context)?;
    let loaded = bus.load(command.context, given);
    loaded.map_err(|_| AdminError::Context)?;
    let (known, rest) = words.split_first_chunk().ok_or(AdminError::Context)?;
    check_unset(rest.iter().copied())?;
    Ok(*known)
}

/// Writes a command's context: as much as the command asks for, with zeros beyond its end.
pub(crate) fn answer<H: Host, const N: usize>(
    core: &mut Core<H>,
    command: &Command,
    mut words: [u64; N],
) -> Result<Results, AdminError> {
    let asked = context_words(command)?;
    if let Some(words) = words.get_mut(..asked.min(N)) {
        core.garble(Written::Answer, command.number, words);
    }
    let mut bytes = vec![0; asked * 8];
    to_bytes(&words, &mut bytes);
    let written = core.bus.write(command.context, &bytes);
    written.map_err(|_| AdminError::Context)?;
    Ok(Results::default())
}

/// Refuses a context.
pub(crate) fn without_context(command: &Command) -> Result<(), AdminError> {
    if command.context_bytes != 0 || command.context != 0 {
        return Err(AdminError::Context);
    }
    Ok(())
}
