// SPDX-License-Identifier: GPL-2.0
//! Codes of completions, of commands, of events, and of a function that stopped.

#[cfg(not(MODULE))]
mod detail;

#[cfg(not(MODULE))]
pub use self::detail::Detail;

codes! {
    /// Status of a completion: those of `enum ibv_wc_status` that this device gives, with the same
    /// numbers.
    pub enum Status {
        /// The request was executed.
        Success = 0, "success";
        /// The receive's buffers are shorter than the message, a message is longer than the limit,
        /// or the SGE of an atomic is not 8 bytes long.
        LocalLength = 1, "local length error";
        /// The work request makes no sense: opcode, flags, number of blocks or SGEs, inline length;
        /// of a receive also reserved bits.
        LocalQpOperation = 2, "local QP operation error";
        /// An SGE's key or range is not a region of this PD, or not with these rights.
        LocalProtection = 4, "local protection error";
        /// The queue went to the error state before this was done.
        Flush = 5, "work request flushed";
        /// A memory window could not be bound, an FRMR not be registered, or one of them not be
        /// invalidated.
        WindowBind = 6, "memory window bind error";
        /// A WRITE with immediate of the peer that is not permitted took this receive, or a SEND whose
        /// window or FRMR cannot be invalidated.
        LocalAccess = 8, "local access error";
        /// The peer found the request invalid: its receive is too short, it allows no such
        /// operation, or the address of an atomic is not aligned.
        RemoteInvalidRequest = 9, "remote invalid request";
        /// The remote key or range is not a region of the peer's PD, or not with these rights.
        RemoteAccess = 10, "remote access error";
        /// The peer could not finish for a reason of its own.
        RemoteOperation = 11, "remote operation error";
        /// The peer is gone, not ready, or does not name this queue pair as its peer.
        RetryExceeded = 12, "retry exceeded";
        /// The peer had no receive posted for as long as the sender was willing to retry.
        RnrRetryExceeded = 13, "RNR retry exceeded";
        /// Not given by the device; for software that flushes after a reset.
        Fatal = 19, "fatal error";
        /// Of an admin command: it was refused, see the vendor detail. Of a queue pair's event: a
        /// CQ of it was overrun.
        General = 21, "general error";
    }
}

codes! {
    /// Why an admin command was refused: the vendor detail of its CQE, whose status is
    /// [`Status::General`].
    pub enum AdminError {
        /// No such command, or its number of blocks is not 1, or something in its WQE that it does
        /// not use is not zero.
        Command = 1, "unknown command";
        /// No object has this number.
        Number = 2, "no such object";
        /// All objects of this kind are in use.
        Full = 3, "no free object of this kind";
        /// Other objects use it.
        Busy = 4, "object in use";
        /// The context could not be read or written, is not aligned, or its length is wrong.
        Context = 5, "context not readable";
        /// A reserved bit of the context is not zero, or a flag, an access right or a bit of the
        /// mask is unknown.
        Reserved = 6, "reserved bit set";
        /// Depth or stride out of range.
        Depth = 7, "depth out of range";
        /// The buffer list makes no sense, cannot be read, is too short for the ring, or is longer
        /// than a region may be.
        Buffer = 8, "bad buffer list";
        /// An EQ, CQ, PD, page or vector that the context names is not there, or a queue pair names
        /// CQ 0.
        Reference = 9, "context names an object that is not there";
        /// No way from this state to that, or the peer may not be given here.
        Transition = 10, "no such state transition";
        /// Another attribute out of range.
        Attribute = 11, "attribute out of range";
        /// Failed because a test asked for it.
        Injected = 12, "failed by request";
        /// A CQ that the queue pair completes in was overrun, and can only be destroyed.
        Overrun = 13, "a completion queue of it was overrun";
    }
}

codes! {
    /// Kind of an event.
    pub enum Event {
        /// The CQ has completions that were asked for.
        Completion = 1, "completion";
        /// The CQ had no room, or its memory could not be written; its queue pairs are in the error
        /// state.
        CqOverrun = 2, "CQ overrun";
        /// The queue pair went to the error state for a cause that no completion reports; `code` has
        /// the status.
        QpFatal = 3, "QP fatal";
        /// Doorbells were written to this page that make no sense.
        DoorbellViolation = 4, "doorbell violation";
        /// The function stopped; `code` has the cause.
        DeviceFatal = 5, "device fatal";
        /// The shared receive queue has fewer receives left than its limit.
        SrqLimit = 6, "SRQ limit";
        /// The link came up.
        LinkUp = 7, "link up";
        /// The link went down.
        LinkDown = 8, "link down";
        /// The queue pair is in the error state, and takes no receive of its SRQ any more; the one
        /// that it had is flushed.
        LastReceive = 9, "last receive";
        /// The memory of the shared receive queue could not be read.
        SrqFatal = 10, "SRQ fatal";
        /// The SQ of the queue pair, which is in SQD, has drained.
        SqDrained = 11, "SQ drained";
        /// The queue pair went to the error state for a request of its peer to memory that this one
        /// may not access; `code` has the status.
        QpAccess = 12, "QP access error";
        /// The queue pair went to the error state for a request of its peer that is invalid; `code`
        /// has the status.
        QpRequest = 13, "QP request error";
    }
}

codes! {
    /// Why the function could not be enabled, or stopped: `STATUS.cause`.
    pub enum EnableError {
        /// The function works, or is not enabled.
        None = 0, "none";
        /// A ring of `ADMIN_DEPTH` is deeper than the limit, EQ 0 is too small for the asynchronous
        /// events, or a reserved bit is not zero.
        Depth = 1, "admin depth out of range";
        /// A ring is not aligned to 64 bytes.
        Alignment = 2, "admin ring not aligned";
        /// Bus mastering is off, or was taken away from a function that was ready.
        BusMaster = 3, "bus mastering is off";
        /// EQ 0 had no room: the driver broke the rules.
        EqOverrun = 4, "EQ overrun";
        /// CQ 0 had no room, or its memory could not be written.
        AdminCqOverrun = 5, "admin CQ overrun";
        /// An EQ, CQ 0 or the admin SQ could not be read or written.
        Dma = 6, "DMA failed";
        /// It stopped because a test asked for it.
        Injected = 7, "stopped by request";
    }
}
