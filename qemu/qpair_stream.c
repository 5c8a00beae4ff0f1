/* SPDX-License-Identifier: GPL-2.0 */
/*
 * qpair-stream: a PCI function of pairs of channels.
 *
 * This code connects its model to QEMU, as qpair.c does for the function of
 * queue pairs, with the same callbacks (qpair_host.c) and interrupts
 * (qpair_interrupts.c). There is no IOThread: everything runs under the BQL,
 * and the channels have their turns in a bottom half of the main loop, or, under
 * -icount, at deadlines of the virtual clock. The model keeps no memory mapped,
 * so the function's view of memory may change at any time.
 */

#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/timer.h"
#include "qapi/error.h"
#include "qapi/visitor.h"
#include "hw/core/cpu.h"
#include "hw/pci/msix.h"
#include "hw/pci/pcie.h"
#include "migration/blocker.h"
#include "qpair.h"
#include "trace.h"

OBJECT_DECLARE_SIMPLE_TYPE(QpairStreamState, QPAIR_STREAM)

struct QpairStreamState {
    QpairState base;
    QpairStream *stream;        /* from realize until finalize */
    bool halted;                /* the machine is stopped */
    uint32_t channels;          /* what was asked for ... */
    char *kind;
};

static void qpair_stream_work(void *opaque)
{
    QpairStreamState *s = opaque;
    MemReentrancyGuard *guard = &DEVICE(s)->mem_reentrancy_guard;

    if (!s->base.present || s->halted) {
        return;
    }
    trace_qpair_round(qpair_id(&s->base), false);
    object_ref(OBJECT(s));
    guard->engaged_in_io = true;
    if (qpair_stream_run(s->stream)) {
        qpair_wake(&s->base);
    }
    qpair_deliver(&s->base);
    guard->engaged_in_io = false;
    object_unref(OBJECT(s));
}

/*
 * The machine stops or continues. Work that became due while it was stopped is
 * executed when it continues.
 */
static void qpair_stream_vm_change(void *opaque, bool running, RunState state)
{
    QpairStreamState *s = opaque;

    s->halted = !running;
    if (running) {
        qpair_wake(&s->base);
    }
}

static uint64_t qpair_stream_read(void *opaque, hwaddr addr, unsigned size)
{
    QpairStreamState *s = opaque;
    uint32_t value = qpair_stream_reg_read(s->stream, addr);

    trace_qpair_reg_read(qpair_id(&s->base), addr, value);
    return value;
}

static void qpair_stream_write(void *opaque, hwaddr addr, uint64_t value,
                               unsigned size)
{
    QpairStreamState *s = opaque;

    trace_qpair_reg_write(qpair_id(&s->base), addr, value);
    qpair_stream_reg_write(s->stream, addr, value);
    qpair_deliver(&s->base);
}

static const MemoryRegionOps qpair_stream_ops = {
    .read = qpair_stream_read,
    .write = qpair_stream_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 4, .max_access_size = 4 },
    .impl = { .min_access_size = 4, .max_access_size = 4 },
};

static bool qpair_stream_vanished(QpairStreamState *s)
{
    return s->base.present &&
           qpair_stream_get(s->stream, QPAIR_KNOB_VANISH);
}

static uint32_t qpair_stream_config_read(PCIDevice *pci, uint32_t addr, int len)
{
    if (qpair_stream_vanished(QPAIR_STREAM(pci))) {
        return UINT32_MAX >> (32 - 8 * len);
    }
    return pci_default_read_config(pci, addr, len);
}

static void qpair_stream_config_write(PCIDevice *pci, uint32_t addr,
                                      uint32_t value, int len)
{
    if (!qpair_stream_vanished(QPAIR_STREAM(pci))) {
        qpair_caps_write(pci, addr, value, len);
    }
}

/* Function level reset, bus reset, machine reset. */
static void qpair_stream_reset_hold(Object *obj, ResetType type)
{
    QpairStreamState *s = QPAIR_STREAM(obj);

    if (!s->base.present) {
        return;
    }
    qemu_bh_cancel(s->base.core_bh);
    timer_del(s->base.core_timer);
    timer_del(s->base.deadline_timer);
    pcie_cap_deverr_reset(PCI_DEVICE(s));
    qpair_stream_reset(s->stream);
    qpair_interrupts_reset(&s->base);
}

/* Properties. */

