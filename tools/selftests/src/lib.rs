// SPDX-License-Identifier: GPL-2.0
//! Tests of the driver, to be run in a guest.
//!
//! The files, in order: a file imports only files above it.
//!
//! | file | has |
//! |---|---|
//! | [`wait`] | waits with a deadline |
//! | [`ktap`] | cases and groups, and diagnostics |
//! | [`children`] | other processes |
//! | [`world`] | the kernel's state, in files |
//! | `host` | QEMU's monitor |
//! | `raw` | the driver without a library |
//! | `pair` | connected queue pairs, and bystanders |
//! | `devices` | the driver bound, the module loaded, functions removed and rescanned |
//! | `control` | cases: the control path, each ioctl and its errors |
//! | `data` | cases: work requests, doorbells, completions, errors |
//! | `event` | cases: the event path: vectors, moderation, fairness |
//! | `life` | cases: killed processes, reset and removed devices |
//! | [`faults`] | cases: each allocation and each user copy of an operation fails in turn |
//! | `stream` | cases: the function of channels and its driver |
//! | `tool` | cases: the `qpair` tool and the C example |
//! | `endpoint` | cases: endpoints of two processes |
//! | [`runner`] | runs cases, and the checks after each |
//! | `main` | the program's arguments |
//!
//! Which groups run in which guest is in `plan.toml`.

pub mod children;
mod control;
mod data;
mod devices;
mod endpoint;
mod event;
pub mod faults;
mod host;
pub mod ktap;
pub mod life;
mod pair;
mod raw;
pub mod runner;
mod stream;
mod tool;
pub mod wait;
pub mod world;

/// Every group, in the order in which they run if no selector is given.
pub const GROUPS: &[ktap::Group] = &[
    control::GROUP,
    data::GROUP,
    data::LEVELS,
    data::PLATFORM,
    data::SCALE,
    data::THOUSANDS,
    data::DEVICES,
    event::VECTORS,
    event::TUNING,
    event::FAIR,
    life::PROCESSES,
    life::DEVICE,
    life::KNOBS,
    life::SLEEP,
    life::RECOVERY,
    life::ROCE,
    tool::GROUP,
    endpoint::GROUP,
    faults::GROUP,
    stream::GROUP,
    stream::SLEEP,
];

/// The cases of selectors, in the order of the selectors. `!GROUP/CASE` takes back a case that the
/// selectors before it have found.
pub fn select(
    selectors: &[String],
) -> anyhow::Result<Vec<(&'static ktap::Group, &'static ktap::Case)>> {
    let mut found = Vec::new();
    for selector in selectors {
        let before = found.len();
        if let Some(taken) = selector.strip_prefix('!') {
            found.retain(|(group, case): &(&ktap::Group, &ktap::Case)| {
                taken.split_once('/') != Some((group.name, case.name))
            });
            anyhow::ensure!(found.len() < before, "not selected: {taken}");
            continue;
        }
        for group in GROUPS {
            found.extend(
                group
                    .selected(selector)
                    .into_iter()
                    .map(|case| (group, case)),
            );
        }
        anyhow::ensure!(found.len() > before, "no such test: {selector}");
    }
    Ok(found)
}
