/* SPDX-License-Identifier: GPL-2.0 */
/*
 * qpair: a PCI function whose only job is queue pairs.
 *
 * This file is plumbing. What the device does is decided by its model, a Rust
 * crate that knows nothing of QEMU and is called through qpair_ffi.h: guest
 * accesses go in, and memory accesses, interrupts and wake-ups come out
 * through the callbacks of QpairHost. Registers, BARs, properties and counters
 * are described by tables of the model's; nothing is listed twice.
 *
 * Rules:
 *
 * - Everything runs under the BQL. The model is never entered while it is
 *   running: a guest can aim our own DMA or interrupts at our own BARs or
 *   configuration space. So DMA reaches RAM only (MemTxAttrs.memory),
 *   interrupts are collected and sent when the model has returned, and the
 *   model's own guard (see qpair_ffi.h) refuses or puts off what still comes.
 * - The core works in a bottom half. Under -icount, or with a pace set, it
 *   works at deadlines of the virtual clock and never in a bottom half, so
 *   that two runs of one workload are the same.
 * - Memory stays mapped as long as our view of it has that range: a listener
 *   on the function's DMA address space hears when bus mastering goes, memory
 *   is unplugged or an IOMMU is switched on. Behind an IOMMU nothing is kept
 *   mapped: each access is translated, so an unmap has nothing to undo.
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/timer.h"
#include "qapi/error.h"
#include "qapi/visitor.h"
#include "hw/pci/msix.h"
#include "hw/pci/pci_device.h"
#include "hw/pci/pcie.h"
#include "migration/blocker.h"
#include "qom/object.h"
#include "system/cpu-timers.h"
#include "qpair_ffi.h"
#include "trace.h"

#define TYPE_QPAIR "qpair"

/* Room for the model's words on why it refused something. */
#define QPAIR_REASON_BYTES 256

OBJECT_DECLARE_SIMPLE_TYPE(QpairState, QPAIR)

struct QpairState {
    PCIDevice pci;
    MemoryRegion registers;
    MemoryRegion doorbells;
    MemoryListener listener;
    Error *migration_blocker;

    QpairModel *model;          /* from realize to exit */
    uint64_t *settings;         /* what was asked for, by index */

    QEMUBH *core_bh;            /* the core has work, in real time ... */
    QEMUTimer *core_timer;      /* ... and in virtual time */
    QEMUTimer *deadline_timer;  /* the model's next deadline */
    bool paced;                 /* in virtual time */

    uint32_t vectors;
    unsigned long *raised;      /* vectors to send when the model has returned */
};

/* DMA is for RAM: neither our own BARs nor anybody else's. */
static const MemTxAttrs qpair_attrs = { .memory = 1 };

static const char *qpair_id(QpairState *s)
{
    const char *id = DEVICE(s)->id;

    return id ? id : TYPE_QPAIR;
}

/* What the model asks of its host. */

static bool qpair_dma_read(void *opaque, uint64_t addr, void *buf, size_t bytes)
{
    QpairState *s = opaque;
    AddressSpace *as = pci_get_address_space(&s->pci);

    if (address_space_read(as, addr, qpair_attrs, buf, bytes) == MEMTX_OK) {
        return true;
    }
    trace_qpair_dma_fault(qpair_id(s), addr, bytes, false);
    return false;
}

static bool qpair_dma_write(void *opaque, uint64_t addr, const void *buf,
                            size_t bytes)
{
    QpairState *s = opaque;
    AddressSpace *as = pci_get_address_space(&s->pci);

    if (address_space_write(as, addr, qpair_attrs, buf, bytes) == MEMTX_OK) {
        return true;
    }
    trace_qpair_dma_fault(qpair_id(s), addr, bytes, true);
    return false;
}

/*
 * One aligned word, whole, with all earlier writes before it. The access itself
 * does not heed MemTxAttrs.memory, so where it goes is looked at first.
 */
