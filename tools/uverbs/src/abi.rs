// SPDX-License-Identifier: GPL-2.0
//! Structures and constants of the kernel's `rdma/ib_user_verbs.h` and `rdma/ib_user_ioctl_cmds.h`,
//! with the names that these have. The headers document them; `tests/layout.rs` compares both.

#![allow(missing_docs, non_camel_case_types)]

use std::mem::{offset_of, size_of};

/// Bytes that the kernel reads or writes.
///
/// # Safety
///
/// Any bytes are a value, and a value has no padding.
pub unsafe trait Plain: Copy {}

// SAFETY: It has no bytes.
unsafe impl Plain for () {}

/// Where the fields of a structure are.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub name: &'static str,
    pub bytes: usize,
    /// Name, offset and bytes of each.
    pub fields: &'static [(&'static str, usize, usize)],
}

macro_rules! structures {
    ($( $name:ident { $( $field:ident: $type:ty, )* } )*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $name { $( pub $field: $type, )* }

            const _: () = assert!(size_of::<$name>() == 0 $( + size_of::<$type>() )*, "padding");

            // SAFETY: Integers, and no padding by the assertion.
            unsafe impl Plain for $name {}
        )*

        /// The layout of each structure, for the test.
        pub const LAYOUTS: &[Layout] = &[ $( Layout {
            name: stringify!($name),
            bytes: size_of::<$name>(),
            fields: &[ $( (stringify!($field), offset_of!($name, $field), size_of::<$type>()) ),* ],
        } ),* ];
    };
}

macro_rules! constants {
    ($( $name:ident: $type:ty = $value:expr; )*) => {
        $( pub const $name: $type = $value; )*

        /// The value of each constant, for the test.
        pub const CONSTANTS: &[(&str, u64)] = &[ $( (stringify!($name), $name as u64) ),* ];
    };
}

constants! {
    IB_USER_VERBS_CMD_QUERY_DEVICE: u32 = 1;
    IB_USER_VERBS_CMD_QUERY_PORT: u32 = 2;
    IB_USER_VERBS_CMD_ALLOC_PD: u32 = 3;
    IB_USER_VERBS_CMD_DEALLOC_PD: u32 = 4;
    IB_USER_VERBS_CMD_CREATE_AH: u32 = 5;
    IB_USER_VERBS_CMD_DESTROY_AH: u32 = 8;
    IB_USER_VERBS_CMD_REG_MR: u32 = 9;
    IB_USER_VERBS_CMD_REREG_MR: u32 = 11;
    IB_USER_VERBS_CMD_DEREG_MR: u32 = 13;
    IB_USER_VERBS_CMD_ALLOC_MW: u32 = 14;
    IB_USER_VERBS_CMD_DEALLOC_MW: u32 = 16;
    IB_USER_VERBS_CMD_CREATE_CQ: u32 = 18;
    IB_USER_VERBS_CMD_DESTROY_CQ: u32 = 20;
    IB_USER_VERBS_CMD_CREATE_QP: u32 = 24;
    IB_USER_VERBS_CMD_QUERY_QP: u32 = 25;
    IB_USER_VERBS_CMD_MODIFY_QP: u32 = 26;
    IB_USER_VERBS_CMD_DESTROY_QP: u32 = 27;
    IB_USER_VERBS_CMD_ATTACH_MCAST: u32 = 30;
    IB_USER_VERBS_CMD_DETACH_MCAST: u32 = 31;
    IB_USER_VERBS_CMD_CREATE_SRQ: u32 = 32;
    IB_USER_VERBS_CMD_MODIFY_SRQ: u32 = 33;
    IB_USER_VERBS_CMD_QUERY_SRQ: u32 = 34;
    IB_USER_VERBS_CMD_DESTROY_SRQ: u32 = 35;
    IB_UVERBS_QPT_RC: u8 = 2;
    IB_UVERBS_QPT_UC: u8 = 3;
    IB_UVERBS_QPT_UD: u8 = 4;
    IB_UVERBS_ACCESS_LOCAL_WRITE: u32 = 1;
    IB_UVERBS_ACCESS_REMOTE_WRITE: u32 = 2;
    IB_UVERBS_ACCESS_REMOTE_READ: u32 = 4;
    IB_UVERBS_ACCESS_REMOTE_ATOMIC: u32 = 8;
    IB_UVERBS_ACCESS_MW_BIND: u32 = 16;
    RDMA_VERBS_IOCTL: u32 = 3 << 30 | 24 << 16 | 0x1b << 8 | 1;
    UVERBS_OBJECT_DEVICE: u16 = 0;
    UVERBS_OBJECT_ASYNC_EVENT: u16 = 16;
    UVERBS_METHOD_INVOKE_WRITE: u16 = 0;
    UVERBS_METHOD_GET_CONTEXT: u16 = 3;
    UVERBS_METHOD_ASYNC_EVENT_ALLOC: u16 = 0;
    UVERBS_ATTR_CORE_IN: u16 = 0;
    UVERBS_ATTR_CORE_OUT: u16 = 1;
    UVERBS_ATTR_WRITE_CMD: u16 = 2;
    UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS: u16 = 0;
    UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE: u16 = 0;
    UVERBS_ATTR_UHW_IN: u16 = 0x1000;
    UVERBS_ATTR_UHW_OUT: u16 = 0x1001;
    UVERBS_ATTR_F_MANDATORY: u16 = 1;
}

