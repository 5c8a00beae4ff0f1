/* SPDX-License-Identifier: GPL-2.0 */
/*
 * qpair: a PCI function whose only job is queue pairs.
 *
 * This code connects the device's model to QEMU. The model is a Rust crate that
 * does not depend on QEMU and is called through qpair_ffi.h: guest accesses are
 * passed to it, and it makes memory accesses, interrupts and wake-ups through
 * the callbacks of QpairHost (qpair_host.c). Tables of the model describe
 * registers, BARs, properties and counters; nothing is listed twice.
 *
 * Rules:
 *
 * - One thread at a time is in the model, and never twice: a guest can direct
 *   the device's DMA or interrupts to its own BARs or configuration space. So
 *   DMA reaches RAM only (MemTxAttrs.memory), interrupts are collected and sent
 *   when the model has returned, and the model's own guard
 *   (qemu/ffi/src/inside.rs) refuses or defers other re-entries.
 * - Doorbells take no lock: see inside.rs. A CPU that rings may also do a little
 *   of the work, without the BQL. The core runs in a bottom half of the main
 *   loop, which drops the BQL meanwhile. All else runs under the BQL. Lock order:
 *   the BQL, then the model's lock.
 * - Under -icount, or with a pace set, the core runs at deadlines of the virtual
 *   clock and never in a bottom half, so that two runs of one workload are the
 *   same. Under -icount doorbells take the BQL.
 * - While the machine is stopped the core does nothing: its memory may be dumped.
 * - Memory stays mapped as long as the function's view of memory has that
 *   range: a listener on its DMA address space is called when bus mastering is
 *   disabled, memory or a device is unplugged, or an IOMMU is enabled. Behind an
 *   IOMMU no mappings are kept: each access is translated, so an unmap has
 *   nothing to undo.
 *
 * For the threads that work without the BQL:
 *
 * - The BQL protects interrupts. A CPU takes it to send those that its doorbell
 *   raised. See qpair_interrupts.c.
 * - The function's view of memory changes under the BQL. The listener drops
 *   mappings in its commit, when all threads get the new view: earlier, the
 *   model could map memory that is being removed. The commit takes the model's
 *   lock, so when the guest's access that changed the view returns, no DMA by
 *   the old view is in flight.
 * - The BQL protects IOMMUs: as long as one translates, the model is bound to
 *   the BQL.
 * - exit ends the model, which waits for the thread inside and drops all
 *   mappings. A CPU that does not know yet that the function is gone may still
 *   ring: its TLB's map, or RCU, holds a reference to the function, and the
 *   model exists until the last of them is dropped.
 *
 * With a network (netdev=): frames are received under the BQL, and wait in the
 * model for the core. Those that the model sends wait in a queue for a bottom
 * half of the main loop. See qpair_wire.c.
 *
 * With an IOThread (iothread=):
 *
 * - The core's bottom half and timers are in the IOThread's context, and run
 *   without the BQL. Accesses of registers, configuration space and properties,
 *   resets and the listener keep it, and wait in the model's lock for at most a
 *   few turns of the core. The IOThread never waits for the BQL, since a holder
 *   of the BQL may wait for the IOThread. It sends its interrupts if the BQL is
 *   free, otherwise a bottom half of the main loop does.
 * - While the model is bound to the BQL, the core runs in the main loop.
 * - After the model's end, the IOThread itself removes the core's bottom half
 *   and timers from its context, so none runs and none will.
 */

#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/timer.h"
#include "qapi/error.h"
#include "hw/core/cpu.h"
#include "hw/pci/msix.h"
#include "hw/pci/pcie.h"
#include "migration/blocker.h"
#include "qpair.h"
#include "trace.h"

/* Calls into the model. */

/*
 * With the BQL: runs the core for a while, if asked to, and sends interrupts.
 *
 * The guard is not left to qemu_bh_new_guarded(): the timers have none, and the
 * bottom half would clear it after the last reference to the function may have
 * been dropped here.
 */
