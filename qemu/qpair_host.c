/* SPDX-License-Identifier: GPL-2.0 */
/*
 * qpair: the model's callbacks into QEMU.
 *
 * Each callback runs inside the model, in the thread that is there: with the
 * BQL, or without it in the main loop, in the IOThread, or in a CPU that rings a
 * doorbell. Without the BQL nothing here may take it (the order is the BQL, then the model's
 * lock); an access to memory that is not RAM would. address_space_write() takes
 * the BQL for a ROM, or when the guest changes RAM into something else
 * meanwhile. So without the BQL memory is accessed through a MemoryRegionCache
 * only: that is RAM of one view of memory, or nothing. While an IOMMU
 * translates, the model is bound to the BQL, so the paths below that need it
 * are permitted.
 */

#include "qemu/osdep.h"
#include "qemu/guest-random.h"
#include "qemu/main-loop.h"
#include "qemu/timer.h"
#include "qpair.h"
#include "trace.h"

/* DMA reaches only RAM: no BARs, neither the device's own nor others. */
static const MemTxAttrs qpair_attrs = { .memory = 1 };

/* Accesses a piece of RAM without the BQL; returns the bytes done. */
static hwaddr qpair_direct(QpairState *s, uint64_t addr, void *buf,
                           size_t bytes, bool is_write)
{
    MemoryRegionCache cache;
    hwaddr got;

    got = address_space_cache_init(&cache, pci_get_address_space(&s->pci), addr,
                                   bytes, is_write);
    if (!cache.ptr) {
        got = 0;
    } else if (!is_write) {
        memcpy(buf, cache.ptr, got);
    } else {
        memcpy(cache.ptr, buf, got);
        address_space_cache_invalidate(&cache, 0, got);
    }
    address_space_cache_destroy(&cache);
    return got;
}

static bool qpair_dma(QpairState *s, uint64_t addr, void *buf, size_t bytes,
                      bool is_write)
{
    size_t done = 0;
    hwaddr got;

    if (bql_locked()) {
        return address_space_rw(pci_get_address_space(&s->pci), addr,
                                qpair_attrs, buf, bytes, is_write) == MEMTX_OK;
    }
    while (done < bytes) {
        got = qpair_direct(s, addr + done, (uint8_t *)buf + done, bytes - done,
                           is_write);
        if (got == 0) {
            return false;
        }
        done += got;
    }
    return true;
}

static bool qpair_dma_read(void *opaque, uint64_t addr, void *buf, size_t bytes)
{
    QpairState *s = opaque;

    if (qpair_dma(s, addr, buf, bytes, false)) {
        return true;
    }
    trace_qpair_dma_fault(qpair_id(s), addr, bytes, false);
    return false;
}

static bool qpair_dma_write(void *opaque, uint64_t addr, const void *buf,
                            size_t bytes)
{
    QpairState *s = opaque;

    if (qpair_dma(s, addr, (void *)buf, bytes, true)) {
        return true;
    }
    trace_qpair_dma_fault(qpair_id(s), addr, bytes, true);
    return false;
}

/* Writes one aligned word of RAM at once, without the BQL. */
static bool qpair_direct_word(QpairState *s, uint64_t addr, uint64_t word)
{
    MemoryRegionCache cache;
    bool whole;

    whole = address_space_cache_init(&cache, pci_get_address_space(&s->pci),
                                     addr, sizeof(word), true) == sizeof(word)
            && cache.ptr && QEMU_PTR_IS_ALIGNED(cache.ptr, sizeof(word));
    if (whole) {
        qatomic_set((uint64_t *)cache.ptr, cpu_to_le64(word));
        address_space_cache_invalidate(&cache, 0, sizeof(word));
    }
    address_space_cache_destroy(&cache);
    return whole;
}

/*
 * Writes one aligned word at once, after all earlier writes. The access itself
 * ignores MemTxAttrs.memory, so its target is checked first.
 */
static bool qpair_dma_write_word(void *opaque, uint64_t addr, uint64_t word)
{
    QpairState *s = opaque;
    AddressSpace *as = pci_get_address_space(&s->pci);
    MemTxResult result = MEMTX_ACCESS_ERROR;
    hwaddr offset, bytes = sizeof(word);
    MemoryRegion *mr;

    smp_wmb();
    if (!bql_locked()) {
        result = qpair_direct_word(s, addr, word) ? MEMTX_OK : result;
    } else {
        RCU_READ_LOCK_GUARD();
        mr = address_space_translate(as, addr, &offset, &bytes, true,
                                     qpair_attrs);
        if (bytes == sizeof(word) &&
            memory_access_is_direct(mr, true, qpair_attrs)) {
            address_space_stq_le(as, addr, word, qpair_attrs, &result);
        }
    }
    if (result == MEMTX_OK) {
        return true;
    }
    trace_qpair_dma_fault(qpair_id(s), addr, sizeof(word), true);
    return false;
}

