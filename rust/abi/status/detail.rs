// SPDX-License-Identifier: GPL-2.0
//! The vendor details of completions, which the driver passes on.

codes! {
    /// Vendor detail of a completion: which check refused.
    pub enum Detail {
        /// The status has no detail.
        None = 0, "no detail";
        /// Unknown opcode, or one that this service does not have.
        Opcode = 1, "unknown opcode";
        /// Unknown flag, or one that does not go with the opcode; undefined bits of a receive, of a
        /// send of a UD queue pair, of a REG_MR, and of word 0 of a FLUSH; unknown rights of a BIND
        /// or a REG_MR; no kind of a FLUSH, or an unknown one.
        Flags = 2, "unknown flag";
        /// Number of blocks is 0, above the limit, or past the producer index.
        Blocks = 3, "bad number of blocks";
        /// Number of SGEs above the limit or what the blocks hold; SGEs besides inline data, of a
        /// BIND, a LOCAL_INV, a REG_MR, a FLUSH or an atomic WRITE; an atomic without one SGE.
        Sges = 4, "bad number of SGEs";
        /// More inline bytes than the limit or what the blocks hold, or inline bytes without the
        /// flag.
        Inline = 5, "bad inline length";
        /// Message longer than the limit, or an SGE of an atomic that is not 8 bytes long.
        Message = 6, "bad message length";
        /// No region, window or registered FRMR has this key.
        Key = 7, "no such key";
        /// The region, window or FRMR belongs to another PD, or the window to another queue pair.
        Domain = 8, "key of another protection domain";
        /// The range is not inside the region, window or FRMR, or the memory of an FRMR is not valid.
        Range = 9, "range outside the region";
        /// The region, window or FRMR, or the peer's queue pair, lacks the right.
        Rights = 10, "missing access right";
        /// The queue pair's peer is not there.
        NoPeer = 11, "no such peer";
        /// The peer does not name this queue pair, or is of another service.
        NotNamed = 12, "the peer names another queue pair";
        /// The peer is not ready to receive.
        NotReady = 13, "the peer is not ready to receive";
        /// The receive is too short for the message.
        ShortReceive = 14, "receive too short";
        /// A page table, ring or page of the object could not be read or written.
        Dma = 15, "DMA failed";
        /// The state of the queue, or of the window or FRMR, does not allow it.
        State = 16, "wrong state";
        /// The address of an atomic is not aligned.
        Alignment = 17, "address not aligned";
        /// Failed because a test asked for it.
        Injected = 255, "failed by request";
    }
}
