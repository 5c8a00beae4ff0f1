// SPDX-License-Identifier: GPL-2.0
//! The data path: work requests, doorbells, completions, events and errors.

mod asynchronous;
mod atomics;
mod datagrams;
mod decode;
mod doorbells;
mod errors;
mod events;
mod library;
mod memory;
mod moves;
mod multicast;
mod platform;
mod rings;
mod scale;
mod shared;
mod stops;
mod unreliable;
mod windows;

use crate::ktap::cases;
use crate::ktap::Group;

/// One process with one device.
pub(crate) const GROUP: Group = Group {
    name: "data",
    cases: cases![
        moves::nop,
        moves::send_and_receive,
        moves::immediate_data,
        moves::write_and_read,
        moves::inline_data,
        moves::lists,
        moves::sizes * 2,
        moves::a_large_message * 2,
        moves::a_queue_pair_with_itself,
        moves::two_contexts,
        rings::unsignaled,
        rings::wraps * 2,
        rings::full_queues,
        rings::strides,
        rings::one_cq_for_many,
        rings::states_and_posts,
        rings::unread_completions * 2,
        events::an_event_for_an_arm,
        events::an_arm_that_is_late,
        events::no_event_without_an_arm,
        events::solicited,
        events::next_is_not_weakened,
        events::an_arm_behind_the_head,
        events::a_notify_waits_for_the_next,
        events::a_notify_against_its_completion * 4,
        events::every_vector,
        events::ping_pong * 4,
        events::overflowing_the_event_queue * 8,
        events::queues_that_come_and_go_armed * 8,
        errors::bad_requests * 4,
        errors::bad_local_keys * 4,
        errors::bad_remote_keys * 4,
        errors::bad_receives * 4,
        errors::nobody_there * 4,
        atomics::values_of_atomics,
        atomics::atomics_among_queue_pairs * 4,
        atomics::bad_atomics * 4,
        windows::windows_of_both_types * 2,
        windows::windows_that_are_invalidated,
        windows::bad_binds * 4,
        windows::changed_regions,
        windows::bound_to_an_undone_region * 2,
        windows::windows_of_a_file_that_is_closed,
        unreliable::uc_messages,
        unreliable::uc_messages_dropped * 4,
        unreliable::uc_queue_pairs_that_fail,
        unreliable::uc_attributes,
        datagrams::between_contexts,
        datagrams::dropped * 4,
        datagrams::of_a_queue_pair_that_fails,
        datagrams::attributes,
        datagrams::address_handles,
        multicast::copies_to_members,
        multicast::many_members,
        multicast::membership_ends,
        shared::shared_receives,
        shared::shared_limit,
        shared::shared_resize,
        shared::last_receive,
        shared::garbage_in_a_shared_ring * 4,
        shared::shared_receives_of_a_process_that_exits,
        library::vectors_by_the_library,
        library::datagrams_by_the_library,
        library::shared_receives_by_the_library,
        stops::flushed,
        stops::no_receive_posted,
        stops::garbage_in_the_rings * 8,
        stops::completion_queue_overrun,
        asynchronous::asynchronous_events * 4,
        doorbells::of_others,
        doorbells::bad_numbers,
        doorbells::bad_indices,
        doorbells::bad_places,
        doorbells::the_next_owner * 2,
        doorbells::a_storm * 4,
        memory::huge_pages,
        memory::scattered_pages,
        memory::shared_memory,
        memory::read_only_memory,
        memory::unmapped_while_in_use,
        memory::deregistered_while_in_use,
        memory::rings_unmapped_while_in_use,
        memory::fork_keeps_the_pages,
    ],
};

/// The levels of buffer lists; each case is for one kind of guest.
pub(crate) const LEVELS: Group = Group {
    name: "levels",
    cases: cases![
        memory::levels_without_iommu,
        memory::levels_with_iommu,
        memory::levels_with_small_pages
    ],
};

/// Properties of the machine's memory.
pub(crate) const PLATFORM: Group = Group {
    name: "platform",
    cases: cases![platform::bounce_buffers, platform::memory_above_4g],
};

/// Many queue pairs or processes at once.
pub(crate) const SCALE: Group = Group {
    name: "scale",
    cases: cases![scale::queue_pairs * 8, scale::processes * 8],
};

/// As many queue pairs of one process as large programs have.
pub(crate) const THOUSANDS: Group = Group {
    name: "thousands",
    cases: cases![scale::thousands],
};

/// More than one device.
pub(crate) const DEVICES: Group = Group {
    name: "devices",
    cases: cases![scale::two_devices * 2, decode::unmapped_beside_reads * 2],
};
