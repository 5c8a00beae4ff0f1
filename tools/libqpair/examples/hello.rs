// SPDX-License-Identifier: GPL-2.0
//! Two queue pairs of one process, and a message from one to the other, with completions by event.

use std::time::Duration;

use qpair::{
    Access, Channel, Completion, Cq, CqOptions, Device, Memory, Mr, Pd, Qp, QpOptions, Receive,
    Wants, WorkRequest,
};

const SEND: u64 = 1;
const RECEIVE: u64 = 2;
const HELLO: &[u8] = b"hello, queue pair";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A context, a domain, and a page of memory that the device may write.
    let context = Device::first()?.open()?;
    let pd = Pd::new(&context)?;
    let mr = Mr::new(&pd, Memory::new(4096)?, Access::LOCAL_WRITE)?;

    // A completion queue with room for two queue pairs of 16 blocks and 16 receives each.
    let channel = Channel::new()?;
    let cq = Cq::new(&context, &CqOptions::new(64).channel(&channel))?;

    // Each names the other; the receiver must be ready before the sender sends.
    let a = Qp::new(&pd, &QpOptions::new(&cq, &cq))?;
    let b = Qp::new(&pd, &QpOptions::new(&cq, &cq))?;
    let (to_a, to_b) = (a.number(), b.number());
    let a = a.init(Access::NONE)?.rtr(to_b)?;
    let b = b.init(Access::NONE)?.rtr(to_a)?;
    let (a, b) = (a.rts()?, b.rts()?);

    // The first half of the page is sent, the second half receives.
    mr.write(0, HELLO);
    b.post_recv(&[Receive::new(RECEIVE, &[mr.sge(2048, 2048)])])?;
    a.post_send(&[WorkRequest::send(SEND, &[mr.sge(0, HELLO.len())]).signaled()])?;

    // Arm, poll until nothing comes, wait: in this order nothing is missed.
    let mut completions = [Completion::default(); 16];
    let mut done = 0;
    while done < 2 {
        cq.arm(Wants::Next);
        let polled = cq.poll(&mut completions);
        for completion in polled {
            completion.check()?;
            if completion.id() == RECEIVE {
                println!("{} bytes arrived", completion.bytes());
            }
            done += 1;
        }
        if polled.is_empty() && !channel.wait(Some(Duration::from_secs(10)))? {
            // The device may have gone during the wait; a query fails then.
            context.query()?;
        }
    }

    let mut arrived = [0; HELLO.len()];
    mr.read(2048, &mut arrived);
    assert_eq!(arrived, HELLO);
    Ok(())
}
