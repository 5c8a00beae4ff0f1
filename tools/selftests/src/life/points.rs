// SPDX-License-Identifier: GPL-2.0
//! Fault points: rules that QEMU is given while programs run, and what a process sees of them.

use std::sync::Arc;

use anyhow::ensure;
use anyhow::Result;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_uverbs::abi::event;

use crate::host::Host;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Bystander;
use crate::pair::Pair;
use crate::raw::Context;
use crate::raw::Wqe;
use crate::wait;

/// Sets the rules, and checks that they are there.
fn set(host: &mut Host, rules: &str) -> Result<()> {
    host.set(0, "faults", rules)?;
    let now = host.text(0, "faults")?;
    ensure!(now == rules, "set to {rules}, the rules are {now}");
    Ok(())
}

/// Checks what the rules did.
fn did(host: &mut Host, report: &str) -> Result<()> {
    let now = host.text(0, "faults-injected")?;
    ensure!(now == report, "expected {report}, the rules did {now}");
    Ok(())
}

/// Waits for the next asynchronous events, in any order.
fn events(ctx: &Arc<Context>, mut kinds: Vec<u32>) -> Result<()> {
    while !kinds.is_empty() {
        let found = wait::for_some("an event", || Ok(ctx.async_event()?))?;
        let place = kinds.iter().position(|kind| *kind == found.kind);
        ensure!(place.is_some(), "{found:?}, and not one of {kinds:?}");
        place.map(|place| kinds.remove(place));
    }
    Ok(())
}

fn write(pair: &mut Pair, wr_id: u64) {
    let (addr, rkey) = (pair.b.memory.addr(), pair.b.mr.keys.rkey);
    let wqe = pair.a.with(Wqe::write(wr_id, addr, rkey), 0, 64);
    pair.a.qp.post(&wqe);
}

/// Each kind of fault, as the process that it strikes sees it. Others go on.
pub(super) fn fault_points(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let mut others = Bystander::new(0, setup.rng())?;
    let mut pair = Pair::open(0)?;
    let qp = pair.a.qp.number;

    set(
        &mut host,
        &format!("fail=rem-access,opcode=write,qp={qp},nth=2"),
    )?;
    write(&mut pair, 1);
    write(&mut pair, 2);
    write(&mut pair, 3);
    pair.a.done(1)?;
    let failed = pair.a.ends(2, Status::RemoteAccess)?;
    ensure!(failed.vendor == Detail::Injected.code(), "{failed:?}");
    pair.a.ends(3, Status::Flush)?;
    others.unharmed()?;
    did(&mut host, "fail 1 of 2")?;

    // The write happens, and its sender does not get to know.
    pair.renew()?;
    pair.a.memory.write(0, &[7; 64]);
    pair.b.memory.write(0, &[0; 64]);
    set(&mut host, &format!("drop-ack,qp={qp}"))?;
    write(&mut pair, 4);
    pair.a.ends(4, Status::RetryExceeded)?;
    ensure!(pair.b.memory.read(0, 64) == [7; 64], "nothing was written");
    let event = pair.a.ctx.async_event()?;
    ensure!(event.is_none(), "{event:?} besides the completions");

    pair.renew()?;
    set(&mut host, &format!("freeze,qp={qp}"))?;
    write(&mut pair, 5);
    others.unharmed()?;
    pair.a.idle()?;
    did(&mut host, "freeze 1 of 1")?;
    set(&mut host, "")?;
    pair.a.done(5)?;

    set(&mut host, &format!("event=link-down,qp={qp}"))?;
    write(&mut pair, 6);
    events(&pair.a.ctx, vec![event::PORT_ERR])?;
    set(&mut host, &format!("event=link-up,qp={qp}"))?;
    write(&mut pair, 7);
    events(&pair.a.ctx, vec![event::PORT_ACTIVE])?;
    pair.a.done(6)?;
    pair.a.done(7)?;

    set(&mut host, &format!("overrun,qp={qp}"))?;
    write(&mut pair, 8);
    events(&pair.a.ctx, vec![event::CQ_ERR, event::QP_FATAL])?;
    pair.a.idle()?;
    set(&mut host, "")?;
    pair.destroy()?;
    works(0, &mut setup.rng())
}
