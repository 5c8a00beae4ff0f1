/* SPDX-License-Identifier: GPL-2.0 */
/*
 * qpair: interrupts, from the model to the guest.
 *
 * An interrupt is raised inside the model and sent when the thread has left it,
 * because the guest chooses the address of a message: it may be a register of
 * this device. In between the interrupt is a bit of `raised`. The bit is
 * cleared before its message is sent, so an interrupt that is raised meanwhile
 * is sent as well. A reset of the PCI function clears all bits: an interrupt
 * that was raised before it is not sent after it. CTRL.reset does not, and an
 * interrupt without an event may follow it.
 *
 * The BQL protects MSI-X:
 *
 * - A thread that holds the BQL sends when the model has returned.
 * - A CPU that rings a doorbell takes the BQL and sends. So does the main loop
 *   after the core's work.
 * - The IOThread takes the BQL only if it is free, and never waits for it: a
 *   holder of the BQL may wait for the IOThread, for example in exit, or in the
 *   drain of a block device that has the same IOThread. If the BQL is not free,
 *   a bottom half of the main loop sends.
 *
 * Lock order: the BQL, then the model's lock. The IOThread leaves the model
 * before it tries to take the BQL, since a message may re-enter the model.
 *
 * The IOThread sends to the interrupt controller only. A message to any other
 * address is an access to some device, which may expect the main loop or a CPU,
 * and may even unplug this device: the main loop sends those, too.
 *
 * With KVM and an IOThread, a vector that is not masked has an eventfd and a
 * route: KVM sends its message, and no thread needs the BQL.
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/event_notifier.h"
#include "qemu/main-loop.h"
#include "qapi/error.h"
#include "hw/core/cpu.h"
#include "hw/pci/msi.h"
#include "hw/pci/msix.h"
#include "system/cpus.h"
#include "system/kvm.h"
#include "qpair.h"
#include "trace.h"

struct QpairRoute {
    EventNotifier notifier;
    int virq;
    bool live;                  /* KVM listens; the BQL's to change, atomic */
};

/* Inside the model, with the BQL or without it. */
void qpair_raise(void *opaque, uint32_t vector)
{
    QpairState *s = opaque;

    if (s->routes && qatomic_read(&s->routes[vector].live)) {
        event_notifier_set(&s->routes[vector].notifier);
        return;
    }
    set_bit_atomic(vector, s->raised);
    qatomic_store_release(&s->pending, true);
}

/* x86: whether the message goes to the local APICs. */
static bool qpair_is_for_apic(QpairState *s, uint32_t vector)
{
    return msix_get_message(&s->pci, vector).address >> 20 == 0xfee;
}

/*
 * With the BQL. A message may have any effect, including an unplug or a call of
 * this function: such a call returns, and the outer one sends what it has
 * added.
 */
static void qpair_send(QpairState *s, bool apart)
{
    bool left = false;
    uint32_t vector;

    if (s->delivering || !qatomic_read(&s->pending)) {
        return;
    }
    object_ref(OBJECT(s));
    s->delivering = true;
    while (s->present && qatomic_xchg(&s->pending, false)) {
        for (vector = 0; s->present; vector++) {
            vector = find_next_bit(s->raised, s->vectors, vector);
            if (vector >= s->vectors) {
                break;
            }
            if (apart && !qpair_is_for_apic(s, vector)) {
                left = true;
                continue;
            }
            clear_bit_atomic(vector, s->raised);
            trace_qpair_message(qpair_id(s), vector, apart);
            msix_notify(&s->pci, vector);
        }
    }
    if (left) {
        qatomic_set(&s->pending, true);
    }
    s->delivering = false;
    object_unref(OBJECT(s));
}

void qpair_deliver(QpairState *s)
{
    qpair_send(s, false);
}

void qpair_deliver_later(QpairState *s)
{
    if (s->main_bh && qatomic_read(&s->pending)) {
        qemu_bh_schedule(s->main_bh);
    }
}

void qpair_deliver_apart(QpairState *s)
{
    if (qatomic_read(&s->pending) && bql_trylock()) {
        qpair_send(s, true);
        bql_unlock();
    }
    qpair_deliver_later(s);
}

