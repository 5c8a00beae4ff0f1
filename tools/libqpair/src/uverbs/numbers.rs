// SPDX-License-Identifier: GPL-2.0
//! The objects that asynchronous events name.

use std::sync::Mutex;

use qpair_abi::Number;
use rustix::io::Errno;

use crate::lock::lock;

/// Numbers by the handles that events have: the index of a place.
#[derive(Debug, Default)]
pub(super) struct Numbers(Mutex<Vec<Place>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Free,
    /// Its object is being created.
    Taken,
    Of(Number),
}

impl Numbers {
    /// Takes a place, creates an object by `create` with the place's handle, and keeps its number
    /// there.
    pub(super) fn with<T>(
        &self,
        create: impl FnOnce(u64) -> Result<T, Errno>,
        number: impl FnOnce(&T) -> Number,
    ) -> Result<T, Errno> {
        let at = {
            let mut places = lock(&self.0);
            let at = places.iter().position(|place| *place == Place::Free);
            let at = at.unwrap_or(places.len());
            if at == places.len() {
                places.push(Place::Free);
            }
            places[at] = Place::Taken;
            at
        };
        let created = create(at as u64);
        lock(&self.0)[at] = match &created {
            Ok(created) => Place::Of(number(created)),
            Err(_) => Place::Free,
        };
        created
    }

    pub(super) fn give_back(&self, number: Number) {
        let mut places = lock(&self.0);
        if let Some(place) = places.iter_mut().find(|place| **place == Place::Of(number)) {
            *place = Place::Free;
        }
    }

    /// Without a number: the object does not exist any more, or its creation has not returned.
    pub(super) fn get(&self, handle: u64) -> Option<Number> {
        match lock(&self.0).get(usize::try_from(handle).ok()?) {
            Some(Place::Of(number)) => Some(*number),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Errno, Number, Numbers};

    #[test]
    fn an_event_names_the_object_that_has_the_handle_now() {
        let numbers = Numbers::default();
        let mut handles = Vec::new();
        let mut create = |raw| {
            let create = |handle| {
                handles.push(handle);
                assert_eq!(numbers.get(handle), None, "not created yet");
                Ok(Number::from_raw(raw))
            };
            numbers.with(create, |number| *number).unwrap();
        };
        create(10);
        create(20);
        create(30);
        numbers.give_back(Number::from_raw(20));
        create(40);
        let refused: Result<Number, _> = numbers.with(|_| Err(Errno::NOSPC), |number| *number);
        assert_eq!(refused, Err(Errno::NOSPC));
        create(50);
        assert_eq!(handles, [0, 1, 2, 1, 3]);
        let now = [0, 1, 2, 3, 4, u64::MAX].map(|handle| numbers.get(handle).map(Number::raw));
        assert_eq!(now, [Some(10), Some(40), Some(30), Some(50), None, None]);
    }
}
