// SPDX-License-Identifier: GPL-2.0
//! The rules, by what a violation of them is.

pub const ORDER: &str = "a packet is executed twice, or not in order";
pub const EARLY: &str = "a request completes before it was executed and answered";
pub const DATA: &str = "data of an answer are taken twice, or are not those asked for";
pub const REPORT: &str = "a completion is reported twice, or not in order";
pub const REASON: &str = "a queue pair fails for a reason that it does not have";
pub const WINDOW: &str = "more is in flight than may be";
pub const FENCE: &str = "a request begins before its fence";
pub const STUCK: &str = "requests are not completed on a link that loses nothing any more";
pub const ALL: [&str; 8] = [ORDER, EARLY, DATA, REPORT, REASON, WINDOW, FENCE, STUCK];
