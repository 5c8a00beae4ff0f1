// SPDX-License-Identifier: GPL-2.0
//! Queue pairs of UD against the device model, in one process.

mod support;

use support::datagrams::{
    addresses, every_form_arrives, headers_say_what_is_asked, lengths_have_limits,
    what_is_not_for_it_is_dropped,
};

#[test]
fn every_form_of_a_datagram_arrives() {
    every_form_arrives();
}

#[test]
fn a_datagram_that_is_not_for_a_queue_pair_is_dropped() {
    what_is_not_for_it_is_dropped();
}

#[test]
fn a_destination_says_what_the_header_has() {
    headers_say_what_is_asked();
}

#[test]
fn datagrams_have_limits() {
    lengths_have_limits();
}

#[test]
fn addresses_are_of_ports() {
    addresses();
}
