// SPDX-License-Identifier: GPL-2.0
//! The wrong variants.
//!
//! A test that guards a rule has to fail when the rule is broken. So each rule of this crate has a
//! `mutant!(Name)`, which selects a wrong variant of it. It is the constant `false` and compiles to
//! nothing, unless a host test is built with the feature `mutants` and activates one on its thread.
//! `tests/mutants.rs` runs the suite under each of them and checks that a test fails.

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

pub(super) use mutant;

#[cfg(feature = "mutants")]
pub use self::active::*;

#[cfg(feature = "mutants")]
mod active {
    extern crate std;
    use std::cell::Cell;

    macro_rules! mutants {
        ($($name:ident: $what:literal,)*) => {
            /// A rule, broken.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub enum Mutant { $(#[doc = $what] $name,)* }

            impl Mutant {
                /// All of them.
                pub const ALL: &'static [Self] = &[$(Self::$name,)*];

                /// What is done wrong.
                pub const fn what(self) -> &'static str {
                    match self { $(Self::$name => $what,)* }
                }
            }
        };
    }

    mutants! {
        OwnerPolarity: "the owner bit is 0 in the first pass",
        OwnerAfterBody: "the owner word is read after the body",
        SlotSplitTwice: "a slot that is taken also stays in its bundle",
        SlotOfAnotherRing: "slots of another ring are accepted",
        FreedTooEarly: "a destroyed queue's slot is free before the head has passed its entries",
        FreedTooLate: "a destroyed queue's slot waits for an entry that need not come",
        FreeBeforePublish: "SQ slots are free before the CQ head is published",
        StaleIndex: "a completion's index is not checked against what is in flight",
        ForeignCq: "a completion from any CQ counts",
        ForeignTakes: "a completion from another CQ takes the requests that it names",
        OldTakes: "a completion from before a reset takes a request that was posted since",
        WriteUnbounded: "a WRITE reports more bytes than the receive that it takes has room for",
        LongReceive: "a receive has more bytes than were posted for it",
        CompletesOne: "a completion frees one slot, however many it completes",
        CompletesAll: "a completion frees slots that it does not complete",
        FlightForgotten: "a queue that ends forgets the slots that did not complete",
        NeverSignal: "a whole SQ may be left unsignalled",
        AskedForced: "a request is signalled that its user answers for, and does not want signalled",
        WithdrawnRunKept: "withdrawn requests still count as an unsignalled run",
        CapacityPlusOne: "one block more than there is room for is posted",
        SlackPosted: "a post takes the slots that are kept for completed work requests",
        TailNotWrapped: "a WQE that wraps is written past the end",
        RingWithoutNews: "the doorbell is rung without new entries",
        ArmWithoutCheck: "an arm does not check what the CQ already holds",
        SolicitedNever: "an arm for solicited does not fire at a solicited completion",
        SolicitedIsNext: "an arm for solicited fires at any completion",
        SolicitedKept: "an arm for solicited fires for a completion that the head has passed",
        OldArmWaits: "an arm whose index is behind the head does not fire at once",
        BeyondArms: "an arm whose index is past the producer opens the channel",
        NotifySampledLate: "a notify counts from when the device acts on it",
        NotifyLooksBack: "a notify fires for a completion that was there before it",
        NotifyReplaces: "a notify drops what an earlier one waits for",
        OldNotifyWaits: "a notify whose sample the head has passed does not fire at once",
        StaysOpen: "writing an event leaves the channel open",
        NextWeakened: "an arm for solicited replaces one for next",
        SecondUserEvent: "a process's CQ may have two events in the EQ",
        ForgottenArm: "an arm that comes while an event is in the EQ is lost",
        BehindIsBeyond: "an index behind the head is a violation",
        RaiseWithoutMask: "raising leaves the interrupt unmasked",
        UnmaskNotChecked: "unmasking does not check what the EQ already holds",
        KeepMaskedUnmasks: "a head update that should keep the mask unmasks",
        CountOnly: "moderation waits for the count for ever",
        AsyncUnbounded: "more asynchronous events than the reserve are in the EQ",
        AsyncRepeatLost: "an asynchronous event that repeats while one is in the EQ is lost",
        ArmWithoutSlot: "a CQ is armed without taking an EQ slot",
        KernelShareTaken: "CQs of processes take the slots that are left to the kernel",
        UlpAsProcess: "a CQ of a user in the kernel is refused the slots that processes leave",
        UlpTakesAll: "CQs of users in the kernel take the last slots",
        SlotFreeAtEvent: "an EQ slot is free when its event is read, before the head is published",
        SpuriousEventGives: "an event for a CQ that is not armed frees a slot",
        OutOfSlotsNotPublished: "without EQ slots the head is not published, and the CQ stays unarmed",
        RoundEndNotPublished: "a round ends with consumed events unpublished",
        PendingForgotten: "a CQ that is not drained is neither armed nor pending",
        PendingArmed: "a CQ that is not drained is armed as well as pending",
        LeaveMasked: "a drained poll leaves without unmasking",
        EventsFirst: "with a small budget events always go before pending CQs",
        BudgetIgnored: "a CQ is consumed without regard to the budget",
        TrialNotJudged: "moderation that slows its load is kept",
        RefusalForgotten: "moderation that slowed its load is tried again at once",
        NoHysteresis: "moderation goes down at the rate at which it went up",
        ModeratedForEver: "moderation stays when the load is gone",
        Uncapped: "interrupts that collecting does not reduce are not capped",
        CountWithoutTime: "moderation has a count and no time",
        ShortPollsFree: "a poll that ends before its budget adds no debt",
        DebtForEver: "a poll's debt is never paid back",
        TakenIsEven: "a poll without debt at its begin adds none",
        IdleOwed: "a poll owes the time of an idle CPU",
        IdleForEver: "a CPU that was idle once counts as idle for all later polls",
        IdleToItsEnd: "a poll that begins on an idle CPU owes nothing when a task waits at its end",
        PageMisaligned: "a discontinuity inside a page is overlooked",
        LastPageMissing: "the number of pages is rounded down",
        LeafMissing: "the number of leaf tables is rounded down",
        OffsetForgotten: "the offset in the first page is not added",
        HeldForgotten: "a destroyed object no longer counts, although its index is not free",
        SinceForgotten: "objects destroyed during the device's query count as free",
        UserNotBounded: "a user may have as much as its contexts may have",
        ReserveTaken: "users may take the reserve of the kernel and the administrator",
        FailuresForgotten: "failures are forgotten as soon as the device works once",
        FailuresKept: "failures are never forgotten",
        AckAtHalf: "an acknowledgement is due at half of the initial credit",
        AckOfAck: "acknowledgements are acknowledged at once",
        OneAckCredit: "one acknowledgement credit is enough",
        ArrivesUnchecked: "the peer may send more than it has slots for",
        StatusClearedLate: "the status in a chain is cleared after the tail was written",
        StatusKept: "the status in a chain is not cleared",
        UntilTrusted: "a destroyed queue's slot waits for an index that no entry may ever have",
        CauseLeft: "a cause that is set while a chain's causes are cleared is left",
        ChainTailEarly: "a chain's tail is written before its descriptors are whole",
        ChainOneMore: "a chain has one more descriptor in flight than it has",
        RingTailEarly: "a ring's tail is written before its descriptors are whole",
        RingDoneBefore: "the done bit of the pass before is taken for that of this pass",
        RingOneMore: "all descriptors of a ring are in flight",
        EmptyIsFull: "a head that is equal to the tail is a full ring",
        SharedFreesAll: "a completion of an SRQ frees the slots of all receives in flight",
        NotGivenBack: "the receive of a queue pair that is gone is lost to its SRQ",
        LimitAtTakeOnly: "a limit that is armed below what is left is looked at by the next take",
        LimitStaysArmed: "the limit of an SRQ stays armed after its event",
        ResizeKeepsIndex: "a new ring of a CQ goes on at the index at which the old one ends",
        ResizeBelowUnread: "a CQ gets a ring with fewer entries than are unread",
        ResizeReadsAll: "entries of a CQ's old ring count as read",
        ResizeBelowFlight: "an SRQ gets a ring with fewer slots than are in flight",
        ResizeCopiesNothing: "receives in flight are not copied to the new ring of an SRQ",
        ResizeKeepsPlaces: "receives are copied to their old places in the new ring of an SRQ",
        SwitchEarly: "a consumer leaves the old ring of a CQ with entries unread",
        RepeatQueued: "an asynchronous event is queued again while it is unread",
        ReadForgotten: "an asynchronous event that was read counts as unread",
        FreedUnquiet: "a shutdown frees memory that the device may access",
        FlushedUnquiet: "ULPs are flushed though the device may access what they have posted",
        FlushedUncut: "ULPs are flushed while they may post",
        ToldUnquiet: "the watchdog tells clients of a loss before the device is quiet",
        ToldTwice: "the watchdog announces a loss again at each look",
        AccessedAsleep: "a suspended device is accessed",
        SleptUnquiet: "a device is suspended that may access memory",
        UpThoughFailed: "a device that fails while it is brought up is up",
        OldFailure: "a failure of an earlier epoch fails the device",
        EpochKept: "a reset begins no new epoch",
        KeptForgotten: "memory that a shutdown could not free is forgotten",
        ClosedOverCommands: "the gate waits for commands that the device does not answer",
        TwoTasks: "the watchdog announces a loss while another task is under way",
        WaitersForgotten: "a destroy waits for a device that is quiet",
        QuietTooEarly: "a destroy does not wait until the device is quiet",
        SilentLoss: "clients are not told of a loss",
        FatalForEver: "a device that has failed is never reset",
        ReportForgotten: "no descriptor of a hand-over asks for a write-back",
    }

    std::thread_local! {
        static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Whether this thread runs `mutant`.
    pub fn is_active(mutant: Mutant) -> bool {
        ACTIVE.with(|active| active.get() == Some(mutant))
    }

    /// Makes this thread run `mutant`, or the rules as they are.
    pub fn activate(mutant: Option<Mutant>) {
        ACTIVE.with(|active| active.set(mutant));
    }
}