/// No completion channel of the core.
pub const NO_COMP_CHANNEL: i32 = -1;

/// `enum ib_mr_rereg_flags` of the kernel's `rdma/ib_verbs.h`, which user space does not have.
pub mod rereg {
    pub const TRANS: u32 = 1 << 0;
    pub const PD: u32 = 1 << 1;
    pub const ACCESS: u32 = 1 << 2;
}

/// `enum ib_qp_state` of the kernel's `rdma/ib_verbs.h`, which user space does not have.
pub mod qp_state {
    pub const RESET: u8 = 0;
    pub const INIT: u8 = 1;
    pub const RTR: u8 = 2;
    pub const RTS: u8 = 3;
    pub const SQD: u8 = 4;
    pub const SQE: u8 = 5;
    pub const ERR: u8 = 6;
}

/// `enum ib_qp_attr_mask`, from the same header.
pub mod qp_mask {
    pub const STATE: u32 = 1 << 0;
    pub const CUR_STATE: u32 = 1 << 1;
    pub const ACCESS_FLAGS: u32 = 1 << 3;
    pub const PKEY_INDEX: u32 = 1 << 4;
    pub const PORT: u32 = 1 << 5;
    pub const QKEY: u32 = 1 << 6;
    pub const AV: u32 = 1 << 7;
    pub const PATH_MTU: u32 = 1 << 8;
    pub const TIMEOUT: u32 = 1 << 9;
    pub const RETRY_CNT: u32 = 1 << 10;
    pub const RNR_RETRY: u32 = 1 << 11;
    pub const RQ_PSN: u32 = 1 << 12;
    pub const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub const MIN_RNR_TIMER: u32 = 1 << 15;
    pub const SQ_PSN: u32 = 1 << 16;
    pub const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub const DEST_QPN: u32 = 1 << 20;

    /// What the core requires with the change from RESET to INIT.
    pub const TO_INIT: u32 = STATE | PKEY_INDEX | PORT | ACCESS_FLAGS;
    /// From INIT to RTR.
    pub const TO_RTR: u32 =
        STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
    /// From RTR to RTS.
    pub const TO_RTS: u32 = STATE | TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC;
    /// From INIT to RTR, of UC.
    pub const UC_TO_RTR: u32 = STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN;
    /// From RTR to RTS, of UC.
    pub const UC_TO_RTS: u32 = STATE | SQ_PSN;
    /// From RESET to INIT, of UD; to RTR it requires nothing.
    pub const UD_TO_INIT: u32 = STATE | PKEY_INDEX | PORT | QKEY;
    /// From RTR to RTS, of UD.
    pub const UD_TO_RTS: u32 = STATE | SQ_PSN;
}

