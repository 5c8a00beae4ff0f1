// SPDX-License-Identifier: GPL-2.0

//! Attributes of queue pairs: the core's rules of states, and what is kept for queries.

use super::{
    super::{
        ah,
        port::Gid,
        prelude::*, //
    },
    Operations,
    QpChange,
    QpPath,
    QpState, //
};
use core::ptr;
use kernel::{
    new_mutex,
    sync::Mutex, //
};

impl QpState {
    fn from_raw(raw: bindings::ib_qp_state) -> Result<Self> {
        Ok(match raw {
            bindings::ib_qp_state_IB_QPS_RESET => Self::Reset,
            bindings::ib_qp_state_IB_QPS_INIT => Self::Init,
            bindings::ib_qp_state_IB_QPS_RTR => Self::Rtr,
            bindings::ib_qp_state_IB_QPS_RTS => Self::Rts,
            bindings::ib_qp_state_IB_QPS_SQD => Self::Sqd,
            bindings::ib_qp_state_IB_QPS_SQE => Self::Sqe,
            bindings::ib_qp_state_IB_QPS_ERR => Self::Error,
            _ => return Err(EINVAL),
        })
    }
}

/// Attributes that a command may change, of `IB_QP_ATTR_STANDARD_BITS`, which bindgen cannot read.
const STANDARD: u32 = (1 << 21) - 1;

/// The bits of a PSN.
const PSN: u32 = (1 << 24) - 1;

/// Structures of numbers, and of pointers that are not followed.
///
/// # Safety
///
/// A copy of the bytes is a copy of the value.
unsafe trait Plain: Sized {
    /// The same bytes again; pointers are not followed.
    fn copied(&self) -> Self {
        // SAFETY: By the promise of the trait.
        unsafe { ptr::read(self) }
    }
}

// SAFETY: As the core copies them itself.
unsafe impl Plain for bindings::ib_qp_cap {}

// SAFETY: As above.
unsafe impl Plain for bindings::ib_qp_attr {}

// SAFETY: As above.
unsafe impl Plain for bindings::rdma_ah_attr {}

/// The way of frames to a peer at a port of RoCE.
fn path(attr: &bindings::ib_qp_attr) -> Option<QpPath> {
    use bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE as ROCE;
    let to = &attr.ah_attr;
    // 256 bytes are 1. CAST: A small number; PSNs have 24 bits.
    (to.type_ == ROCE).then(|| QpPath {
        mac: ah::mac(to),
        source: to.grh.sgid_index,
        log_mtu: (attr.path_mtu as u8).wrapping_add(7),
        traffic_class: to.grh.traffic_class,
        hop_limit: to.grh.hop_limit,
        flow_label: to.grh.flow_label & 0xfffff,
        psn: attr.rq_psn & PSN,
        reads: attr.max_dest_rd_atomic,
    })
}

/// The attributes of a queue pair that change.
#[derive(Default)]
struct Last {
    attr: bindings::ib_qp_attr,
    /// The groups that it is a member of, for the core. The device ends memberships in RESET.
    groups: KVec<Gid>,
}

/// The attributes of a queue pair as they were last set.
#[pin_data]
pub(super) struct Kept {
    qp_type: bindings::ib_qp_type,
    cap: bindings::ib_qp_cap,
    signal_all: bindings::ib_sig_type,
    /// Held over each change, and over no copy from or to a process: a query waits for it.
    #[pin]
    last: Mutex<Last>,
}

/// Copies the attributes that `mask` names.
macro_rules! copy {
    ($to:ident, $from:ident, $mask:ident, $($bit:ident: $($field:ident),+;)+) => {
        $(if $mask & bindings::$bit != 0 {
            $($to.$field = $from.$field;)+
        })+
    };
}