static void qpair_work(QpairState *s, bool core)
{
    MemReentrancyGuard *guard = &DEVICE(s)->mem_reentrancy_guard;

    if (!s->present) {
        return;
    }
    object_ref(OBJECT(s));
    guard->engaged_in_io = true;
    if (core && qpair_model_run(s->model)) {
        qpair_wake(s);
    }
    qpair_deliver(s);
    guard->engaged_in_io = false;
    object_unref(OBJECT(s));
}

/*
 * With the BQL: from a timer of the virtual clock, or while the model is bound
 * to the BQL. With an IOThread this sends interrupts, and runs the core while it
 * is bound.
 */
static void qpair_run(void *opaque)
{
    QpairState *s = opaque;

    if (s->present) {
        trace_qpair_round(qpair_id(s), false);
    }
    qpair_work(s, !s->iothread || s->translations);
}

/*
 * With the BQL, in a bottom half: another thread, or an access to a register,
 * has left interrupts. Without an IOThread the core has a bottom half of its own.
 */
static void qpair_run_bound(void *opaque)
{
    QpairState *s = opaque;

    if (s->iothread) {
        qpair_run(s);
    } else {
        qpair_work(s, false);
    }
}

/*
 * The core's bottom half in the main loop. The core works without the BQL: a
 * main loop that always has work would take it again before a CPU that waits
 * for it wakes up. While the machine runs, no holder of the BQL polls the
 * context of this bottom half.
 */
static void qpair_run_unlocked(void *opaque)
{
    QpairState *s = opaque;
    QpairRun run;

    if (!s->present) {
        return;
    }
    object_ref(OBJECT(s));
    bql_unlock();
    run = qpair_model_run_apart(s->model);
    bql_lock();
    if (run == QPAIR_RUN_BOUND) {
        qpair_run(s);
    } else {
        trace_qpair_round(qpair_id(s), true);
        if (run == QPAIR_RUN_MORE) {
            qpair_wake(s);
        }
        qpair_work(s, false);
    }
    object_unref(OBJECT(s));
}

/*
 * The model's next deadline. With a pace the core runs here, with the BQL: a
 * holder of the BQL may wait for a timer (qemu_clock_enable()). Else this only
 * schedules the core, which works without the BQL.
 */
static void qpair_deadline(void *opaque)
{
    QpairState *s = opaque;

    if (qatomic_read(&s->paced)) {
        qpair_run(s);
    } else {
        qpair_wake(s);
    }
}

/* In the IOThread, without the BQL. */
static void qpair_run_apart(void *opaque)
{
    QpairState *s = opaque;

    trace_qpair_round(qpair_id(s), true);
    switch (qpair_model_run_apart(s->model)) {
    case QPAIR_RUN_IDLE:
        break;
    case QPAIR_RUN_MORE:
        qpair_wake(s);
        break;
    case QPAIR_RUN_BOUND:
        qemu_bh_schedule(s->main_bh);
        break;
    }
    qpair_deliver_apart(s);
}

/*
 * A CPU may still access the registers before it knows that the function is
 * gone: the model has ended then, and they read as all ones.
 */
static uint64_t qpair_reg_read(void *opaque, hwaddr addr, unsigned size)
{
    QpairState *s = opaque;
    uint32_t value = qpair_model_reg_read(s->model, addr);

    qpair_deliver_later(s);
    trace_qpair_reg_read(qpair_id(s), addr, value);
    return value;
}

static void qpair_reg_write(void *opaque, hwaddr addr, uint64_t value,
                            unsigned size)
{
    QpairState *s = opaque;

    trace_qpair_reg_write(qpair_id(s), addr, value);
    qpair_model_reg_write(s->model, addr, value);
    qpair_deliver(s);
}

static const MemoryRegionOps qpair_reg_ops = {
    .read = qpair_reg_read,
    .write = qpair_reg_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 4, .max_access_size = 4 },
    .impl = { .min_access_size = 4, .max_access_size = 4 },
};