static bool qpair_dma_write_word(void *opaque, uint64_t addr, uint64_t word)
{
    QpairState *s = opaque;
    AddressSpace *as = pci_get_address_space(&s->pci);
    MemTxResult result = MEMTX_ACCESS_ERROR;
    hwaddr offset, bytes = sizeof(word);
    MemoryRegion *mr;

    RCU_READ_LOCK_GUARD();
    mr = address_space_translate(as, addr, &offset, &bytes, true, qpair_attrs);
    if (bytes == sizeof(word) &&
        memory_access_is_direct(mr, true, qpair_attrs)) {
        smp_wmb();
        address_space_stq_le(as, addr, word, qpair_attrs, &result);
    }
    if (result == MEMTX_OK) {
        return true;
    }
    trace_qpair_dma_fault(qpair_id(s), addr, sizeof(word), true);
    return false;
}

/*
 * Maps guest RAM until qpair_unmap(); NULL where it cannot be mapped as one
 * piece, or where a translation stands between (an IOMMU's region is no RAM).
 * The mapping holds references, so the memory is there even when a listener's
 * news comes too late.
 */
static void *qpair_map(void *opaque, uint64_t addr, size_t bytes,
                       void **mapping)
{
    QpairState *s = opaque;
    MemoryRegionCache *cache;
    void *host = NULL;

    if (bytes == 0 || addr + (bytes - 1) < addr) {
        return NULL;
    }
    cache = g_new0(MemoryRegionCache, 1);
    RCU_READ_LOCK_GUARD();
    if (address_space_cache_init(cache, pci_get_address_space(&s->pci), addr,
                                 bytes, true) >= bytes) {
        host = cache->ptr;
    }
    trace_qpair_map(qpair_id(s), addr, bytes, host != NULL);
    if (!host) {
        address_space_cache_destroy(cache);
        g_free(cache);
        return NULL;
    }
    *mapping = cache;
    return host;
}

/* Guest code that was translated from these bytes is not valid any more. */
static void qpair_written(void *mapping, size_t at, size_t bytes)
{
    MemoryRegionCache *cache = mapping;

    address_space_cache_invalidate(cache, at, bytes);
}

static void qpair_unmap(void *mapping)
{
    MemoryRegionCache *cache = mapping;

    address_space_cache_destroy(cache);
    g_free(cache);
}

static void qpair_raise(void *opaque, uint32_t vector)
{
    QpairState *s = opaque;

    set_bit(vector, s->raised);
}

static uint64_t qpair_now(void *opaque)
{
    return qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL);
}

static bool qpair_bus_master(void *opaque)
{
    QpairState *s = opaque;

    return pci_get_word(s->pci.config + PCI_COMMAND) & PCI_COMMAND_MASTER;
}

/* The core has work: soon, but never from inside of the model. */
static void qpair_wake(void *opaque)
{
    QpairState *s = opaque;

    if (s->paced) {
        timer_mod_anticipate_ns(s->core_timer, qpair_now(s));
    } else {
        qemu_bh_schedule(s->core_bh);
    }
}

/* The next deadline of the model's. */
static void qpair_wake_at(void *opaque, uint64_t nanos)
{
    QpairState *s = opaque;

    if (nanos > INT64_MAX) {
        timer_del(s->deadline_timer);
    } else {
        timer_mod_ns(s->deadline_timer, nanos);
    }
}

static void qpair_trace(void *opaque, QpairTrace what, const uint64_t *a)
{
    const char *id = qpair_id(opaque);

    switch (what) {
    case QPAIR_TRACE_DOORBELL:
        trace_qpair_doorbell(id, a[0], a[1], a[2] & 0xffff, a[2] >> 16 & 0xffff,
                             a[2] >> 32);
        break;
    case QPAIR_TRACE_VIOLATION:
        trace_qpair_violation(id, a[0], a[1]);
        break;
    case QPAIR_TRACE_FETCH:
        trace_qpair_fetch(id, a[0] & 0xffff, a[0] >> 16, a[1], a[2]);
        break;
    case QPAIR_TRACE_FETCH_RECEIVE:
        trace_qpair_fetch_receive(id, a[0] & 0xffff, a[0] >> 16, a[1]);
        break;
    case QPAIR_TRACE_COMMAND:
        trace_qpair_command(id, a[0] >> 4, a[0] & 0xf, a[1] & 0xffff,
                            a[1] >> 16, a[2]);
        break;
    case QPAIR_TRACE_COMPLETION:
        trace_qpair_cqe(id, a[0] & 0xffff, a[0] >> 16, a[1],
                               a[2] & 0xffff, a[2] >> 16, a[3], a[4], a[5]);
        break;
    case QPAIR_TRACE_EVENT:
        trace_qpair_eqe(id, a[0] & 0xffff, a[0] >> 16, a[1], a[2],
                          a[3] & 0xffff, a[3] >> 16);
        break;
    case QPAIR_TRACE_INTERRUPT:
        trace_qpair_interrupt(id, a[0] & 0xffff, a[0] >> 16, a[1]);
        break;
    case QPAIR_TRACE_STATE:
        trace_qpair_state(id, a[0] & 0xffff, a[0] >> 16, a[1], a[2]);
        break;
    case QPAIR_TRACE_FATAL:
        trace_qpair_fatal(id, a[0]);
        break;
    case QPAIR_TRACE_RESET:
        trace_qpair_reset(id);
        break;
    }
}