impl Kept {
    /// Of a queue pair that is made with `attr`. Sleeps.
    pub(super) fn new(attr: &bindings::ib_qp_init_attr) -> Result<Pin<KBox<Self>>> {
        let qp_type = attr.qp_type;
        let (cap, signal_all) = (attr.cap.copied(), attr.sq_sig_type);
        KBox::pin_init(
            pin_init!(Self {
                qp_type,
                cap,
                signal_all,
                last <- new_mutex!(Last::default(), "rdma::Kept"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Changes what `mask` names of `attr`, if the core's rules allow it in the state in which `qp` is.
    /// Before a change from RESET to INIT, it becomes a member of its groups again.
    ///
    /// # Errors
    ///
    /// `EINVAL`: not allowed, or packets of more payload than `mtu`. `EOPNOTSUPP`: attributes of newer
    /// commands. Those of the operations; if an attach fails, it stays in RESET, and the next change
    /// tries again.
    pub(super) fn modify<T: Driver>(
        &self,
        qp: &T::Qp,
        attr: &bindings::ib_qp_attr,
        mask: u32,
        mtu: bindings::ib_mtu,
    ) -> Result<<T::Qp as Operations<T>>::Modified> {
        use bindings::{
            ib_qp_attr_mask_IB_QP_ACCESS_FLAGS as ACCESS,
            ib_qp_attr_mask_IB_QP_CUR_STATE as CURRENT,
            ib_qp_attr_mask_IB_QP_DEST_QPN as PEER,
            ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY as NOTIFY,
            ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER as RNR_TIMER,
            ib_qp_attr_mask_IB_QP_PATH_MTU as PATH_MTU,
            ib_qp_attr_mask_IB_QP_QKEY as Q_KEY,
            ib_qp_attr_mask_IB_QP_RETRY_CNT as RETRY,
            ib_qp_attr_mask_IB_QP_RNR_RETRY as RNR_RETRY,
            ib_qp_attr_mask_IB_QP_SQ_PSN as SQ_PSN,
            ib_qp_attr_mask_IB_QP_STATE as STATE,
            ib_qp_attr_mask_IB_QP_TIMEOUT as TIMEOUT, //
        };
        let has = |bit: u32| mask & bit != 0;

        if mask & !STANDARD != 0 {
            return Err(EOPNOTSUPP);
        }
        let mut last = self.last.lock();
        let Last { attr: kept, groups } = &mut *last;
        let from = if has(CURRENT) {
            QpState::from_raw(attr.cur_qp_state)?
        } else {
            qp.query()?.0
        };
        let to = if has(STATE) {
            QpState::from_raw(attr.qp_state)?
        } else {
            from
        };
        // CAST: The discriminants.
        // SAFETY: Reads a table. Any values may be given.
        let allowed =
            unsafe { bindings::ib_modify_qp_is_ok(from as u32, to as u32, self.qp_type, mask) };
        if !allowed || has(PATH_MTU) && attr.path_mtu > mtu {
            return Err(EINVAL);
        }
        if from == QpState::Reset && to == QpState::Init {
            groups
                .iter()
                .try_for_each(|group| qp.attach_again(*group))?;
        }
        let stays = from == to && matches!(to, QpState::Init | QpState::Rts | QpState::Sqd);
        let connects = matches!(
            self.qp_type,
            bindings::ib_qp_type_IB_QPT_RC | bindings::ib_qp_type_IB_QPT_UC
        );
        let pick = |bit: u32, new: u8, old: u8| if has(bit) { new } else { old };
        let retries = (
            pick(RETRY, attr.retry_cnt, kept.retry_cnt),
            pick(RNR_RETRY, attr.rnr_retry, kept.rnr_retry),
        );
        let timers = (
            pick(TIMEOUT, attr.timeout, kept.timeout),
            pick(RNR_TIMER, attr.min_rnr_timer, kept.min_rnr_timer),
        );
        let changed = qp.modify(QpChange {
            state: (has(STATE) && !stays).then_some(to),
            // CAST: A set of bits.
            access: has(ACCESS).then_some(attr.qp_access_flags as u32),
            peer: has(PEER).then_some(attr.dest_qp_num),
            retries: has(RETRY | RNR_RETRY).then_some(retries),
            timers: has(TIMEOUT | RNR_TIMER).then_some(timers),
            q_key: has(Q_KEY).then_some(attr.qkey),
            drained: to == QpState::Sqd && !stays && has(NOTIFY) && attr.en_sqd_async_notify != 0,
            gid: has(bindings::ib_qp_attr_mask_IB_QP_AV)
                .then(|| ah::gid(&attr.ah_attr))
                .flatten(),
            path: has(PEER).then(|| path(attr)).flatten(),
            sends: (has(SQ_PSN) && from == QpState::Rtr && connects)
                .then_some((attr.sq_psn & PSN, attr.max_rd_atomic)),
        })?;
        if has(STATE) && to == QpState::Reset {
            *kept = Default::default();
        }
        copy! { kept, attr, mask,
            ib_qp_attr_mask_IB_QP_ACCESS_FLAGS: qp_access_flags;
            ib_qp_attr_mask_IB_QP_PKEY_INDEX: pkey_index;
            ib_qp_attr_mask_IB_QP_PORT: port_num;
            ib_qp_attr_mask_IB_QP_QKEY: qkey;
            ib_qp_attr_mask_IB_QP_PATH_MTU: path_mtu;
            ib_qp_attr_mask_IB_QP_TIMEOUT: timeout;
            ib_qp_attr_mask_IB_QP_RETRY_CNT: retry_cnt;
            ib_qp_attr_mask_IB_QP_RNR_RETRY: rnr_retry;
            ib_qp_attr_mask_IB_QP_RQ_PSN: rq_psn;
            ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC: max_rd_atomic;
            ib_qp_attr_mask_IB_QP_ALT_PATH: alt_pkey_index, alt_port_num, alt_timeout;
            ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER: min_rnr_timer;
            ib_qp_attr_mask_IB_QP_SQ_PSN: sq_psn;
            ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
            ib_qp_attr_mask_IB_QP_PATH_MIG_STATE: path_mig_state;
            ib_qp_attr_mask_IB_QP_DEST_QPN: dest_qp_num;
        }
        // The GID entries are the caller's, and are released after the command.
        if has(bindings::ib_qp_attr_mask_IB_QP_AV) {
            kept.ah_attr = attr.ah_attr.copied();
            kept.ah_attr.grh.sgid_attr = ptr::null();
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_ALT_PATH) {
            kept.alt_ah_attr = attr.alt_ah_attr.copied();
            kept.alt_ah_attr.grh.sgid_attr = ptr::null();
        }
        Ok(changed)
    }

    /// Makes it a member of a group, by `attach`.
    ///
    /// # Errors
    ///
    /// `EBUSY`: it is one. `ENOMEM`. Those of the function.
    pub(super) fn attach(&self, group: Gid, attach: impl FnOnce(Gid) -> Result) -> Result {
        let groups = &mut self.last.lock().groups;
        if groups.contains(&group) {
            return Err(EBUSY);
        }
        groups.reserve(1, GFP_KERNEL_ACCOUNT)?;
        attach(group)?;
        // Cannot fail: there is room.
        groups.push(group, GFP_KERNEL_ACCOUNT)?;
        Ok(())
    }

    /// Ends that, by `detach`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: it is no member.
    pub(super) fn detach(&self, group: Gid, detach: impl FnOnce(Gid)) -> Result {
        let groups = &mut self.last.lock().groups;
        let place = groups.iter().position(|known| *known == group);
        groups.remove(place.ok_or(EINVAL)?).map_err(|_| EINVAL)?;
        detach(group);
        Ok(())
    }

    /// Fills in the attributes, with the state that `now` returns.
    ///
    /// # Errors
    ///
    /// Those of `now`.
    pub(super) fn query(
        &self,
        attr: &mut bindings::ib_qp_attr,
        init: &mut bindings::ib_qp_init_attr,
        now: impl FnOnce() -> Result<(QpState, bool)>,
    ) -> Result {
        let last = self.last.lock();
        let (state, draining) = now()?;
        *attr = last.attr.copied();
        // CAST: The discriminant, here and below.
        attr.qp_state = state as u32;
        attr.cur_qp_state = state as u32;
        attr.sq_draining = draining.into();
        attr.cap = self.cap.copied();
        init.cap = self.cap.copied();
        init.qp_type = self.qp_type;
        init.sq_sig_type = self.signal_all;
        Ok(())
    }
}

#[kernel::macros::kunit_tests(rdma_attributes)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_that_of_a_port_of_roce() {
        let mut attr = bindings::ib_qp_attr {
            path_mtu: bindings::ib_mtu_IB_MTU_1024,
            rq_psn: u32::MAX,
            max_dest_rd_atomic: 16,
            ..Default::default()
        };
        assert!(path(&attr).is_none());
        let to = &mut attr.ah_attr;
        to.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
        (to.grh.sgid_index, to.grh.hop_limit, to.grh.traffic_class) = (3, 64, 8);
        to.grh.flow_label = u32::MAX;
        let mac = [1, 2, 3, 4, 5, 6];
        to.__bindgen_anon_1.roce.dmac = mac;
        let expected = QpPath {
            mac,
            source: 3,
            log_mtu: 10,
            traffic_class: 8,
            hop_limit: 64,
            flow_label: 0xfffff,
            psn: 0xff_ffff,
            reads: 16,
        };
        assert!(path(&attr) == Some(expected));
    }
}
