// SPDX-License-Identifier: GPL-2.0

//! The work requests of kernel ULPs, as the device has them.

use crate::{
    abi::{
        entry::{
            opcode,
            send_flags,
            AtomicWqe,
            SendWqe,
            Sge,
            UdWqe,
            BLOCK_WORDS,
            MAX_BLOCKS, //
        },
        Number, //
    },
    kernel::rdma::{
        Operation,
        Piece,
        SendRequest, //
    },
    queue::producer::Refused,
};
use kernel::prelude::*;

/// Words of the largest send.
const WORDS: usize = MAX_BLOCKS * BLOCK_WORDS;

/// The errno of a post that is refused.
pub(super) fn refused(refused: Refused) -> Error {
    match refused {
        Refused::Full => ENOMEM,
        Refused::TooLarge => EINVAL,
    }
}

/// A piece, as the device has it.
pub(super) fn sge(piece: &Piece) -> Sge {
    Sge {
        addr: piece.addr,
        bytes: piece.bytes,
        lkey: piece.lkey,
    }
}

/// The words of a send before its SGEs, and their number; without blocks, SGEs and signalling.
pub(super) fn head(request: &SendRequest<'_>) -> Result<([u64; WORDS], usize)> {
    let opcode = match (request.operation, request.imm) {
        (Operation::Send, None) => opcode::SEND,
        (Operation::Send, Some(_)) => opcode::SEND_IMM,
        (Operation::Write, None) => opcode::WRITE,
        (Operation::Write, Some(_)) => opcode::WRITE_IMM,
        (Operation::Read, _) => opcode::READ,
        (Operation::CompareSwap, _) => opcode::COMPARE_SWAP,
        (Operation::FetchAdd, _) => opcode::FETCH_ADD,
    };
    let receives = request.operation == Operation::Send || request.imm.is_some();
    let mut flags = 0;
    if request.fence {
        flags |= send_flags::FENCE;
    }
    if request.solicited && receives {
        flags |= send_flags::SOLICITED;
    }
    let imm = request.imm.unwrap_or(0);
    let (remote_addr, rkey) = request.remote;
    let mut words = [0; WORDS];
    let mut put = |head: &[u64]| {
        for (word, value) in words.iter_mut().zip(head) {
            *word = *value;
        }
        head.len()
    };
    let used = if let Some(to) = request.to {
        let [gid, gid_high] = to.address.gid;
        let mut head = UdWqe {
            opcode,
            flags,
            imm,
            dest: Number::from_raw(to.qpn),
            q_key: to.q_key,
            source: to.address.source,
            hop_limit: to.address.hop_limit,
            traffic_class: to.address.traffic_class,
            gid,
            gid_high,
            ..UdWqe::default()
        };
        head.set_flow_label(to.address.flow_label);
        put(&head.encode())
    } else if matches!(
        request.operation,
        Operation::CompareSwap | Operation::FetchAdd
    ) {
        let (compare_add, swap) = request.operands;
        let head = AtomicWqe {
            opcode,
            flags,
            remote_addr,
            rkey,
            compare_add,
            swap: if opcode == opcode::FETCH_ADD { 0 } else { swap },
            ..AtomicWqe::default()
        };
        put(&head.encode())
    } else {
        let head = SendWqe {
            opcode,
            flags,
            imm,
            remote_addr,
            rkey,
            ..SendWqe::default()
        };
        put(&head.encode())
    };
    Ok((words, used))
}