/* The region is accessed without the BQL: take it if needed. */
static uint64_t qpair_doorbell_read(void *opaque, hwaddr addr, unsigned size)
{
    QpairState *s = opaque;
    uint64_t value;

    BQL_LOCK_GUARD();
    value = qpair_model_vanished(s->model) ? UINT64_MAX : 0;
    qpair_deliver_later(s);
    return value;
}

static void qpair_doorbell_write(void *opaque, hwaddr addr, uint64_t value,
                                 unsigned size)
{
    QpairState *s = opaque;

    if (!bql_locked() && qpair_model_post(s->model, addr, value, size)) {
        if (qatomic_read(&s->pending)) {
            BQL_LOCK_GUARD();
            qpair_deliver(s);
        }
        return;
    }
    BQL_LOCK_GUARD();
    qpair_model_doorbell(s->model, addr, value, size);
    qpair_deliver(s);
}

/* Accepts any width and alignment: the model counts invalid ones. */
static const MemoryRegionOps qpair_doorbell_ops = {
    .read = qpair_doorbell_read,
    .write = qpair_doorbell_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
    .impl = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
};

static uint32_t qpair_config_read(PCIDevice *pci, uint32_t addr, int len)
{
    QpairState *s = QPAIR(pci);

    if (s->present && qpair_model_vanished(s->model)) {
        return UINT32_MAX >> (32 - 8 * len);
    }
    qpair_deliver_later(s);
    return pci_default_read_config(pci, addr, len);
}

static void qpair_config_write(PCIDevice *pci, uint32_t addr, uint32_t value,
                               int len)
{
    QpairState *s = QPAIR(pci);

    bool vanished = s->present && qpair_model_vanished(s->model);
    bool stops = addr == PCI_COMMAND && !(value & PCI_COMMAND_MASTER) &&
                 pci_get_word(pci->config + addr) & PCI_COMMAND_MASTER;

    qpair_deliver_later(s);
    if (vanished) {
        return;
    }
    if (stops && s->present && qpair_model_ignores_stop(s->model)) {
        value |= PCI_COMMAND_MASTER;
    }
    qpair_caps_write(pci, addr, value, len);
    qpair_routes_follow(s, msix_enabled(pci));
}

/* The function's view of memory. A new one takes effect at the commit. */

static void qpair_region_add(MemoryListener *listener,
                             MemoryRegionSection *section)
{
    QpairState *s = container_of(listener, QpairState, listener);

    if (memory_region_is_iommu(section->mr) && s->translations++ == 0) {
        qpair_model_bind(s->model, true);
    }
}

/*
 * Mappings may be in this range. They also keep the whole view that they are of,
 * and that keeps all its regions: without this, another device that is unplugged
 * would exist until the function maps anew.
 */
static void qpair_region_del(MemoryListener *listener,
                             MemoryRegionSection *section)
{
    QpairState *s = container_of(listener, QpairState, listener);

    if (memory_region_is_iommu(section->mr)) {
        s->translations--;
    }
    s->view_changed = true;
}

static void qpair_commit(MemoryListener *listener)
{
    QpairState *s = container_of(listener, QpairState, listener);

    if (s->view_changed) {
        s->view_changed = false;
        trace_qpair_unmap_all(qpair_id(s));
        qpair_model_unmap_all(s->model);
        qpair_model_bind(s->model, s->translations != 0);
        if (s->iothread && s->translations == 0) {
            /*
             * The main loop may have been scheduled for work that the IOThread
             * does now.
             */
            qpair_wake(s);
        }
    }
    qpair_deliver_later(s);
}

/*
 * The machine stops, or goes on. The model's lock is taken here, so no DMA is in
 * flight when stop returns.
 */
static void qpair_vm_change(void *opaque, bool running, RunState state)
{
    QpairState *s = opaque;

    qpair_model_halt(s->model, !running);
    qpair_deliver_later(s);
}