/* The way into the model, and out again. */

/*
 * Sends the interrupts that were raised while the model ran. A message goes
 * where the guest says, so anything may happen meanwhile, an unplug included.
 */
static void qpair_deliver(QpairState *s)
{
    uint32_t vector;

    object_ref(OBJECT(s));
    while (s->model &&
           (vector = find_first_bit(s->raised, s->vectors)) < s->vectors) {
        clear_bit(vector, s->raised);
        msix_notify(&s->pci, vector);
    }
    object_unref(OBJECT(s));
}

/* The core works: from a bottom half, or from a timer of the virtual clock. */
static void qpair_run(void *opaque)
{
    QpairState *s = opaque;
    MemReentrancyGuard *guard = &DEVICE(s)->mem_reentrancy_guard;

    object_ref(OBJECT(s));
    guard->engaged_in_io = true;
    if (qpair_model_run(s->model)) {
        qpair_wake(s);
    }
    qpair_deliver(s);
    guard->engaged_in_io = false;
    object_unref(OBJECT(s));
}

/*
 * A CPU that has not yet seen that the function is gone may still get to its
 * registers: then there is no model, and they read as all ones.
 */
static uint64_t qpair_reg_read(void *opaque, hwaddr addr, unsigned size)
{
    QpairState *s = opaque;
    uint32_t value = s->model ? qpair_model_reg_read(s->model, addr) : UINT32_MAX;

    trace_qpair_reg_read(qpair_id(s), addr, value);
    return value;
}

static void qpair_reg_write(void *opaque, hwaddr addr, uint64_t value,
                            unsigned size)
{
    QpairState *s = opaque;

    if (!s->model) {
        return;
    }
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

static uint64_t qpair_doorbell_read(void *opaque, hwaddr addr, unsigned size)
{
    QpairState *s = opaque;

    return !s->model || qpair_model_vanished(s->model) ? UINT64_MAX : 0;
}

static void qpair_doorbell_write(void *opaque, hwaddr addr, uint64_t value,
                                 unsigned size)
{
    QpairState *s = opaque;

    if (!s->model) {
        return;
    }
    qpair_model_doorbell(s->model, addr, value, size);
    qpair_deliver(s);
}

/* Any width and alignment gets here: the model counts those that are wrong. */
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

    if (s->model && qpair_model_vanished(s->model)) {
        return UINT32_MAX >> (32 - 8 * len);
    }
    return pci_default_read_config(pci, addr, len);
}

static void qpair_config_write(PCIDevice *pci, uint32_t addr, uint32_t value,
                               int len)
{
    QpairState *s = QPAIR(pci);

    if (s->model && qpair_model_vanished(s->model)) {
        return;
    }
    pci_default_write_config(pci, addr, value, len);
    pcie_cap_flr_write_config(pci, addr, value, len);
}

/* Our view of memory lost a range: what is mapped may lie in it. */
static void qpair_region_del(MemoryListener *listener,
                             MemoryRegionSection *section)
{
    QpairState *s = container_of(listener, QpairState, listener);

    if (memory_region_is_ram(section->mr)) {
        trace_qpair_unmap_all(qpair_id(s));
        qpair_model_unmap_all(s->model);
    }
}

/* Function level reset, bus reset, machine reset. */
static void qpair_reset_hold(Object *obj, ResetType type)
{
    QpairState *s = QPAIR(obj);

    qemu_bh_cancel(s->core_bh);
    timer_del(s->core_timer);
    timer_del(s->deadline_timer);
    bitmap_zero(s->raised, s->vectors);
    qpair_model_reset(s->model);
}

/* Properties. */

