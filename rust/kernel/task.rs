// SPDX-License-Identifier: GPL-2.0

//! Privileges and limits of the calling task.

use kernel::bindings;

unsafe extern "C" {
    /// Yields the CPU if another task wants it: for long loops in kernels without preemption. Process
    /// context; may sleep.
    #[link_name = "qpair_cond_resched"]
    pub safe fn cond_resched();

    /// Whether the calling task has been killed. Process context; does not sleep.
    #[link_name = "qpair_fatal_signal_pending"]
    pub safe fn fatal_signal_pending() -> bool;

    /// `RLIMIT_MEMLOCK` of the calling task, in bytes. Process context; does not sleep.
    #[link_name = "qpair_memlock_limit"]
    pub safe fn memlock_limit() -> usize;
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
