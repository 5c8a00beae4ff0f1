// SPDX-License-Identifier: GPL-2.0
//! The wrong variants.
//!
//! Each guarantee of the device has a wrong variant, `mutant!(Name)`, in the code that keeps it, as
//! in the crate of the rules. It is the constant `false` unless a host test is built with the
//! feature `mutants` and activates one on its thread. `tests/mutants.rs` runs the suite under each
//! of them and requires that it is caught.

/// Whether the wrong variant of this name is to be used here.
#[cfg(not(feature = "mutants"))]
macro_rules! mutant {
    ($name:ident) => {
        false
    };
}

/// Whether the wrong variant of this name is to be used here.
#[cfg(feature = "mutants")]
macro_rules! mutant {
    ($name:ident) => {
        crate::mutant::is_active(crate::mutant::Mutant::$name)
    };
}

pub(crate) use mutant;

#[cfg(feature = "mutants")]
pub use self::active::*;

#[cfg(feature = "mutants")]
mod active {
    use std::cell::Cell;

    macro_rules! mutants {
        ($($name:ident: $what:literal,)*) => {
            /// A broken guarantee.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub enum Mutant { $(#[doc = $what] $name,)* }

            impl Mutant {
                /// All of them.
                pub const ALL: &'static [Self] = &[$(Self::$name,)*];

                /// The broken behaviour.
                pub const fn what(self) -> &'static str {
                    match self { $(Self::$name => $what,)* }
                }
            }
        };
    }

    mutants! {
        EventBeforeCompletion: "an EQE is in memory before the CQE that it reports",
        InterruptBeforeEvent: "an interrupt is raised before the EQE is in memory",
        CompletionBeforeData: "a CQE is in memory before the data that it reports",
        ProducerEarly: "the producer index is published before the CQE is in memory",
        ProducerKept: "a new CQ has the published producer index of the one before",
        NotifyIndexIgnored: "a notify with an index is accepted",
        OwnerFirst: "an entry's last word is written with the others missing",
        GenerationNotChecked: "a number is looked up by its index alone",
        LongQueuePairNumber: "the number of a queue pair has more than 24 bits",
        DomainNotChecked: "a key of another PD is accepted",
        RightsNotChecked: "a region's rights are not checked",
        RangeNotChecked: "a range is checked by its first byte only",
        PeerNotAsked: "a queue pair accepts requests of any other",
        PeerRightsNotChecked: "the access rights of the peer's queue pair are not checked",
        PageNotChecked: "an object accepts doorbells on any page",
        EventDoorbellAnywhere: "EQ heads may be published from any page",
        IndexReusedAtOnce: "an index is reused while an entry of it is in a ring",
        KeptNotCounted: "the indices that are kept for a page are not reported",
        ViolationStorm: "each doorbell violation is an event",
        OverrunIgnored: "the queue pairs of an overrun CQ go on",
        OverrunGoesOn: "a turn goes on after a completion that overran its CQ",
        EventsOfTheDead: "pending events of a destroyed object are written",
        FlushOnlySignaled: "unsignalled work requests are not flushed",
        ReceivesNotFlushed: "the RQ of a queue pair in error is not flushed",
        ErrorGoesOn: "a queue pair goes on after a failed work request",
        TurnWithoutEnd: "a turn lasts until the SQ is empty",
        TimeIgnored: "a run of the core goes on when the time of its caller is up",
        ListsAreFree: "a turn of the admin queue pair reads any number of entries of buffer lists",
        PagesWithoutLimit: "rings have any number of pages",
        PagesNotReturned: "the pages of a ring that is gone stay taken",
        HaltIgnored: "the core goes on though the machine is stopped",
        StoppedWritesEvents: "events are written though the machine is stopped",
        TimersVanish: "a function that comes back has lost its timers",
        OldPaceKept: "a shorter pace takes effect after the wait for the former one",
        RunWithoutEnd: "a run of the core goes on however many bytes it has moved",
        DoorbellCutsIn: "the thread of a doorbell works although others wait",
        MuchInDoorbells: "the thread of a doorbell begins with more work requests than it may do",
        SpareForEach: "the thread of doorbells may do as much work in each of them",
        CallForgotten: "the core is not called for the work that a doorbell leaves",
        AdminInPage: "the admin queue pair is queued with the others of its page",
        AdminAlways: "commands leave no turn to the queue pairs",
        PagesInOneQueue: "the queue pairs of all pages are in one queue",
        BytesOfAQueuePair: "each queue pair of a page has the bytes of a whole turn",
        RetryForEver: "the retries of a peer that is gone have no limit",
        RnrIgnoresRetries: "RNR retries are not counted",
        OneBudget: "both steps that are retried have one budget",
        WaitFromTheStart: "a sender that is woken early waits for the whole time again",
        WaitKept: "a MODIFY leaves the wait of a sender as it is",
        TimersIgnored: "a sender tries again after the interval of the device, whatever its timers",
        TimerOfSender: "the wait for a receive is that of the sender, not that of its peer",
        WakeForgotten: "a posted receive does not wake the sender that waits for it",
        SolicitedForgotten: "a solicited completion is like any other",
        ReservedIgnored: "reserved bits of a context are not checked",
        CommandNotChecked: "fields that a command does not use are not checked",
        DeadCqTaken: "a queue pair leaves RESET with an overrun CQ",
        ReadyThoughFatal: "a function that stopped is ready",
        KeysInOrder: "the next key of an index follows from the one before",
        BusyDestroyed: "an object is destroyed though others use it",
        ResetKeepsMaps: "a reset leaves memory mapped",
        UnmapIgnored: "an invalidated mapping is still used",
        RegionUnmapIgnored: "an invalidated mapping of a region is still used",
        FatalUnseen: "a fatal error writes no event",
        QKeyNotChecked: "a datagram with any Q_Key is accepted",
        OwnQKeyIgnored: "a Q_Key that selects the sender's own is used as it is",
        AnyGidIsOwn: "a datagram to another GID is delivered",
        AnyPeerIsHere: "a peer at another GID is a queue pair of this function",
        PortQpUnnamed: "a datagram of the port's queue pair 1 comes from its other number",
        PortQpKept: "the port's queue pair 1 outlives its destruction",
        HopLimitOfOne: "the header of each datagram has a hop limit of 1",
        TrafficClassLost: "the header of a datagram has no traffic class",
        FlowLabelIsInline: "bits of a flow label count as inline bytes",
        GroupOfOne: "a datagram to a group is copied to its first member alone",
        GroupInOneTurn: "a turn lasts until a datagram is copied to all members of a group",
        GroupFromTheStart: "a datagram to a group begins again in its next turn",
        GroupOfAnyNumber: "a datagram to any number at a group's GID is copied to its members",
        GroupsWithoutLimit: "a group has any number of members",
        AnyGidIsGroup: "a queue pair is attached to the GID of a port",
        MemberForEver: "a queue pair that is reset or destroyed stays a member of its groups",
        OwnCopyAlways: "a sender that wants no copy of its own has one",
        FailedSenderGoesOn: "a sender that its own copy has failed sends the other copies",
        LostCopyUncounted: "a copy for a member that does not take it is not counted",
        LongDatagram: "a datagram may be as long as a message",
        ResultCheckedFirst: "the memory for the result of a READ is checked before the peer's",
        NoPlaceNoAtomic: "an atomic acts only if its result has a place",
        LongResult: "the result of an atomic may have more room than it needs",
        KeyBeforeAlignment: "the key of an atomic is checked before its alignment",
        SenderHasEvent: "a request that fails with a completion has an event besides",
        ReceiveHasEvent: "a receive that fails with a completion has an event besides",
        AccessIsFatal: "an access that is refused is reported as fatal",
        RequestIsAccess: "an invalid request is reported as an access that is refused",
        InvalidationAnswered: "a sender learns that its peer's window cannot be invalidated",
        AtomicAnywhere: "an atomic is performed at any address",
        SwapAlways: "a compare-and-swap does not compare",
        NewValueReturned: "an atomic returns the new value",
        AtomicReadOnly: "memory for atomics is mapped to be read",
        AtomicWriteAnywhere: "an atomic WRITE is performed at any address",
        FlushUnasked: "the access rights of the peer's queue pair are not checked for a FLUSH",
        FlushWithoutRight: "a region's rights are not checked for a FLUSH",
        OldRightsKept: "a region that is changed keeps its rights",
        TagNotChecked: "a window is found by a key that it had before",
        WindowOfAnyDomain: "a window of another PD is bound",
        WindowOfAnyPair: "a window of type 2 is used by another queue pair's peer",
        WindowRightsNotChecked: "a window's rights are not checked",
        WindowEndNotChecked: "a range may end past its window",
        BoundTwice: "a window of type 2 is bound although it is bound",
        BoundToAnyDomain: "a window is bound to a region of another PD",
        BoundWithoutRight: "a window is bound to a region without the right",
        BoundPastTheEnd: "a window is bound past the end of its region",
        InvalidatedByAny: "a window of type 2 is invalidated by another queue pair",
        WindowsOutlive: "a window of type 2 outlives the reset of its queue pair",
        ServicesMixed: "a queue pair accepts requests of another service",
        UnreliableRetried: "a message of UC is tried again",
        UnreliableHarms: "a message of UC that is refused fails its peer",
        FaultSeedIgnored: "the seed of the faults is ignored",
        FaultOfAnother: "a fault of one queue pair strikes another",
        TriesAreOccasions: "a request that is tried again counts again for the faults",
        HoldCutShort: "a change of the peer ends a delay",
        HoldKept: "a delay outlives the reset of its queue pair",
        FrozenAnswers: "a frozen queue pair answers its peer",
        LostAckUndone: "a request whose answer is dropped is not performed",
        SharedOfOwnDomain: "the receive of an SRQ is checked against the domain of the queue pair",
        SharedKeptByTheDead: "a receive of an SRQ is lost with the queue pair that has it",
        StarvedForgotten: "a receive that is posted to an SRQ wakes no sender",
        HerdWoken: "a receive of an SRQ wakes all senders that wait",
        LineStops: "a sender that was woken and takes no receive keeps it from the others",
        AnyServiceWaits: "a queue pair whose sender does not wait joins the line of its SRQ",
        PlaceLost: "a sender that was woken in vain is not woken again",
        LimitForgotten: "the limit of an SRQ has no event",
        LastReceiveEarly: "the event of the last receive precedes the completion of that receive",
        LastReceiveForgotten: "a queue pair that leaves its SRQ in error has no event",
        DrainedEarly: "the event that an SQ has drained precedes the end of the request that was begun",
        DrainedForgotten: "the event that an SQ has drained waits for no request",
        DrainedUnasked: "an SQ that has drained has an event that was not asked for",
        SharedGoesOn: "an SRQ whose memory cannot be read goes on",
        OldSharedRing: "an SRQ that is resized reads from its old ring",
        SharedCutOff: "an SRQ that is too small for what is left in its ring is not refused",
        OldRingKept: "a CQ that is resized writes to its old ring",
        ResizeUnpublished: "the producer index of a CQ that is resized is not published",
        LeafIgnored: "a table of two levels is read as one of one level",
        CompleteTaken: "a chain goes on at a descriptor that is complete already",
        InterruptWhileSet: "a chain interrupts although a cause is set",
        NeverDropped: "a frame waits for buffers although it has to be dropped",
        AlwaysReported: "a transmitted descriptor is written back unasked",
        NotMasked: "the message of a ring with a head and a tail leaves interrupts enabled",
        NotThrottled: "the interval between messages is not kept",
        LengthNotChecked: "the length of a descriptor has no limit",
        CompleteBeforeBytes: "a receive descriptor is complete before its bytes are in memory",
        UserForgotten: "the user words of a frame are not carried",
        ChannelWithoutEnd: "the turn of a channel lasts until its ring is empty",
        FirstAlways: "a receive channel serves the first transmit channel always",
    }

    std::thread_local! {
        static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Whether this thread runs `mutant`.
    pub fn is_active(mutant: Mutant) -> bool {
        ACTIVE.with(|active| active.get() == Some(mutant))
    }

    /// Makes this thread run `mutant`, or the device as it is.
    pub fn activate(mutant: Option<Mutant>) {
        ACTIVE.with(|active| active.set(mutant));
    }
}