static char *qpair_string(QpairText text)
{
    return g_strndup(text.text, text.bytes);
}

static void qpair_get_setting(Object *obj, Visitor *v, const char *name,
                              void *opaque, Error **errp)
{
    QpairState *s = QPAIR(obj);
    uint32_t index = GPOINTER_TO_UINT(opaque);
    uint64_t value = s->model ? qpair_model_get(s->model, index)
                              : s->settings[index];
    bool on = value;
    g_autofree char *none = g_strdup("");

    switch (qpair_setting(index).kind) {
    case QPAIR_KIND_NUMBER:
        visit_type_uint64(v, name, &value, errp);
        break;
    case QPAIR_KIND_SWITCH:
        visit_type_bool(v, name, &on, errp);
        break;
    case QPAIR_KIND_WORDS:
        visit_type_str(v, name, &none, errp);
        break;
    }
}

static void qpair_set_setting(Object *obj, Visitor *v, const char *name,
                              void *opaque, Error **errp)
{
    QpairState *s = QPAIR(obj);
    uint32_t index = GPOINTER_TO_UINT(opaque);
    g_autofree char *words = NULL;
    char reason[QPAIR_REASON_BYTES] = "there is no device yet";
    uint64_t value = 0;
    bool on, done;

    if (!s->settings) {
        /* The first default comes before anything else of the object. */
        s->settings = g_new0(uint64_t, qpair_facts().settings);
    }
    switch (qpair_setting(index).kind) {
    case QPAIR_KIND_NUMBER:
        done = visit_type_uint64(v, name, &value, errp);
        break;
    case QPAIR_KIND_SWITCH:
        done = visit_type_bool(v, name, &on, errp);
        value = done && on;
        break;
    case QPAIR_KIND_WORDS:
        done = visit_type_str(v, name, &words, errp);
        break;
    }
    if (!done) {
        return;
    }
    if (words) {
        done = s->model && qpair_model_set_words(s->model, index, words,
                                                 strlen(words), reason,
                                                 sizeof(reason));
    } else if (s->model) {
        done = qpair_model_set(s->model, index, value, reason, sizeof(reason));
    } else {
        s->settings[index] = value; /* realize checks it */
    }
    if (!done) {
        error_setg(errp, "%s", reason);
    } else if (s->model) {
        s->paced = icount_enabled() || qpair_model_paced(s->model);
        qpair_deliver(s);
    }
}

static void qpair_get_counter(Object *obj, Visitor *v, const char *name,
                              void *opaque, Error **errp)
{
    QpairState *s = QPAIR(obj);
    uint32_t index = GPOINTER_TO_UINT(opaque);
    uint64_t value = s->model ? qpair_model_counter(s->model, index) : 0;

    visit_type_uint64(v, name, &value, errp);
}

/*
 * The guest's instructions, which QEMU tells nobody else: with them it is known
 * what something costs in which somebody sleeps, as the guest's clock, which
 * jumps then, is not.
 */
static void qpair_get_instructions(Object *obj, Visitor *v, const char *name,
                                   void *opaque, Error **errp)
{
    uint64_t value = icount_enabled() ? icount_get_raw() : 0;

    visit_type_uint64(v, name, &value, errp);
}

static void qpair_add_properties(ObjectClass *class)
{
    static const char *const types[] = {
        [QPAIR_KIND_NUMBER] = "uint64",
        [QPAIR_KIND_SWITCH] = "bool",
        [QPAIR_KIND_WORDS] = "str",
    };
    QpairFacts facts = qpair_facts();
    ObjectProperty *property;
    uint32_t i;

    for (i = 0; i < facts.settings; i++) {
        QpairSetting setting = qpair_setting(i);
        g_autofree char *name = qpair_string(setting.name);
        g_autofree char *text = qpair_string(setting.text);

        property = object_class_property_add(class, name, types[setting.kind],
                                             qpair_get_setting,
                                             qpair_set_setting, NULL,
                                             GUINT_TO_POINTER(i));
        object_class_property_set_description(class, name, text);
        if (setting.kind == QPAIR_KIND_NUMBER) {
            object_property_set_default_uint(property, setting.initial);
        }
    }
    for (i = 0; i < facts.counters; i++) {
        QpairCounter counter = qpair_counter(i);
        g_autofree char *name = qpair_string(counter.name);
        g_autofree char *text = qpair_string(counter.text);
        g_autofree char *full = g_strdup_printf("counter: %s", text);

        object_class_property_add(class, name, "uint64", qpair_get_counter,
                                  NULL, NULL, GUINT_TO_POINTER(i));
        object_class_property_set_description(class, name, full);
    }
    object_class_property_add(class, "guest-instructions", "uint64",
                              qpair_get_instructions, NULL, NULL, NULL);
    object_class_property_set_description(class, "guest-instructions",
        "counter: instructions of the guest until its processor last stopped (0 without -icount)");
}