static void qpair_stream_get_count(Object *obj, Visitor *v, const char *name,
                                   void *opaque, Error **errp)
{
    QpairStreamState *s = QPAIR_STREAM(obj);
    uint32_t index = GPOINTER_TO_UINT(opaque);
    uint64_t value = s->base.present ? qpair_stream_count(s->stream, index) : 0;

    visit_type_uint64(v, name, &value, errp);
}

static const struct {
    const char *name;
    const char *text;
} qpair_knobs[] = {
    [QPAIR_KNOB_STALL] = { "stall", "test: the channels get no turns" },
    [QPAIR_KNOB_VANISH] = {
        "vanish", "test: the function is gone: all reads are ones" },
    [QPAIR_KNOB_DROP_INTERRUPTS] = {
        "drop-interrupts", "test: the next N interrupts get lost" },
};

static void qpair_stream_get_knob(Object *obj, Visitor *v, const char *name,
                                  void *opaque, Error **errp)
{
    QpairStreamState *s = QPAIR_STREAM(obj);
    uint32_t knob = GPOINTER_TO_UINT(opaque);
    uint32_t value = s->base.present ? qpair_stream_get(s->stream, knob) : 0;
    bool on = value;

    if (knob == QPAIR_KNOB_DROP_INTERRUPTS) {
        visit_type_uint32(v, name, &value, errp);
    } else {
        visit_type_bool(v, name, &on, errp);
    }
}

static void qpair_stream_set_knob(Object *obj, Visitor *v, const char *name,
                                  void *opaque, Error **errp)
{
    QpairStreamState *s = QPAIR_STREAM(obj);
    uint32_t knob = GPOINTER_TO_UINT(opaque);
    uint32_t value = 0;
    bool on = false;

    if (knob == QPAIR_KNOB_DROP_INTERRUPTS) {
        if (!visit_type_uint32(v, name, &value, errp)) {
            return;
        }
    } else if (visit_type_bool(v, name, &on, errp)) {
        value = on;
    } else {
        return;
    }
    if (!s->base.present) {
        error_setg(errp, "%s: '%s' can be set once the device is realized; "
                   "use qom-set", qpair_id(&s->base), name);
        return;
    }
    qpair_stream_set(s->stream, knob, value);
    qpair_deliver(&s->base);
}

static const Property qpair_stream_properties[] = {
    DEFINE_PROP_UNSIGNED_NODEFAULT("channels", QpairStreamState, channels,
                                   qdev_prop_uint32, uint32_t),
    DEFINE_PROP_STRING("kind", QpairStreamState, kind),
};

static void qpair_stream_add_properties(ObjectClass *class)
{
    QpairStreamFacts facts = qpair_stream_facts();
    ObjectProperty *property;
    uint32_t i;

    device_class_set_props(DEVICE_CLASS(class), qpair_stream_properties);
    property = object_class_property_find(class, "channels");
    object_property_set_default_uint(property, facts.channels);
    object_class_property_set_description(class, "channels",
        "pairs of a transmit and a receive channel");
    object_class_property_set_description(class, "kind",
        "chain, headtail, or mixed: even pairs are chains (default: mixed)");
    for (i = 0; i < ARRAY_SIZE(qpair_knobs); i++) {
        bool number = i == QPAIR_KNOB_DROP_INTERRUPTS;

        object_class_property_add(class, qpair_knobs[i].name,
                                  number ? "uint32" : "bool",
                                  qpair_stream_get_knob, qpair_stream_set_knob,
                                  NULL, GUINT_TO_POINTER(i));
        object_class_property_set_description(class, qpair_knobs[i].name,
                                              qpair_knobs[i].text);
    }
    for (i = 0; i < facts.counters; i++) {
        QpairCounter counter = qpair_stream_counter(i);
        g_autofree char *name = g_strndup(counter.name.text,
                                          counter.name.bytes);
        g_autofree char *full = g_strdup_printf("counter: %.*s",
                                                (int)counter.text.bytes,
                                                counter.text.text);

        object_class_property_add(class, name, "uint64", qpair_stream_get_count,
                                  NULL, NULL, GUINT_TO_POINTER(i));
        object_class_property_set_description(class, name, full);
    }
}

/* Realize and exit. */

static void qpair_stream_finalize(Object *obj)
{
    QpairStreamState *s = QPAIR_STREAM(obj);

    g_clear_pointer(&s->stream, qpair_stream_free);
    g_clear_pointer(&s->base.raised, g_free);
}

