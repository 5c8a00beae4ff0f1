// SPDX-License-Identifier: GPL-2.0

//! The rules of [`queue`](crate::queue), with the kernel's compiler, flags and overflow checks.

#[kernel::macros::kunit_tests(qpair_rules)]
mod rules {
    use crate::queue::selftest;

    #[test]
    fn all_are_here() {
        assert_eq!(selftest::ALL.len(), 13);
    }

    #[test]
    fn depths() {
        assert_eq!(selftest::depths(), Ok(()));
    }

    #[test]
    fn owner_bits() {
        assert_eq!(selftest::owner_bits(), Ok(()));
    }

    #[test]
    fn windows() {
        assert_eq!(selftest::windows(), Ok(()));
    }

    #[test]
    fn slots() {
        assert_eq!(selftest::slots(), Ok(()));
    }

    #[test]
    fn channel_next() {
        assert_eq!(selftest::channel_next(), Ok(()));
    }

    #[test]
    fn channel_solicited() {
        assert_eq!(selftest::channel_solicited(), Ok(()));
    }

    #[test]
    fn channel_user() {
        assert_eq!(selftest::channel_user(), Ok(()));
    }

    #[test]
    fn interrupt() {
        assert_eq!(selftest::interrupt(), Ok(()));
    }

    #[test]
    fn moderation() {
        assert_eq!(selftest::moderation(), Ok(()));
    }

    #[test]
    fn notices() {
        assert_eq!(selftest::notices(), Ok(()));
    }

    #[test]
    fn page_sizes() {
        assert_eq!(selftest::page_sizes(), Ok(()));
    }

    #[test]
    fn page_walk() {
        assert_eq!(selftest::page_walk(), Ok(()));
    }

    #[test]
    fn flow() {
        assert_eq!(selftest::flow(), Ok(()));
    }
}