/* Function level reset, bus reset, machine reset. */
static void qpair_reset_hold(Object *obj, ResetType type)
{
    QpairState *s = QPAIR(obj);

    if (!s->present) {
        return;
    }
    qemu_bh_cancel(s->core_bh);
    timer_del(s->core_timer);
    timer_del(s->deadline_timer);
    pcie_cap_deverr_reset(PCI_DEVICE(s));
    qpair_model_reset(s->model);
    qpair_wire_reset(s);
    /* Nothing is raised from here on: a function that is off has no EQ. */
    qpair_routes_follow(s, false);
    qpair_interrupts_reset(s);
}

/* Realize and exit. */

static void qpair_instance_finalize(Object *obj)
{
    QpairState *s = QPAIR(obj);

    g_clear_pointer(&s->model, qpair_model_free);
    g_clear_pointer(&s->raised, g_free);
    qpair_settings_free(s);
}

/* In the thread of the core's bottom half and timers: none of them runs. */
static void qpair_leave(void *opaque)
{
    QpairState *s = opaque;

    g_clear_pointer(&s->core_bh, qemu_bh_delete);
    g_clear_pointer(&s->core_timer, timer_free);
    g_clear_pointer(&s->deadline_timer, timer_free);
}

/* Undoes realize, also a failed one. */
static void qpair_exit(PCIDevice *pci)
{
    QpairState *s = QPAIR(pci);

    s->present = false;
    qpair_wire_detach(s);
    migrate_del_blocker(&s->migration_blocker);
    if (s->vm_change) {
        qemu_del_vm_change_state_handler(s->vm_change);
        s->vm_change = NULL;
    }
    qpair_routes_follow(s, false);
    msix_uninit_exclusive_bar(pci);
    qpair_caps_exit(pci);
    if (s->model) {
        qpair_model_end(s->model);
    }
    qpair_wire_free(s);
    if (s->iothread) {
        aio_wait_bh_oneshot(iothread_get_aio_context(s->iothread), qpair_leave,
                            s);
    } else {
        qpair_leave(s);
    }
    /* Not earlier: this would unbind the model although an IOMMU translates. */
    if (s->listener.address_space) {
        memory_listener_unregister(&s->listener);
    }
    g_clear_pointer(&s->main_bh, qemu_bh_delete);
    qpair_interrupts_exit(s);
}

/* Sets up the context in which the core runs. */
static bool qpair_settle(QpairState *s, Error **errp)
{
    AioContext *context;

    if (s->iothread && icount_enabled()) {
        error_setg(errp, "%s: iothread= does not go with -icount, under which "
                   "the guest's instructions alone decide when the core runs; "
                   "leave out one of the two", qpair_id(s));
        return false;
    }
    s->main_bh = qemu_bh_new(qpair_run_bound, s);
    if (!s->iothread) {
        s->core_bh = aio_bh_new(iohandler_get_aio_context(),
                                qpair_run_unlocked, s);
        s->core_timer = timer_new_ns(QEMU_CLOCK_VIRTUAL, qpair_run, s);
        s->deadline_timer = timer_new_ns(QEMU_CLOCK_VIRTUAL, qpair_deadline,
                                         s);
        return true;
    }
    context = iothread_get_aio_context(s->iothread);
    s->core_bh = aio_bh_new(context, qpair_run_apart, s);
    s->core_timer = qpair_timer_new(context, s->core_bh, qpair_run_apart, s);
    s->deadline_timer = qpair_timer_new(context, s->core_bh, qpair_run_apart,
                                        s);
    return true;
}

