// SPDX-License-Identifier: GPL-2.0

//! Privileges and limits of the calling task.

use kernel::bindings;

unsafe extern "C" {
    safe fn qpair_cond_resched();
    safe fn qpair_fatal_signal_pending() -> bool;
    safe fn qpair_memlock_limit() -> usize;
}

/// What a task is privileged to do: `capabilities(7)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Capability {
    /// `CAP_IPC_LOCK`: may lock any amount of memory.
    IpcLock = bindings::CAP_IPC_LOCK,
    /// `CAP_SYS_ADMIN`: may administer the machine.
    SysAdmin = bindings::CAP_SYS_ADMIN,
}

/// Whether the calling task has `capability` in the initial user namespace. Marks the capability as
/// used. Process context; does not sleep.
pub fn capable(capability: Capability) -> bool {
    // SAFETY: Asks about the current task, which always exists.
    unsafe { bindings::capable(capability as i32) }
}

/// As [`capable`], without auditing a denial. Process context; does not sleep.
pub fn is_privileged(capability: Capability) -> bool {
    // SAFETY: In process context there is a current task.
    unsafe { bindings::capable_noaudit(capability as i32) }
}

/// Yields the CPU if another task wants it: for long loops in kernels without preemption. Process
/// context; may sleep.
pub fn cond_resched() {
    qpair_cond_resched();
}

/// Whether the calling task has been killed. Process context; does not sleep.
pub fn fatal_signal_pending() -> bool {
    qpair_fatal_signal_pending()
}

/// `RLIMIT_MEMLOCK` of the calling task, in bytes. Process context; does not sleep.
pub fn memlock_limit() -> usize {
    qpair_memlock_limit()
}