/* Undoes realize, also a failed one. */
static void qpair_stream_exit(PCIDevice *pci)
{
    QpairStreamState *s = QPAIR_STREAM(pci);
    QpairState *base = &s->base;

    base->present = false;
    migrate_del_blocker(&base->migration_blocker);
    if (base->vm_change) {
        qemu_del_vm_change_state_handler(base->vm_change);
        base->vm_change = NULL;
    }
    msix_uninit_exclusive_bar(pci);
    qpair_caps_exit(pci);
    if (s->stream) {
        qpair_stream_end(s->stream);
    }
    g_clear_pointer(&base->core_bh, qemu_bh_delete);
    g_clear_pointer(&base->core_timer, timer_free);
    g_clear_pointer(&base->deadline_timer, timer_free);
    qpair_interrupts_exit(base);
}

static void qpair_stream_realize(PCIDevice *pci, Error **errp)
{
    ERRP_GUARD();
    QpairStreamState *s = QPAIR_STREAM(pci);
    QpairState *base = &s->base;
    QpairStreamFacts facts = qpair_stream_facts();
    const char *kind = s->kind ?: "mixed";
    char reason[QPAIR_REASON_BYTES];
    uint32_t i;

    if (s->stream) {
        error_setg(errp, "%s: cannot be realized again; create a new one",
                   qpair_id(base));
        return;
    }
    base->core_bh = qemu_bh_new(qpair_stream_work, s);
    base->core_timer = timer_new_ns(QEMU_CLOCK_VIRTUAL, qpair_stream_work, s);
    base->deadline_timer = timer_new_ns(QEMU_CLOCK_VIRTUAL, qpair_stream_work,
                                        s);
    base->paced = icount_enabled();
    if (!qpair_caps_init(pci, errp)) {
        goto fail;
    }
    /* The callbacks that the model's creation may call work from here on. */
    s->stream = qpair_stream_new(qpair_host(base), s->channels, kind,
                                 strlen(kind), reason, sizeof(reason));
    if (!s->stream) {
        error_setg(errp, "%s", reason);
        goto fail;
    }
    base->vectors = qpair_stream_vectors(s->stream);
    if (!qpair_interrupts_init(base, errp) ||
        msix_init_exclusive_bar(pci, base->vectors, facts.bar_msix, errp) < 0) {
        goto fail;
    }
    for (i = 0; i < base->vectors; i++) {
        msix_vector_use(pci, i);
    }
    memory_region_init_io(&base->registers, OBJECT(s), &qpair_stream_ops, s,
                          "qpair-stream-registers", facts.register_bytes);
    pci_register_bar(pci, facts.bar_registers, PCI_BASE_ADDRESS_SPACE_MEMORY,
                     &base->registers);
    error_setg(&base->migration_blocker, "%s: its channels cannot be migrated",
               qpair_id(base));
    if (migrate_add_blocker(&base->migration_blocker, errp) < 0) {
        goto fail;
    }
    base->present = true;
    base->vm_change = qdev_add_vm_change_state_handler(DEVICE(s),
                                                       qpair_stream_vm_change,
                                                       NULL, s);
    return;

fail:
    qpair_stream_exit(pci);
    g_clear_pointer(&s->stream, qpair_stream_free);
    g_clear_pointer(&base->raised, g_free);
}

static void qpair_stream_class_init(ObjectClass *class, QpairClassData *data)
{
    DeviceClass *dc = DEVICE_CLASS(class);
    PCIDeviceClass *k = PCI_DEVICE_CLASS(class);
    ResettableClass *rc = RESETTABLE_CLASS(class);
    QpairStreamFacts facts = qpair_stream_facts();

    k->realize = qpair_stream_realize;
    k->exit = qpair_stream_exit;
    k->config_read = qpair_stream_config_read;
    k->config_write = qpair_stream_config_write;
    k->vendor_id = facts.vendor;
    k->device_id = facts.device;
    k->revision = facts.revision;
    k->class_id = PCI_CLASS_OTHERS << 8; /* a base class, with no subclasses */
    rc->phases.hold = qpair_stream_reset_hold;
    dc->desc = "channels of descriptors: chains, and rings with head and tail";
    set_bit(DEVICE_CATEGORY_MISC, dc->categories);
    qpair_stream_add_properties(class);
}

static const TypeInfo qpair_stream_info = {
    .name = TYPE_QPAIR_STREAM,
    .parent = TYPE_QPAIR_FUNCTION,
    .instance_size = sizeof(QpairStreamState),
    .instance_finalize = qpair_stream_finalize,
    .class_init = qpair_stream_class_init,
};

static void qpair_stream_register_types(void)
{
    type_register_static(&qpair_stream_info);
}
type_init(qpair_stream_register_types)