static void qpair_realize(PCIDevice *pci, Error **errp)
{
    ERRP_GUARD();
    QpairState *s = QPAIR(pci);
    DeviceState *dev = DEVICE(pci);
    QpairFacts facts = qpair_facts();
    char reason[QPAIR_REASON_BYTES];
    uint32_t i;

    if (s->model) {
        error_setg(errp, "%s: cannot be realized again; create a new one",
                   qpair_id(s));
        return;
    }
    if (!qpair_settle(s, errp)) {
        return;
    }
    if (!qpair_caps_init(pci, errp)) {
        goto fail;
    }

    /* The callbacks that the model's creation may call work from here on. */
    s->model = qpair_model_new(qpair_host(s), s->settings, icount_enabled(),
                               s->netdev && *s->netdev, reason, sizeof(reason));
    if (!s->model) {
        error_setg(errp, "%s", reason);
        goto fail;
    }
    if (!qpair_texts_init(s, errp)) {
        goto fail;
    }
    s->paced = icount_enabled() || qpair_model_paced(s->model);
    s->vectors = qpair_model_vectors(s->model);
    if (!qpair_interrupts_init(s, errp)) {
        goto fail;
    }
    if (msix_init_exclusive_bar(pci, s->vectors, facts.bar_msix, errp) < 0) {
        goto fail;
    }
    for (i = 0; i < s->vectors; i++) {
        msix_vector_use(pci, i);
    }
    memory_region_init_io(&s->registers, OBJECT(s), &qpair_reg_ops, s,
                          "qpair-registers", facts.register_bytes);
    pci_register_bar(pci, facts.bar_registers, PCI_BASE_ADDRESS_SPACE_MEMORY,
                     &s->registers);
    memory_region_init_io(&s->doorbells, OBJECT(s), &qpair_doorbell_ops, s,
                          "qpair-doorbells",
                          pow2ceil(qpair_model_doorbell_bytes(s->model)));
    if (!icount_enabled() && !s->locked_doorbells) {
        memory_region_enable_lockless_io(&s->doorbells);
    }
    pci_register_bar(pci, facts.bar_doorbells,
                     PCI_BASE_ADDRESS_SPACE_MEMORY |
                     PCI_BASE_ADDRESS_MEM_TYPE_64, &s->doorbells);

    error_setg(&s->migration_blocker, "%s: its queues cannot be migrated",
               qpair_id(s));
    if (migrate_add_blocker(&s->migration_blocker, errp) < 0) {
        goto fail;
    }
    if (!qpair_wire_attach(s, errp)) {
        goto fail;
    }
    s->listener = (MemoryListener) {
        .name = TYPE_QPAIR,
        .region_add = qpair_region_add,
        .region_del = qpair_region_del,
        .commit = qpair_commit,
    };
    s->present = true;
    s->vm_change = qdev_add_vm_change_state_handler(dev, qpair_vm_change,
                                                    NULL, s);
    memory_listener_register(&s->listener, pci_get_address_space(pci));
    return;

fail:
    qpair_exit(pci);
    g_clear_pointer(&s->model, qpair_model_free);
    g_clear_pointer(&s->raised, g_free);
}

static void qpair_class_init(ObjectClass *class, QpairClassData *data)
{
    DeviceClass *dc = DEVICE_CLASS(class);
    PCIDeviceClass *k = PCI_DEVICE_CLASS(class);
    ResettableClass *rc = RESETTABLE_CLASS(class);
    QpairFacts facts = qpair_facts();

    k->realize = qpair_realize;
    k->exit = qpair_exit;
    k->config_read = qpair_config_read;
    k->config_write = qpair_config_write;
    k->vendor_id = facts.vendor;
    k->device_id = facts.device;
    k->revision = facts.revision;
    k->class_id = PCI_CLASS_OTHERS << 8; /* a base class, with no subclasses */
    rc->phases.hold = qpair_reset_hold;
    dc->desc = "queue pairs, completion queues and event queues";
    set_bit(DEVICE_CATEGORY_MISC, dc->categories);
    qpair_add_properties(class);
}

static const TypeInfo qpair_info = {
    .name = TYPE_QPAIR,
    .parent = TYPE_QPAIR_FUNCTION,
    .instance_finalize = qpair_instance_finalize,
    .class_init = qpair_class_init,
};

static void qpair_register_types(void)
{
    type_register_static(&qpair_info);
}
type_init(qpair_register_types)