/// `enum ib_event_type`, from the same header.
pub mod event {
    pub const CQ_ERR: u32 = 0;
    pub const QP_FATAL: u32 = 1;
    pub const QP_REQ_ERR: u32 = 2;
    pub const QP_ACCESS_ERR: u32 = 3;
    pub const DEVICE_FATAL: u32 = 8;
    pub const PORT_ACTIVE: u32 = 9;
    pub const PORT_ERR: u32 = 10;
    pub const SRQ_ERR: u32 = 14;
    pub const SRQ_LIMIT_REACHED: u32 = 15;
    pub const QP_LAST_WQE_REACHED: u32 = 16;
}

/// `enum ib_srq_attr_mask`, from the same header.
pub mod srq_mask {
    pub const MAX_WR: u32 = 1 << 0;
    pub const LIMIT: u32 = 1 << 1;
}

/// `enum ib_port_state`: the link is up.
pub const PORT_ACTIVE: u8 = 4;
/// `enum ib_mtu`: 4096 bytes.
pub const MTU_4096: u8 = 5;

structures! {
    ib_uverbs_attr {
        attr_id: u16,
        len: u16,
        flags: u16,
        attr_data: u16,
        data: u64,
    }
    ib_uverbs_ioctl_hdr {
        length: u16,
        object_id: u16,
        method_id: u16,
        num_attrs: u16,
        reserved1: u64,
        driver_id: u32,
        reserved2: u32,
    }
    ib_uverbs_query_device {
        response: u64,
    }
    ib_uverbs_query_device_resp {
        fw_ver: u64,
        node_guid: u64,
        sys_image_guid: u64,
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: u32,
        max_qp_wr: u32,
        device_cap_flags: u32,
        max_sge: u32,
        max_sge_rd: u32,
        max_cq: u32,
        max_cqe: u32,
        max_mr: u32,
        max_pd: u32,
        max_qp_rd_atom: u32,
        max_ee_rd_atom: u32,
        max_res_rd_atom: u32,
        max_qp_init_rd_atom: u32,
        max_ee_init_rd_atom: u32,
        atomic_cap: u32,
        max_ee: u32,
        max_rdd: u32,
        max_mw: u32,
        max_raw_ipv6_qp: u32,
        max_raw_ethy_qp: u32,
        max_mcast_grp: u32,
        max_mcast_qp_attach: u32,
        max_total_mcast_qp_attach: u32,
        max_ah: u32,
        max_fmr: u32,
        max_map_per_fmr: u32,
        max_srq: u32,
        max_srq_wr: u32,
        max_srq_sge: u32,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
        reserved: [u8; 4],
    }
    ib_uverbs_query_port {
        response: u64,
        port_num: u8,
        reserved: [u8; 7],
    }
    ib_uverbs_query_port_resp {
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        gid_tbl_len: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        state: u8,
        max_mtu: u8,
        active_mtu: u8,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        reserved: u8,
    }
    ib_uverbs_alloc_pd {
        response: u64,
    }
    ib_uverbs_alloc_pd_resp {
        pd_handle: u32,
    }
    ib_uverbs_dealloc_pd {
        pd_handle: u32,
    }
    ib_uverbs_global_route {
        dgid: [u8; 16],
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        reserved: u8,
    }
    ib_uverbs_ah_attr {
        grh: ib_uverbs_global_route,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
        reserved: u8,
    }
    ib_uverbs_create_ah {
        response: u64,
        user_handle: u64,
        pd_handle: u32,
        reserved: u32,
        attr: ib_uverbs_ah_attr,
    }
    ib_uverbs_create_ah_resp {
        ah_handle: u32,
    }
    ib_uverbs_destroy_ah {
        ah_handle: u32,
    }
    ib_uverbs_attach_mcast {
        gid: [u8; 16],
        qp_handle: u32,
        mlid: u16,
        reserved: u16,
    }
    ib_uverbs_detach_mcast {
        gid: [u8; 16],
        qp_handle: u32,
        mlid: u16,
        reserved: u16,
    }
    ib_uverbs_reg_mr {
        response: u64,
        start: u64,
        length: u64,
        hca_va: u64,
        pd_handle: u32,
        access_flags: u32,
    }
    ib_uverbs_reg_mr_resp {
        mr_handle: u32,
        lkey: u32,
        rkey: u32,
    }
    ib_uverbs_rereg_mr {
        response: u64,
        mr_handle: u32,
        flags: u32,
        start: u64,
        length: u64,
        hca_va: u64,
        pd_handle: u32,
        access_flags: u32,
    }
    ib_uverbs_rereg_mr_resp {
        lkey: u32,
        rkey: u32,
    }
    ib_uverbs_dereg_mr {
        mr_handle: u32,
    }
    ib_uverbs_alloc_mw {
        response: u64,
        pd_handle: u32,
        mw_type: u8,
        reserved: [u8; 3],
    }
    ib_uverbs_alloc_mw_resp {
        mw_handle: u32,
        rkey: u32,
    }
    ib_uverbs_dealloc_mw {
        mw_handle: u32,
    }
    ib_uverbs_create_cq {
        response: u64,
        user_handle: u64,
        cqe: u32,
        comp_vector: u32,
        comp_channel: i32,
        reserved: u32,
    }
    ib_uverbs_create_cq_resp {
        cq_handle: u32,
        cqe: u32,
    }
    ib_uverbs_destroy_cq {
        response: u64,
        cq_handle: u32,
        reserved: u32,
    }
    ib_uverbs_destroy_cq_resp {
        comp_events_reported: u32,
        async_events_reported: u32,
    }
    ib_uverbs_qp_dest {
        dgid: [u8; 16],
        flow_label: u32,
        dlid: u16,
        reserved: u16,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }
    ib_uverbs_create_qp {
        response: u64,
        user_handle: u64,
        pd_handle: u32,
        send_cq_handle: u32,
        recv_cq_handle: u32,
        srq_handle: u32,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        sq_sig_all: u8,
        qp_type: u8,
        is_srq: u8,
        reserved: u8,
    }
    ib_uverbs_create_qp_resp {
        qp_handle: u32,
        qpn: u32,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        reserved: u32,
    }
    ib_uverbs_query_qp {
        response: u64,
        qp_handle: u32,
        attr_mask: u32,
    }
    ib_uverbs_query_qp_resp {
        dest: ib_uverbs_qp_dest,
        alt_dest: ib_uverbs_qp_dest,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        qp_state: u8,
        cur_qp_state: u8,
        path_mtu: u8,
        path_mig_state: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        sq_sig_all: u8,
        reserved: [u8; 5],
    }
    ib_uverbs_modify_qp {
        dest: ib_uverbs_qp_dest,
        alt_dest: ib_uverbs_qp_dest,
        qp_handle: u32,
        attr_mask: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        qp_state: u8,
        cur_qp_state: u8,
        path_mtu: u8,
        path_mig_state: u8,
        en_sqd_async_notify: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        reserved: [u8; 2],
    }
    ib_uverbs_destroy_qp {
        response: u64,
        qp_handle: u32,
        reserved: u32,
    }
    ib_uverbs_destroy_qp_resp {
        events_reported: u32,
    }
    ib_uverbs_create_srq {
        response: u64,
        user_handle: u64,
        pd_handle: u32,
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }
    ib_uverbs_create_srq_resp {
        srq_handle: u32,
        max_wr: u32,
        max_sge: u32,
        srqn: u32,
    }
    ib_uverbs_modify_srq {
        srq_handle: u32,
        attr_mask: u32,
        max_wr: u32,
        srq_limit: u32,
    }
    ib_uverbs_query_srq {
        response: u64,
        srq_handle: u32,
        reserved: u32,
    }
    ib_uverbs_query_srq_resp {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
        reserved: u32,
    }
    ib_uverbs_destroy_srq {
        response: u64,
        srq_handle: u32,
        reserved: u32,
    }
    ib_uverbs_destroy_srq_resp {
        events_reported: u32,
    }
    ib_uverbs_async_event_desc {
        element: u64,
        event_type: u32,
        reserved: u32,
    }
}
