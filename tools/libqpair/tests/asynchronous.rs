// SPDX-License-Identifier: GPL-2.0
//! Endpoints of tasks, against the device model in one process.

mod support;

use std::os::unix::net::UnixStream;
use std::time::Duration;

use qpair::{
    Access, AsyncEndpoint, Context, Counter, Endpoint, EndpointError, EndpointOptions, Memory, Mr,
    Pd,
};
use rustix::io::Errno;
use support::machine;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

async fn pair(context: &Context, options: &EndpointOptions) -> (AsyncEndpoint, AsyncEndpoint) {
    let (here, there) = UnixStream::pair().unwrap();
    let connect = |stream| {
        let (context, options) = (context.clone(), options.clone());
        spawn_blocking(move || Endpoint::connect(&context, &options, stream).unwrap())
    };
    let (near, far) = (connect(here), connect(there));
    let near = AsyncEndpoint::new(near.await.unwrap()).unwrap();
    (near, AsyncEndpoint::new(far.await.unwrap()).unwrap())
}

/// Pairs of tasks on one thread. Both sides of a pair wait all the time.
#[tokio::test]
async fn tasks_wake_each_other() {
    const COUNT: u32 = 500;
    let (fake, context) = machine();
    let options = EndpointOptions::new().message(64).depth(3).backlog(2);
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (mut near, mut far) = pair(&context, &options).await;
        tasks.push(tokio::spawn(async move {
            for n in 0..COUNT {
                near.send(&n.to_le_bytes()).await.unwrap();
                if n % 5 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            near.close().await.unwrap();
        }));
        tasks.push(tokio::spawn(async move {
            let mut into = [0; 64];
            for n in 0..COUNT {
                if n % 50 == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                assert_eq!(far.recv(&mut into).await.unwrap(), 4);
                assert_eq!(into[..4], n.to_le_bytes());
            }
            let end = far.recv(&mut into).await.unwrap_err();
            assert!(matches!(end, EndpointError::Closed), "{end}");
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(fake.machine().function.counter(Counter::Errors), 0);
}

/// A device that works later wakes a task that waits for a ticket; and so does the end.
#[tokio::test]
async fn a_ticket_and_an_end_wake_a_task() {
    let (fake, context) = machine();
    let (mut near, far) = pair(&context, &EndpointOptions::new()).await;
    fake.by_hand();
    let device = fake.clone();
    let later = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        device.machine().settle();
        device.machine().eager = true;
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(far);
    });
    let ticket = near.send(b"x").await.unwrap();
    near.wait(ticket).await.unwrap();
    let mut into = vec![0; 4096];
    assert!(near.recv(&mut into).await.unwrap_err().is_gone());
    later.await.unwrap();
}

/// A READ and a WRITE have moved their bytes when their calls return, on a device that works later.
#[tokio::test]
async fn a_task_waits_for_direct_access() {
    let (fake, context) = machine();
    let pd = Pd::new(&context).unwrap();
    let options = EndpointOptions::new().access(Access::REMOTE_WRITE | Access::REMOTE_READ);
    let (here, there) = UnixStream::pair().unwrap();
    let connect = |stream| {
        let (pd, context, options) = (pd.clone(), context.clone(), options.clone());
        spawn_blocking(move || Endpoint::connect_in(&pd, &context, &options, stream).unwrap())
    };
    let (near, _far) = (connect(here), connect(there));
    let mut near = AsyncEndpoint::new(near.await.unwrap()).unwrap();
    let mr = Mr::new(&pd, Memory::new(8192).unwrap(), Access::all()).unwrap();
    mr.write(0, b"there");
    fake.by_hand();
    let device = fake.clone();
    let works = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            device.machine().settle();
        }
    });
    near.write(mr.sge(0, 5), mr.remote(4096)).await.unwrap();
    near.read(mr.sge(100, 5), mr.remote(4096)).await.unwrap();
    let mut got = [0; 5];
    mr.read(100, &mut got);
    assert_eq!(&got, b"there");
    works.abort();
}

/// A device that is reset completes nothing: a task that waits finds it out.
#[tokio::test]
async fn a_task_finds_the_end_by_a_query() {
    let (fake, context) = machine();
    let (mut near, _far) = pair(&context, &EndpointOptions::new()).await;
    fake.machine().says = Some(Err(Errno::IO));
    let error = near.recv(&mut [0; 4096]).await.unwrap_err();
    assert!(
        matches!(&error, EndpointError::Device(error) if error.is_dead()),
        "{error}"
    );
}

/// What the documentation says of calls that are dropped.
#[tokio::test]
async fn a_call_that_is_dropped() {
    const SHORT: Duration = Duration::from_millis(20);
    let (fake, context) = machine();
    let options = EndpointOptions::new()
        .message(64)
        .depth(1)
        .backlog(0)
        .access(Access::REMOTE_WRITE);
    let pd = Pd::new(&context).unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    let connect = |stream| {
        let (pd, context, options) = (pd.clone(), context.clone(), options.clone());
        spawn_blocking(move || Endpoint::connect_in(&pd, &context, &options, stream).unwrap())
    };
    let (near, far) = (connect(here), connect(there));
    let mut near = AsyncEndpoint::new(near.await.unwrap()).unwrap();
    let mut far = AsyncEndpoint::new(far.await.unwrap()).unwrap();
    let mut into = [0; 64];
    assert!(timeout(SHORT, far.recv(&mut into)).await.is_err());

    // The receive, and the buffer, are taken; the third is not sent.
    near.send(b"1").await.unwrap();
    near.send(b"2").await.unwrap();
    assert!(timeout(SHORT, near.send(b"3")).await.is_err());
    for expected in [b"1", b"2"] {
        assert_eq!(far.recv(&mut into).await.unwrap(), 1);
        assert_eq!(into[..1], expected[..]);
        near.endpoint().progress().unwrap();
    }
    assert!(timeout(SHORT, far.recv(&mut into)).await.is_err());

    // The WRITE was posted, and is done later.
    let mr = Mr::new(&pd, Memory::new(8192).unwrap(), Access::all()).unwrap();
    mr.write(0, b"late");
    fake.by_hand();
    let write = near.write(mr.sge(0, 4), mr.remote(4096));
    assert!(timeout(SHORT, write).await.is_err());
    fake.machine().settle();
    fake.machine().eager = true;
    let mut got = [0; 4];
    mr.read(4096, &mut got);
    assert_eq!(&got, b"late");

    // A close that waits for a receive.
    near.send(b"4").await.unwrap();
    near.send(b"5").await.unwrap();
    assert!(timeout(SHORT, near.close()).await.is_err());
    assert_eq!(far.recv(&mut into).await.unwrap(), 1);
    assert!(far.recv(&mut into).await.unwrap_err().is_gone());
}
