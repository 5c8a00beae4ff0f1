// SPDX-License-Identifier: GPL-2.0
//! What each call asks of the kernel, and what it makes of the answers: a test in place of the kernel.

use std::cell::RefCell;
use std::collections::VecDeque;

use qpair_uverbs::abi::{
    Plain, UVERBS_ATTR_CORE_IN, UVERBS_ATTR_CORE_OUT, UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT,
    UVERBS_ATTR_WRITE_CMD,
};
use qpair_uverbs::bytes_of;

use super::tests::no_device;
use super::*;
use crate::kernel::QpState;

/// A command that the kernel is to get, and its answers.
struct Expected {
    requests: Vec<(u16, Vec<u8>)>,
    answers: Vec<(u16, Vec<u8>)>,
}

thread_local! {
    /// The commands that this thread is to send, in order; `None` if they go to the kernel.
    static EXPECTED: RefCell<Option<VecDeque<Expected>>> = const { RefCell::new(None) };
}

/// Answers a command in place of the kernel, if the thread's commands are expected.
pub(super) fn play(command: Command<'_>) -> Option<Command<'_>> {
    EXPECTED.with_borrow_mut(|expected| {
        let Some(expected) = expected else {
            return Some(command);
        };
        let Expected { requests, answers } = expected.pop_front().expect("one more command");
        let (mut asked, mut answered) = (Vec::new(), 0);
        let kernel = |attr: u16, bytes: &mut [u8]| match answers.iter().find(|it| it.0 == attr) {
            Some((_, answer)) => {
                bytes.copy_from_slice(answer);
                answered += 1;
            }
            None => asked.push((attr, bytes.to_vec())),
        };
        // SAFETY: `File` adds no part by its address.
        unsafe { command.play(kernel) };
        asked.sort();
        assert_eq!((asked, answered), (requests, answers.len()));
        None
    })
}

/// The result of `call`, whose commands are those that are expected. The events of a new object have
/// handle 1.
fn with<R>(expected: impl IntoIterator<Item = Expected>, call: impl FnOnce(&File) -> R) -> R {
    let (file, ..) = no_device();
    for numbers in [&file.cqs, &file.srqs, &file.qps] {
        let first = Number::from_raw(u32::MAX);
        numbers.with(|_| Ok(()), |()| first).unwrap();
    }
    of(&file, expected, call)
}

/// As [`with`], of a file.
fn of<R>(
    file: &File,
    expected: impl IntoIterator<Item = Expected>,
    call: impl FnOnce(&File) -> R,
) -> R {
    EXPECTED.set(Some(expected.into_iter().collect()));
    let result = call(file);
    assert!(EXPECTED.take().is_some_and(|left| left.is_empty()));
    result
}

/// A command with a request to the core.
fn asks(number: u32, request: &impl Plain) -> Expected {
    Expected {
        requests: vec![
            (UVERBS_ATTR_CORE_IN, bytes_of(request).to_vec()),
            (
                UVERBS_ATTR_WRITE_CMD,
                u64::from(number).to_ne_bytes().to_vec(),
            ),
        ],
        answers: Vec::new(),
    }
}

impl Expected {
    /// It has a request to the driver too.
    fn of_driver(mut self, request: &impl Plain) -> Self {
        self.requests
            .push((UVERBS_ATTR_UHW_IN, bytes_of(request).to_vec()));
        self.requests.sort();
        self
    }

    /// The core answers.
    fn answered(mut self, answer: &impl Plain) -> Self {
        self.answers
            .push((UVERBS_ATTR_CORE_OUT, bytes_of(answer).to_vec()));
        self
    }

    /// The driver answers.
    fn made(mut self, answer: &impl Plain) -> Self {
        self.answers
            .push((UVERBS_ATTR_UHW_OUT, bytes_of(answer).to_vec()));
        self
    }
}

const OBJECT: Object = Object {
    handle: 0x11,
    number: Number::from_raw(0x1_0002),
};

fn port(change: impl FnOnce(&mut ib_uverbs_query_port_resp)) -> Expected {
    let mut answer = ib_uverbs_query_port_resp::default();
    change(&mut answer);
    let request = ib_uverbs_query_port {
        port_num: 1,
        ..Default::default()
    };
    asks(IB_USER_VERBS_CMD_QUERY_PORT, &request).answered(&answer)
}

#[test]
fn limits_are_of_the_device_the_port_and_the_driver() {
    let device = ib_uverbs_query_device_resp {
        fw_ver: 1,
        max_qp: 2,
        max_cq: 3,
        max_srq: 4,
        max_mr: 5,
        max_pd: 6,
        max_mr_size: 7,
        ..Default::default()
    };
    let (mut file, ..) = no_device();
    file.vectors = 10;
    file.limits = qpair_uresp_alloc_ucontext {
        max_sq_blocks: 11,
        max_rq_depth: 12,
        max_cq_depth: 13,
        max_send_sge: 14,
        max_recv_sge: 15,
        max_inline: 16,
        epoch: 17,
        page: 18,
    };
    for (state, link_up) in [(PORT_ACTIVE, true), (PORT_ACTIVE - 1, false)] {
        let query = ib_uverbs_query_device::default();
        let commands = [
            asks(IB_USER_VERBS_CMD_QUERY_DEVICE, &query).answered(&device),
            port(|port| (port.max_msg_sz, port.lid, port.state) = (8, 9, state)),
        ];
        let expected = Attributes {
            model: 1,
            max_qp: 2,
            max_cq: 3,
            max_srq: 4,
            max_mr: 5,
            max_pd: 6,
            max_mr_bytes: 7,
            max_message: 8,
            lid: 9,
            vectors: 10,
            max_sq_blocks: 11,
            max_rq_depth: 12,
            max_cq_depth: 13,
            max_send_sge: 14,
            max_recv_sge: 15,
            max_inline: 16,
            epoch: 17,
            doorbell_page: 18,
            link_up,
        };
        assert_eq!(of(&file, commands, File::query), Ok(expected));
    }
}

#[test]
fn a_domain_has_a_handle() {
    let made = asks(IB_USER_VERBS_CMD_ALLOC_PD, &ib_uverbs_alloc_pd::default())
        .answered(&ib_uverbs_alloc_pd_resp { pd_handle: 3 });
    assert_eq!(with([made], File::alloc_pd), Ok(3));
    let freed = ib_uverbs_dealloc_pd { pd_handle: 3 };
    let freed = asks(IB_USER_VERBS_CMD_DEALLOC_PD, &freed);
    assert_eq!(with([freed], |file| file.dealloc_pd(3)), Ok(()));
}

#[test]
fn a_cq_has_a_ring() {
    let cq = NewCq {
        buffer: 0x1000,
        buffer_bytes: 0x2000,
        depth: 64,
        vector: 2,
        eventfd: None,
    };
    let (file, ..) = no_device();
    for eventfd in [None, Some(file.fd.as_fd())] {
        let core = ib_uverbs_create_cq {
            user_handle: 1,
            cqe: 64,
            comp_vector: 2,
            comp_channel: NO_COMP_CHANNEL,
            ..Default::default()
        };
        let driver = qpair_ureq_create_cq {
            buffer: 0x1000,
            buffer_bytes: 0x2000,
            eventfd: eventfd.map_or(QPAIR_NO_COMPLETION_FD, |fd| fd.as_raw_fd()),
            reserved: 0,
        };
        let answer = ib_uverbs_create_cq_resp {
            cq_handle: OBJECT.handle,
            cqe: 0,
        };
        let made = qpair_uresp_create_cq {
            number: OBJECT.number.raw(),
            depth: 128,
        };
        let create = asks(IB_USER_VERBS_CMD_CREATE_CQ, &core).of_driver(&driver);
        let destroy = ib_uverbs_destroy_cq {
            cq_handle: OBJECT.handle,
            ..Default::default()
        };
        let expected = [
            create.answered(&answer).made(&made),
            asks(IB_USER_VERBS_CMD_DESTROY_CQ, &destroy)
                .answered(&ib_uverbs_destroy_cq_resp::default()),
        ];
        with(expected, |file| {
            let made = file.create_cq(&NewCq { eventfd, ..cq });
            assert_eq!(made, Ok((OBJECT, 128)));
            assert_eq!(file.cqs.get(1), Some(OBJECT.number));
            assert_eq!(file.destroy_cq(OBJECT), Ok(()));
            assert_eq!(file.cqs.get(1), None);
        });
    }
}

#[test]
fn an_srq_has_a_ring_and_a_limit() {
    let srq = NewSrq {
        pd: 3,
        buffer: 0x1000,
        buffer_bytes: 0x2000,
        depth: 64,
        stride: 1,
    };
    let core = ib_uverbs_create_srq {
        user_handle: 1,
        pd_handle: 3,
        max_wr: 1,
        max_sge: 1,
        ..Default::default()
    };
    let driver = qpair_ureq_create_srq {
        buffer: 0x1000,
        buffer_bytes: 0x2000,
        depth: 64,
        stride: 1,
    };
    let answer = ib_uverbs_create_srq_resp {
        srq_handle: OBJECT.handle,
        ..Default::default()
    };
    let made = qpair_uresp_create_srq {
        number: OBJECT.number.raw(),
        depth: 64,
    };
    let arm = ib_uverbs_modify_srq {
        srq_handle: OBJECT.handle,
        attr_mask: srq_mask::LIMIT,
        srq_limit: 7,
        ..Default::default()
    };
    let query = ib_uverbs_query_srq {
        srq_handle: OBJECT.handle,
        ..Default::default()
    };
    let limit = ib_uverbs_query_srq_resp {
        srq_limit: 7,
        ..Default::default()
    };
    let destroy = ib_uverbs_destroy_srq {
        srq_handle: OBJECT.handle,
        ..Default::default()
    };
    let create = asks(IB_USER_VERBS_CMD_CREATE_SRQ, &core).of_driver(&driver);
    let expected = [
        create.answered(&answer).made(&made),
        asks(IB_USER_VERBS_CMD_MODIFY_SRQ, &arm),
        asks(IB_USER_VERBS_CMD_QUERY_SRQ, &query).answered(&limit),
        asks(IB_USER_VERBS_CMD_DESTROY_SRQ, &destroy)
            .answered(&ib_uverbs_destroy_srq_resp::default()),
    ];
    with(expected, |file| {
        assert_eq!(file.create_srq(&srq), Ok(OBJECT));
        assert_eq!(file.arm_srq(OBJECT, 7), Ok(()));
        assert_eq!(file.query_srq(OBJECT), Ok(7));
        assert_eq!(file.srqs.get(1), Some(OBJECT.number));
        assert_eq!(file.destroy_srq(OBJECT), Ok(()));
        assert_eq!(file.srqs.get(1), None);
    });
}

#[test]
fn a_queue_pair_has_two_rings_or_an_srq() {
    let (rc, uc) = (Service::Rc, Service::Uc);
    let object = |handle| Object { handle, ..OBJECT };
    let cases = [
        (None, QpType::Connected(rc), IB_UVERBS_QPT_RC),
        (Some(object(6)), QpType::Connected(uc), IB_UVERBS_QPT_UC),
        (None, QpType::Ud, IB_UVERBS_QPT_UD),
    ];
    for (srq, qp_type, code) in cases {
        let qp = NewQp {
            pd: 3,
            send_cq: object(4),
            recv_cq: object(5),
            sq_buffer: 0x1000,
            sq_buffer_bytes: 0x2000,
            rq_buffer: 0x3000,
            rq_buffer_bytes: 0x4000,
            sq_blocks: 64,
            rq_depth: 32,
            rq_stride: 1,
            srq,
            qp_type,
        };
        let core = ib_uverbs_create_qp {
            user_handle: 1,
            pd_handle: 3,
            send_cq_handle: 4,
            recv_cq_handle: 5,
            srq_handle: srq.map_or(0, |_| 6),
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            qp_type: code,
            is_srq: srq.is_some().into(),
            ..Default::default()
        };
        let driver = qpair_ureq_create_qp {
            sq_buffer: 0x1000,
            sq_buffer_bytes: 0x2000,
            rq_buffer: 0x3000,
            rq_buffer_bytes: 0x4000,
            sq_blocks: 64,
            rq_depth: 32,
            rq_stride: 1,
            reserved: 0,
        };
        let answer = ib_uverbs_create_qp_resp {
            qp_handle: OBJECT.handle,
            ..Default::default()
        };
        let made = qpair_uresp_create_qp {
            number: OBJECT.number.raw(),
            ..Default::default()
        };
        let create = asks(IB_USER_VERBS_CMD_CREATE_QP, &core).of_driver(&driver);
        let destroy = ib_uverbs_destroy_qp {
            qp_handle: OBJECT.handle,
            ..Default::default()
        };
        let expected = [
            create.answered(&answer).made(&made),
            asks(IB_USER_VERBS_CMD_DESTROY_QP, &destroy)
                .answered(&ib_uverbs_destroy_qp_resp::default()),
        ];
        with(expected, |file| {
            assert_eq!(file.create_qp(&qp), Ok(OBJECT));
            assert_eq!(file.qps.get(1), Some(OBJECT.number));
            assert_eq!(file.destroy_qp(OBJECT), Ok(()));
            assert_eq!(file.qps.get(1), None);
        });
    }
}

#[test]
fn a_change_has_the_mtu_of_the_port_if_it_has_a_path() {
    let at = ResetAt {
        send_cq: 7,
        recv_cq: 8,
    };
    let made = qpair_uresp_modify_qp {
        send_cq_index: 7,
        recv_cq_index: 8,
    };
    let rtr = Change::Rtr {
        peer: Number::from_raw(9),
        at: Address::Lid(10),
        service: Service::Rc,
    };
    for (change, mtu) in [(Change::Reset, 0), (rtr, 3)] {
        let core = ib_uverbs_modify_qp {
            qp_handle: OBJECT.handle,
            path_mtu: mtu,
            ..modify(change)
        };
        let asked = asks(IB_USER_VERBS_CMD_MODIFY_QP, &core).made(&made);
        let of_port = (mtu != 0).then(|| port(|port| port.active_mtu = mtu));
        let changed = with(of_port.into_iter().chain([asked]), |file| {
            file.modify_qp(OBJECT, change)
        });
        assert_eq!(changed, Ok(at));
    }
}

#[test]
fn a_queue_pair_is_as_the_core_has_it() {
    let query = ib_uverbs_query_qp {
        qp_handle: OBJECT.handle,
        attr_mask: qp_mask::STATE,
        ..Default::default()
    };
    let answer = ib_uverbs_query_qp_resp {
        qp_state: qp_state::RTS,
        dest_qp_num: 9,
        qp_access_flags: 10,
        retry_cnt: 3,
        rnr_retry: 5,
        qkey: 11,
        ..Default::default()
    };
    let found = with(
        [asks(IB_USER_VERBS_CMD_QUERY_QP, &query).answered(&answer)],
        |file| file.query_qp(OBJECT),
    );
    let expected = QpAttributes {
        state: QpState::Rts,
        peer: Number::from_raw(9),
        access: 10,
        retries: Retries {
            answer: 3,
            receive: 5,
        },
        q_key: 11,
    };
    assert_eq!(found, Ok(expected));
}

#[test]
fn an_address_handle_has_what_requests_need() {
    let to = Address::Gid {
        gid: [7; 16],
        source: 2,
    };
    let made = qpair_uresp_create_ah {
        gid: [8; 16],
        source: 9,
        mac: [1, 2, 3, 4, 5, 6],
        reserved: 0,
    };
    let destroy = ib_uverbs_destroy_ah { ah_handle: 0x11 };
    let expected = [
        asks(IB_USER_VERBS_CMD_CREATE_AH, &address(3, to))
            .answered(&ib_uverbs_create_ah_resp { ah_handle: 0x11 })
            .made(&made),
        asks(IB_USER_VERBS_CMD_DESTROY_AH, &destroy),
    ];
    with(expected, |file| {
        let resolved = Resolved {
            handle: 0x11,
            gid: [8; 16],
            source: 9,
            mac: made.mac,
        };
        assert_eq!(file.create_ah(3, to), Ok(resolved));
        assert_eq!(file.destroy_ah(0x11), Ok(()));
    });
}

#[test]
fn a_region_has_keys() {
    let mr = NewMr {
        pd: 3,
        addr: 0x1000,
        bytes: 0x2000,
        access: 7,
    };
    let register = ib_uverbs_reg_mr {
        start: 0x1000,
        length: 0x2000,
        hca_va: 0x1000,
        pd_handle: 3,
        access_flags: 7,
        ..Default::default()
    };
    let answer = ib_uverbs_reg_mr_resp {
        mr_handle: 4,
        lkey: 5,
        rkey: 6,
    };
    let expected = [
        asks(IB_USER_VERBS_CMD_REG_MR, &register).answered(&answer),
        asks(
            IB_USER_VERBS_CMD_DEREG_MR,
            &ib_uverbs_dereg_mr { mr_handle: 4 },
        ),
    ];
    with(expected, |file| {
        let keys = Keys {
            handle: 4,
            lkey: 5,
            rkey: 6,
        };
        assert_eq!(file.reg_mr(&mr), Ok(keys));
        assert_eq!(file.dereg_mr(4), Ok(()));
    });
}
