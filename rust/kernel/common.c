// SPDX-License-Identifier: GPL-2.0
/*
 * What exists as a macro or an inline function only, and so cannot be called
 * from Rust: whether a DMA mapping failed, the limits of a task, when it gives
 * way to others, where it may not sleep, when softirqs run, the scheduler's
 * clock, whether a CPU is idle. Nothing else. Kbuild compiles it for each of
 * the two modules.
 */
#include <linux/bottom_half.h>
#include <linux/dma-mapping.h>
#include <linux/kernel.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/types.h>

int qpair_dma_mapping_error(struct device *dev, dma_addr_t address)
{
	return dma_mapping_error(dev, address);
}

void qpair_cond_resched(void)
{
	cond_resched();
}

bool qpair_fatal_signal_pending(void)
{
	return fatal_signal_pending(current);
}

unsigned long qpair_memlock_limit(void)
{
	return rlimit(RLIMIT_MEMLOCK);
}

void qpair_bh_disable(void)
{
	local_bh_disable();
}

/* Also runs the softirqs raised meanwhile. */
void qpair_bh_enable(void)
{
	local_bh_enable();
}

/* A debug kernel warns of what may sleep until the end. */
void qpair_non_block_start(void)
{
	non_block_start();
}

void qpair_non_block_end(void)
{
	non_block_end();
}

u64 qpair_clock(void)
{
	return local_clock();
}

/* The CPU was idle when it was interrupted, and no task is waiting for it. */
bool qpair_idle(void)
{
	return is_idle_task(current) && !need_resched();
}
