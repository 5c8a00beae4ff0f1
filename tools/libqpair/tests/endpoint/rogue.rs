// SPDX-License-Identifier: GPL-2.0
//! Peers that are not endpoints: wrong handshakes, and messages that the protocol does not allow.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use qpair::{
    Access, Context, Cq, CqOptions, Endpoint, EndpointError, EndpointOptions, Fault, Memory, Mr,
    Number, Pd, Qp, QpOptions, Receive, Rts, WorkRequest,
};

use crate::support::bench::{pair, poll};
use crate::support::machine;

/// A hello of version 1: number, size of a message, receives.
fn hello(number: u32, words: [u32; 3]) -> Vec<u8> {
    let mut bytes = b"qpair-ep".to_vec();
    for word in [1, number, words[0], words[1], words[2], 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

/// What an endpoint that is gone has written. It need not have read everything.
fn said(stream: &mut UnixStream) -> Vec<u8> {
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => said,
    }
}

/// Connects to a peer that writes these bytes; what it is told, and the error.
fn refused(context: &Context, bytes: &[u8]) -> (Vec<u8>, EndpointError) {
    let (here, mut there) = UnixStream::pair().unwrap();
    let options = EndpointOptions::new().timeout(Duration::from_millis(100));
    there.write_all(bytes).unwrap();
    let begin = Instant::now();
    let error = Endpoint::connect(context, &options, here).unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(10));
    (said(&mut there).split_off(32), error)
}

#[test]
fn a_wrong_handshake_is_refused() {
    let (fake, context) = machine();
    let pinned = fake.machine().pinned();
    let (said, error) = refused(&context, b"GET / HTTP/1.1\r\n\r\n");
    assert!(
        matches!(error, EndpointError::Broken(Fault::Garbage)),
        "{error}"
    );
    assert_eq!(said, [0x10]);
    let mut other = hello(1, [64, 4, 4]);
    other[8] = 9;
    let (said, error) = refused(&context, &other);
    assert!(
        matches!(error, EndpointError::Version { theirs: 9 }),
        "{error}"
    );
    assert_eq!(said, [0x11]);
    for words in [
        [0, 4, 4],
        [64, 0, 4],
        [64, 4, 1],
        [64, 1 << 16, 4],
        [64, 4, 1 << 16],
    ] {
        let (said, error) = refused(&context, &hello(1, words));
        assert!(
            matches!(error, EndpointError::Broken(Fault::Sizes)),
            "{error}"
        );
        assert_eq!(said, [0x12]);
    }
    // Silence, before the hello, in it, and after it.
    let whole = hello(1, [64, 4, 4]);
    for len in [0, 5, 12, 31, 32] {
        let (_, error) = refused(&context, &whole[..len]);
        assert!(matches!(error, EndpointError::Late { .. }), "{error}");
    }
    // It refuses us.
    let (_, error) = refused(&context, &[&whole[..], &[0x11]].concat());
    assert!(
        matches!(error, EndpointError::Refused(Fault::Version)),
        "{error}"
    );
    let text = error.to_string();
    assert!(text.contains("another version of the protocol"), "{text}");
    assert_eq!(fake.machine().pinned(), pinned, "nothing is left");
}

/// A peer that says it keeps 4 and 2 receives, and then does as it likes.
struct Rogue {
    qp: Qp<Rts>,
    cq: Cq,
    mr: Mr,
    stream: UnixStream,
}

fn rogue(context: &Context, receives: u64) -> (Endpoint, Rogue) {
    let (here, mut stream) = UnixStream::pair().unwrap();
    let pd = Pd::new(context).unwrap();
    let cq = Cq::new(context, &CqOptions::new(128)).unwrap();
    let options = QpOptions::new(&cq, &cq).sq_blocks(64).retries(0, 0);
    let qp = Qp::new(&pd, &options).unwrap().init(Access::NONE).unwrap();
    let mr = Mr::new(&pd, Memory::new(4096).unwrap(), Access::LOCAL_WRITE).unwrap();
    for id in 0..receives {
        qp.post_recv(&[Receive::new(id, &[mr.sge(0, 64)])]).unwrap();
    }
    let options = EndpointOptions::new().message(64).depth(4);
    thread::scope(|scope| {
        let end = scope.spawn(|| Endpoint::connect(context, &options, here).unwrap());
        stream
            .write_all(&hello(qp.number().raw(), [64, 4, 2]))
            .unwrap();
        let mut theirs = [0; 32];
        stream.read_exact(&mut theirs).unwrap();
        let peer = [theirs[12], theirs[13], theirs[14], theirs[15]];
        let peer = Number::from_raw(u32::from_le_bytes(peer));
        let qp = qp.rtr(peer).unwrap().rts().unwrap();
        stream.write_all(&[1]).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        let rogue = Rogue { qp, cq, mr, stream };
        (end.join().unwrap(), rogue)
    })
}

impl Rogue {
    fn send(&self, request: WorkRequest<'_>) {
        self.qp.post_send(&[request.signaled()]).unwrap();
        poll(&self.cq);
    }
}

#[test]
fn a_peer_that_breaks_the_protocol_is_disconnected() {
    let (fake, context) = machine();
    let (_bystander, mut other) = {
        let options = EndpointOptions::new();
        pair(&context, &options, &options)
    };
    let pinned = fake.machine().pinned();
    type Wrong = fn(&Rogue);
    let wrongs: [(Fault, Wrong); 6] = [
        (Fault::TooMany, |rogue| {
            // Four of data; the fifth takes the receive of an acknowledgement.
            for _ in 0..5 {
                rogue.send(WorkRequest::send_inline(1, b"x"));
            }
        }),
        (Fault::FalseCounts, |rogue| {
            rogue.send(WorkRequest::send(1, &[]).imm(1 << 16));
        }),
        (Fault::FalseCounts, |rogue| {
            for _ in 0..5 {
                rogue.send(WorkRequest::send(1, &[]).imm(0));
            }
        }),
        (Fault::Strange, |rogue| {
            rogue.send(WorkRequest::send_inline(1, b"x").imm(0));
        }),
        (Fault::Strange, |rogue| {
            let there = rogue.mr.remote(0);
            rogue.send(WorkRequest::write(1, &[], there).imm(0));
        }),
        (Fault::Garbage, |rogue| {
            (&rogue.stream).write_all(b"\xff").unwrap();
        }),
    ];
    for (fault, wrong) in wrongs {
        let (mut end, mut rogue) = rogue(&context, 6);
        wrong(&rogue);
        let mut into = [0; 64];
        let error = loop {
            match end.recv(&mut into) {
                Ok(bytes) => assert_eq!(into[..bytes], *b"x"),
                Err(error) => break error,
            }
        };
        let is_it = matches!(error, EndpointError::Broken(found) if found == fault);
        assert!(is_it, "{error}, not {fault}");
        drop(end);
        let said = said(&mut rogue.stream);
        assert_eq!(said.len(), 1, "{fault}");
    }
    // One that has no receives: the send fails, and is not retried.
    let (mut end, rogue) = rogue(&context, 0);
    let ticket = end.send(b"x").unwrap();
    let error = end.wait(ticket).unwrap_err();
    let is_it = matches!(error, EndpointError::Broken(Fault::NoReceive));
    assert!(is_it, "{error}");
    drop((end, rogue));
    assert_eq!(fake.machine().pinned(), pinned, "nothing is left");
    assert_eq!(other.try_recv(&mut [0; 4096]).unwrap(), None);
    other.send(b"x").unwrap();
}