void qpair_interrupts_reset(QpairState *s)
{
    uint32_t i;

    bitmap_zero(s->raised, s->vectors);
    for (i = 0; s->routes && i < s->vectors; i++) {
        event_notifier_test_and_clear(&s->routes[i].notifier);
    }
}

/* KVM's routes. All of this runs under the BQL. */

static void qpair_route_drop(PCIDevice *pci, unsigned vector)
{
    struct QpairRoute *route = &QPAIR(pci)->routes[vector];

    if (!route->live) {
        return;
    }
    qatomic_set(&route->live, false);
    kvm_irqchip_remove_irqfd_notifier_gsi(kvm_state, &route->notifier,
                                          route->virq);
    kvm_irqchip_release_virq(kvm_state, route->virq);
}

/*
 * An eventfd that was signaled just before its route was removed makes the
 * vector pending.
 */
static void qpair_route_poll(PCIDevice *pci, unsigned first, unsigned end)
{
    QpairState *s = QPAIR(pci);
    unsigned i;

    for (i = first; i < end; i++) {
        if (!s->routes[i].live &&
            event_notifier_test_and_clear(&s->routes[i].notifier)) {
            msix_set_pending(pci, i);
        }
    }
}

/* msix_notify() handles a masked vector, too. */
static void qpair_route_missing(PCIDevice *pci, unsigned vector)
{
    struct QpairRoute *route = &QPAIR(pci)->routes[vector];

    if (event_notifier_test_and_clear(&route->notifier)) {
        msix_notify(pci, vector);
    }
}

/*
 * If the eventfd is signaled already, KVM sends at once. If no route can be
 * made, this function sends the interrupt or makes it pending, and later
 * interrupts take the path of a device without routes.
 */
static int qpair_route_make(PCIDevice *pci, unsigned vector, MSIMessage message)
{
    struct QpairRoute *route = &QPAIR(pci)->routes[vector];
    AccelRouteChange change = accel_irqchip_begin_route_changes();
    int virq = kvm_irqchip_add_msi_route(&change, vector, pci);

    if (virq < 0) {
        qpair_route_missing(pci, vector);
        return 0;
    }
    accel_irqchip_commit_route_changes(&change);
    if (kvm_irqchip_add_irqfd_notifier_gsi(kvm_state, &route->notifier, NULL,
                                           virq) < 0) {
        kvm_irqchip_release_virq(kvm_state, virq);
        qpair_route_missing(pci, vector);
        return 0;
    }
    route->virq = virq;
    qatomic_set(&route->live, true);
    return 0;
}

void qpair_routes_follow(QpairState *s, bool enabled)
{
    uint32_t i;

    if (!s->routes || enabled == !!s->pci.msix_vector_use_notifier) {
        return;
    }
    if (enabled) {
        msix_set_vector_notifiers(&s->pci, qpair_route_make, qpair_route_drop,
                                  qpair_route_poll);
        return;
    }
    msix_unset_vector_notifiers(&s->pci);
    /* If MSI-X is off already, it has called none of these. */
    for (i = 0; i < s->vectors; i++) {
        qpair_route_drop(&s->pci, i);
    }
}

bool qpair_interrupts_init(QpairState *s, Error **errp)
{
    uint32_t i;

    s->raised = bitmap_new(s->vectors);
    if (!s->iothread || !kvm_msi_via_irqfd_enabled()) {
        return true;
    }
    s->routes = g_new0(struct QpairRoute, s->vectors);
    for (i = 0; i < s->vectors; i++) {
        if (event_notifier_init(&s->routes[i].notifier, 0) < 0) {
            error_setg(errp, "%s: no eventfd for vector %u", qpair_id(s), i);
            while (i-- > 0) {
                event_notifier_cleanup(&s->routes[i].notifier);
            }
            g_clear_pointer(&s->routes, g_free);
            return false;
        }
    }
    return true;
}

/* The model has ended, and no thread raises. */
void qpair_interrupts_exit(QpairState *s)
{
    uint32_t i;

    for (i = 0; s->routes && i < s->vectors; i++) {
        event_notifier_cleanup(&s->routes[i].notifier);
    }
    g_clear_pointer(&s->routes, g_free);
}
