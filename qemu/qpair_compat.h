/* SPDX-License-Identifier: GPL-2.0 */
/*
 * qpair: the differences between the emulators that the device is built for,
 * QEMU 10.0 and 11.1.
 *
 * Linked into QEMU the device uses qemu/patches. As a plugin (QPAIR_PLUGIN,
 * qpair_plugin.c) it runs in a distribution's unmodified emulator.
 */

#ifndef QPAIR_COMPAT_H
#define QPAIR_COMPAT_H

#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/timer.h"

/* The device uses the names of QEMU 11.1; these are their equals in 10.0. */
#if QEMU_VERSION_MAJOR < 11

#include "block/aio-wait.h"
#include "exec/address-spaces.h"
#include "hw/qdev-properties.h"
#include "system/cpu-timers.h"
#ifdef QPAIR_PLUGIN
#include "qemu/qemu-plugin.h"
#endif

/* What class_init() is given. */
typedef void QpairClassData;

#define AccelRouteChange KVMRouteChange
#define accel_irqchip_begin_route_changes() \
    kvm_irqchip_begin_route_changes(kvm_state)
#define accel_irqchip_commit_route_changes kvm_irqchip_commit_route_changes
#define qdev_add_vm_change_state_handler(dev, change, change_ret, opaque) \
    qdev_add_vm_change_state_handler(dev, change, opaque)

#else

#include "exec/icount.h"
#include "hw/core/qdev-properties.h"
#include "qemu/aio-wait.h"
#include "system/accel-irq.h"
#include "system/address-spaces.h"
#include "system/memory_cached.h"
#ifdef QPAIR_PLUGIN
#include "plugins/qemu-plugin.h"

/*
 * QEMU 10.0 lacks these. It has to load the plugin, which then refuses it with a
 * remedy; the loader would name an undefined symbol.
 */
#pragma weak accel_irqchip_begin_route_changes
#pragma weak accel_irqchip_commit_route_changes
#pragma weak memory_region_enable_lockless_io
#endif

typedef const void QpairClassData;

#endif

#ifdef QPAIR_PLUGIN

/*
 * An emulator calls the functions of type_init() and trace_init() before it
 * loads plugins, so qemu_plugin_install() calls those of the device.
 */
#undef module_init
#define module_init(function, type)                                         \
static void __attribute__((constructor)) qpair_init_ ## function(void)      \
{                                                                           \
    qpair_plugin_init(function);                                            \
}

void qpair_plugin_init(void (*function)(void));

/* Patch 3. Without it a bottom half of the main loop sends interrupts. */
static inline bool bql_trylock(void)
{
    return false;
}

#if QEMU_VERSION_MAJOR < 11
/*
 * Patch 2. Without it the emulator takes the BQL for each doorbell. The device's
 * own guard handles a doorbell that its DMA or its interrupt rings. Later versions
 * have the function, but under TCG take the BQL all the same.
 */
static inline void memory_region_enable_lockless_io(MemoryRegion *mr)
{
    mr->disable_reentrancy_guard = true;
}
#endif

static inline void qpair_schedule(void *bh)
{
    qemu_bh_schedule(bh);
}

/*
 * A timer of the context in which `bh` calls run(). The layout of an AioContext
 * depends on how the emulator was configured, and cannot be checked: so this is
 * a timer of the main loop, which schedules `bh`.
 */
static inline QEMUTimer *qpair_timer_new(AioContext *context, QEMUBH *bh,
                                         QEMUTimerCB *run, void *opaque)
{
    return timer_new_ns(QEMU_CLOCK_VIRTUAL, qpair_schedule, bh);
}

#else

static inline QEMUTimer *qpair_timer_new(AioContext *context, QEMUBH *bh,
                                         QEMUTimerCB *run, void *opaque)
{
    return aio_timer_new(context, QEMU_CLOCK_VIRTUAL, SCALE_NS, run, opaque);
}

#endif /* QPAIR_PLUGIN */
#endif /* QPAIR_COMPAT_H */