/* Life and death. */

static void qpair_instance_finalize(Object *obj)
{
    QpairState *s = QPAIR(obj);

    g_free(s->settings);
}

/* Undoes what realize did, or began. */
static void qpair_exit(PCIDevice *pci)
{
    QpairState *s = QPAIR(pci);

    if (s->listener.address_space) {
        memory_listener_unregister(&s->listener);
    }
    migrate_del_blocker(&s->migration_blocker);
    msix_uninit_exclusive_bar(pci);
    pcie_cap_exit(pci);
    g_clear_pointer(&s->core_bh, qemu_bh_delete);
    g_clear_pointer(&s->core_timer, timer_free);
    g_clear_pointer(&s->deadline_timer, timer_free);
    g_clear_pointer(&s->model, qpair_model_free);
    g_clear_pointer(&s->raised, g_free);
}

static void qpair_realize(PCIDevice *pci, Error **errp)
{
    ERRP_GUARD();
    QpairState *s = QPAIR(pci);
    DeviceState *dev = DEVICE(pci);
    QpairFacts facts = qpair_facts();
    char reason[QPAIR_REASON_BYTES];
    QpairHost host = {
        .opaque = s,
        .read = qpair_dma_read,
        .write = qpair_dma_write,
        .write_word = qpair_dma_write_word,
        .map = qpair_map,
        .written = qpair_written,
        .unmap = qpair_unmap,
        .raise = qpair_raise,
        .now = qpair_now,
        .wake = qpair_wake,
        .wake_at = qpair_wake_at,
        .bus_master = qpair_bus_master,
        .trace = qpair_trace,
    };
    uint32_t i;

    if (pcie_endpoint_cap_init(pci, 0) < 0) {
        error_setg(errp, "%s: no room for the PCI Express capability",
                   TYPE_QPAIR);
        return;
    }
    pcie_cap_flr_init(pci);

    /* What the model may call when it is made, before it is made. */
    s->core_bh = qemu_bh_new(qpair_run, s);
    s->core_timer = timer_new_ns(QEMU_CLOCK_VIRTUAL, qpair_run, s);
    s->deadline_timer = timer_new_ns(QEMU_CLOCK_VIRTUAL, qpair_run, s);
    s->model = qpair_model_new(host, s->settings, icount_enabled(), reason,
                               sizeof(reason));
    if (!s->model) {
        error_setg(errp, "%s", reason);
        goto fail;
    }
    s->paced = icount_enabled() || qpair_model_paced(s->model);
    s->vectors = qpair_model_vectors(s->model);
    s->raised = bitmap_new(s->vectors);

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
    pci_register_bar(pci, facts.bar_doorbells,
                     PCI_BASE_ADDRESS_SPACE_MEMORY |
                     PCI_BASE_ADDRESS_MEM_TYPE_64, &s->doorbells);

    error_setg(&s->migration_blocker, "%s: its queues cannot be migrated",
               qpair_id(s));
    if (migrate_add_blocker(&s->migration_blocker, errp) < 0) {
        goto fail;
    }
    s->listener = (MemoryListener) {
        .name = TYPE_QPAIR,
        .region_del = qpair_region_del,
    };
    memory_listener_register(&s->listener, pci_get_address_space(pci));
    return;

fail:
    qpair_exit(pci);
}

static void qpair_class_init(ObjectClass *class, void *data)
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
    .parent = TYPE_PCI_DEVICE,
    .instance_size = sizeof(QpairState),
    .instance_finalize = qpair_instance_finalize,
    .class_init = qpair_class_init,
    .interfaces = (InterfaceInfo[]) {
        { INTERFACE_PCIE_DEVICE },
        { },
    },
};

static void qpair_register_types(void)
{
    type_register_static(&qpair_info);
}
type_init(qpair_register_types)
