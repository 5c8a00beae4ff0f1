// SPDX-License-Identifier: GPL-2.0

//! The structures of `abi::uverbs` are those of `include/uapi/rdma/qpair-abi.h`, or the module does
//! not compile.

use crate::{
    abi::uverbs,
    kernel::rdma::header, //
};
use core::mem::{
    offset_of,
    size_of, //
};

macro_rules! same {
    ($($name:ident { $($field:ident $([$count:literal])?),* $(,)? })*) => { $(
        const _: () = {
            assert!(size_of::<uverbs::$name>() == size_of::<header::$name>());
            $( assert!(offset_of!(uverbs::$name, $field) == offset_of!(header::$name, $field)); )*
            // Names all fields.
            let uverbs::$name { $($field: _),* } =
                uverbs::$name { $($field: same!(zero $($count)?)),* };
            let _ = header::$name { $($field: same!(zero $($count)?)),* };
        };
    )* };
    (zero) => { 0 };
    (zero $count:literal) => { [0; $count] };
}

same! {
    qpair_uresp_alloc_ucontext {
        max_sq_blocks, max_rq_depth, max_cq_depth, max_send_sge, max_recv_sge, max_inline, epoch,
        page,
    }
    qpair_ureq_create_cq { buffer, buffer_bytes, eventfd, reserved }
    qpair_uresp_create_cq { number, depth }
    qpair_ureq_resize_cq { buffer, buffer_bytes }
    qpair_uresp_resize_cq { depth, end, begin, reserved }
    qpair_ureq_create_qp {
        sq_buffer, sq_buffer_bytes, rq_buffer, rq_buffer_bytes, sq_blocks, rq_depth, rq_stride,
        reserved,
    }
    qpair_uresp_create_qp { number, sq_blocks, rq_depth, reserved }
    qpair_ureq_create_srq { buffer, buffer_bytes, depth, stride }
    qpair_uresp_create_srq { number, depth }
    qpair_ureq_modify_srq { buffer, buffer_bytes, depth, reserved }
    qpair_uresp_create_ah { gid[16], source, mac[6], reserved }
    qpair_uresp_modify_qp { send_cq_index, recv_cq_index }
}

const _: () = {
    assert!(uverbs::QPAIR_UVERBS_ABI_VERSION == header::QPAIR_UVERBS_ABI_VERSION);
    assert!(uverbs::QPAIR_NO_COMPLETION_FD == header::QPAIR_NO_COMPLETION_FD);
};
