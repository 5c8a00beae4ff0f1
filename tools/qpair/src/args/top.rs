// SPDX-License-Identifier: GPL-2.0
//! The options of `qpair top`.

pub(crate) const TOP_HELP: &str = "\
Keys: q or Ctrl-C quits, Tab selects a table, j and k (or arrows) scroll it,
Space pauses. It needs no mouse and no colours, so it works on a serial console.
If the size of the terminal is unknown, it uses 80x24 (stty rows 50 cols 132
sets it).

The lines at the top are about the device, and begin with its name and health:
  epoch        resets since the driver was bound
  n, k         the tunables events and completions of polls: events for each
               update of an EQ's head, and completions of a CQ in its turn
  budget       completions and other events of one poll
  policy       0, or 1 for the loop of the source model
               (Documentation/driver.rst)
  a second     CQEs and EQEs that the device writes, its interrupts, and bytes
               that messages, WRITEs and READs move
  doorbells    a second; arm: of CQs; EQ: head updates that keep the mask
  errors       the total of the counters errors, flushes, violations,
               dma-faults, cq-overruns and stale of qpair info

Three tables follow. The first heading of a table is the kind and the number of
its objects; below it are their names, index.generation. Columns with /s are
rates per second. A - is a rate without an earlier sample, or a ratio to 0. ERR
is a total; a row with errors is red.

EQ, an event queue:
  VEC          interrupt vector
  CQS          completion queues with their events here
  USED         events whose slots are not free, and all its slots
  IRQ/s        interrupts
  POLL/s       polls by the driver
  EQE/s        events that polls took
  CQE/s        completions of these queues, those of processes included
  CQE/IRQ      completions for each interrupt, which measures coalescing
  EQE/HEAD     events for each update of the head
  MODER.       moderation: an interrupt after this many events / this time, or
               off
  ERR          lost interrupts; events of completion queues that are gone or not
               armed; asynchronous events without a handler
CQ, a completion queue:
  OWNER        the kernel, or the doorbell page of an open file
  EQ           the event queue of its events
  USED         completions whose slots are not free, and all its slots
  CQE/s        completions
QP, a queue pair:
  OWNER        as of a completion queue
  STATE        RESET, INIT, RTR, RTS, SQD or ERROR, which is red
  SEND CQ      the completion queue of its sends
  RECV CQ      that of its receives
  SQ           blocks of 64 bytes that are posted and not done, and all blocks;
               a work request takes one or more
  SEND/s       blocks done
  RQ           receives that are posted and not taken, and the most
  RECV/s       receives taken

The indices of all queues come from the device, by a command for each; the
completions and events of these commands, on CQ 0.0 and EQ 0.0, are counted too.

With --json each sample is an object on a line, with --once one on many lines:
  device, health, epoch    seconds: between the looks
  tuning      {events, completions, budget, policy}
  counters    by name {total, rate}: what the device counted
  eqs         [{number, vector, depth, used, cqs, interrupts, polls, events,
              completions, heads, arms, completions_per_interrupt,
              completions_per_event, events_per_head, moderation {count, usecs},
              pending, spare, lost_interrupts, errors}]
  cqs         [{number, page, eq, depth, used, completions}]
  qps         [{number, page, state, send_cq, recv_cq, sq {depth, used, rate},
              rq {depth, used, rate}}]
Numbers of objects are generation * 65536 + index. Rates are per second, and null
without an earlier sample or with a divisor of 0. used, depth, cqs, pending and
spare are current values; lost_interrupts and errors are totals.

This needs root, and debugfs at /sys/kernel/debug (mount -t debugfs none
/sys/kernel/debug).

Examples:
  qpair top --interval 0.5
  qpair top --once --json | jq '.eqs[].completions_per_interrupt'";

#[derive(Debug, clap::Args)]
pub(crate) struct Top {
    /// Seconds between samples
    #[arg(long, default_value = "1", value_parser = interval, value_name = "SECONDS")]
    pub(crate) interval: f64,
    /// Takes two samples, reports once, and exits
    #[arg(long)]
    pub(crate) once: bool,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds, from 0.05 to 3600".into()),
    }
}
