// SPDX-License-Identifier: GPL-2.0
//! Asynchronous events that a process reads late, or never.

use super::checks;
use qpair_queue::unread::Unread;
use qpair_queue::unread::KINDS;
use std::collections::VecDeque;

checks![
    an_event_that_is_not_read_is_queued_once,
    an_event_that_was_read_is_queued_again,
    an_event_that_was_lost_is_not_waited_for_for_ever,
];

/// The core's queue of an object.
struct Object {
    unread: Unread,
    list: VecDeque<usize>,
    read: u32,
}

impl Object {
    fn new(read: u32) -> Self {
        Self {
            unread: Unread::NONE,
            list: VecDeque::new(),
            read,
        }
    }

    fn raise(&mut self, kind: usize) -> bool {
        let is_empty = self.list.is_empty();
        let admits = self.unread.admits(kind, self.read, is_empty);
        if admits {
            self.list.push_back(kind);
        }
        admits
    }

    fn read(&mut self) -> Option<usize> {
        let kind = self.list.pop_front()?;
        self.read = self.read.wrapping_add(1);
        Some(kind)
    }
}

fn an_event_that_is_not_read_is_queued_once() {
    for first in [0, u32::MAX - 3] {
        let mut object = Object::new(first);
        for _ in 0..1000 {
            for kind in 0..KINDS {
                object.raise(kind);
            }
        }
        assert!(
            object.list.iter().copied().eq(0..KINDS),
            "{:?}",
            object.list
        );
    }
}

/// However many of other kinds are unread meanwhile.
fn an_event_that_was_read_is_queued_again() {
    for first in [0, u32::MAX - 3] {
        let mut object = Object::new(first);
        assert!(object.raise(1) && object.raise(2) && !object.raise(1));
        for round in 0..20 {
            let kind = 1 + round % 2;
            assert_eq!(object.read(), Some(kind));
            assert!(object.raise(kind), "round {round}");
            assert!(!object.raise(1) && !object.raise(2), "round {round}");
        }
        while object.read().is_some() {}
        assert!(object.raise(2) && object.raise(1));
    }
}

fn an_event_that_was_lost_is_not_waited_for_for_ever() {
    let mut object = Object::new(0);
    assert!(object.raise(1) && object.raise(2));
    // The core had no memory for it.
    object.list.pop_back();
    assert_eq!(object.read(), Some(1));
    assert!(object.raise(2));
}