/*
 * Maps guest RAM until qpair_unmap(); NULL if it cannot be mapped as one piece,
 * or if it is translated (an IOMMU's region is not RAM). The mapping holds
 * references, so the memory exists even if the listener is called too late.
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

/* Payload. The model stays inside its mappings. */
static void qpair_load(void *mapping, size_t at, void *buf, size_t bytes)
{
    MemoryRegionCache *cache = mapping;

    memcpy(buf, (uint8_t *)cache->ptr + at, bytes);
}

static void qpair_store(void *mapping, size_t at, const void *buf, size_t bytes)
{
    MemoryRegionCache *cache = mapping;

    memcpy((uint8_t *)cache->ptr + at, buf, bytes);
    address_space_cache_invalidate(cache, at, bytes);
}

static void qpair_copy(void *to, size_t at, void *from, size_t from_at,
                       size_t bytes)
{
    MemoryRegionCache *target = to, *source = from;

    memmove((uint8_t *)target->ptr + at, (uint8_t *)source->ptr + from_at,
            bytes);
    address_space_cache_invalidate(target, at, bytes);
}

/* Guest code that was translated from these bytes is no longer valid. */
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

static uint64_t qpair_now(void *opaque)
{
    return qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL);
}

static uint64_t qpair_host_now(void *opaque)
{
    return get_clock();
}

/* The same in each run with -seed, as all random numbers of the guest. */
static uint64_t qpair_random(void *opaque)
{
    uint64_t value;

    qemu_guest_getrandom_nofail(&value, sizeof(value));
    return value;
}

static bool qpair_bus_master(void *opaque)
{
    QpairState *s = opaque;

    return pci_get_word(s->pci.config + PCI_COMMAND) & PCI_COMMAND_MASTER;
}

void qpair_wake(void *opaque)
{
    QpairState *s = opaque;

    if (!s->core_bh) {
        /*
         * The function is being unplugged while its model runs, by a write of
         * the model.
         */
        return;
    }
    if (qatomic_read(&s->paced)) {
        timer_mod_anticipate_ns(s->core_timer, qpair_now(s));
    } else if (bql_locked() && s->iothread && s->translations) {
        /*
         * The model is bound to the BQL: the IOThread would only defer to the
         * main loop.
         */
        qemu_bh_schedule(s->main_bh);
    } else {
        qemu_bh_schedule(s->core_bh);
    }
}

/* The next deadline of the model's. */
static void qpair_wake_at(void *opaque, uint64_t nanos)
{
    QpairState *s = opaque;

    if (!s->deadline_timer) {
        return;
    }
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
    case QPAIR_TRACE_FAULT:
        trace_qpair_fault(id, a[0], a[1] & 0xffff, a[1] >> 16, a[2], a[3]);
        break;
    case QPAIR_TRACE_GARBAGE:
        trace_qpair_garbage(id, a[0], a[1] & 0xffff, a[1] >> 16, a[2]);
        break;
    case QPAIR_TRACE_FRAME:
        trace_qpair_frame(id, a[0], a[1], a[2], a[3]);
        break;
    case QPAIR_TRACE_HALT:
        trace_qpair_halt(id, a[0], a[1]);
        break;
    }
}

QpairHost qpair_host(QpairState *s)
{
    return (QpairHost) {
        .opaque = s,
        .read = qpair_dma_read,
        .write = qpair_dma_write,
        .write_word = qpair_dma_write_word,
        .map = qpair_map,
        .load = qpair_load,
        .store = qpair_store,
        .copy = qpair_copy,
        .written = qpair_written,
        .unmap = qpair_unmap,
        .raise = qpair_raise,
        .now = qpair_now,
        .host_now = qpair_host_now,
        .wake = qpair_wake,
        .wake_at = qpair_wake_at,
        .room = qpair_room,
        .transmit = qpair_transmit,
        .random = qpair_random,
        .bus_master = qpair_bus_master,
        .trace = qpair_trace,
    };
}
