// SPDX-License-Identifier: GPL-2.0
//! A sender, a receiver, and a link that loses, duplicates and swaps, with records of what happened,
//! which are compared with the rules after each step.

pub mod action;
pub mod plan;
pub mod rules;
pub mod settle;
pub mod world;
