// SPDX-License-Identifier: GPL-2.0
/*
 * What exists as a macro or an inline function only, and so cannot be called
 * from Rust, of what this driver needs: the user of a task, and the definitions
 * of the trace points. Nothing else.
 */
#include <linux/sched.h>
#include <linux/sched/user.h>
#include <linux/types.h>

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "trace.h"

/* The caller gives it back with free_uid(). */
struct user_struct *qpair_get_current_user(void)
{
	return get_uid(current_user());
}
