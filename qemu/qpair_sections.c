/* SPDX-License-Identifier: GPL-2.0 */
/*
 * qpair: keeps the numbers of the memory map's sections.
 *
 * Under TCG a TLB entry of an I/O page has the number of a section. Without patch
 * 1 an access of one processor, beside a change of the map by another, looks that
 * number up in the new map. If a BAR is unmapped, all sections behind it move
 * down, that of the local APIC among them: the access reaches another device, an
 * interrupt is lost, and the guest hangs.
 *
 * So each region of a BAR gets a stand-in of lower priority, at the same address,
 * which stays when the BAR is unmapped. The map then keeps its sections, and their
 * order. Only the first mapping of a BAR at an address changes the numbers.
 */

#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "qpair.h"

/* Below the PCI bus, which has -1. */
#define QPAIR_STAND_IN_PRIORITY (-2)

/* A guest may map its BARs anywhere; it does not get more stand-ins than these. */
#define QPAIR_STAND_INS_MAX 256

/* The stand-ins of all functions, for ever. */
static MemoryRegion *qpair_stand_ins[QPAIR_STAND_INS_MAX];
static unsigned qpair_stand_in_count;

/* What a bus without a device answers: an error, which a CPU ignores, and ones. */
static MemTxResult qpair_stand_in_read(void *opaque, hwaddr addr,
                                       uint64_t *value, unsigned size,
                                       MemTxAttrs attrs)
{
    *value = UINT64_MAX;
    return MEMTX_DECODE_ERROR;
}

static MemTxResult qpair_stand_in_write(void *opaque, hwaddr addr,
                                        uint64_t value, unsigned size,
                                        MemTxAttrs attrs)
{
    return MEMTX_DECODE_ERROR;
}

static const MemoryRegionOps qpair_stand_in_ops = {
    .read_with_attrs = qpair_stand_in_read,
    .write_with_attrs = qpair_stand_in_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
    .impl = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
};

static void qpair_stand_in(hwaddr at, uint64_t size)
{
    MemoryRegion *region;
    unsigned i;

    for (i = 0; i < qpair_stand_in_count; i++) {
        region = qpair_stand_ins[i];
        if (region->addr == at && memory_region_size(region) == size) {
            return;
        }
    }
    if (i == QPAIR_STAND_INS_MAX) {
        warn_report_once("qpair: the guest mapped BARs at more than %d addresses; "
                         "unmapping one of the others may hang it under TCG",
                         QPAIR_STAND_INS_MAX);
        return;
    }
    region = qpair_stand_ins[qpair_stand_in_count++] = g_new0(MemoryRegion, 1);
    memory_region_init_io(region, NULL, &qpair_stand_in_ops, NULL,
                          "qpair-stand-in", size);
    memory_region_add_subregion_overlap(get_system_memory(), at, region,
                                        QPAIR_STAND_IN_PRIORITY);
}

/* After a write to the configuration space, which may have mapped BARs. */
void qpair_sections_keep(PCIDevice *pci)
{
    unsigned i;

    /* The map is made anew once for all of them. */
    memory_region_transaction_begin();
    for (i = 0; i < PCI_NUM_REGIONS; i++) {
        PCIIORegion *bar = &pci->io_regions[i];
        MemoryRegion *part;

        if (!bar->size || bar->addr == PCI_BAR_UNMAPPED) {
            continue;
        }
        if (bar->memory->terminates) {
            qpair_stand_in(bar->addr, bar->size);
        }
        /* The MSI-X table and its pending bits. */
        QTAILQ_FOREACH(part, &bar->memory->subregions, subregions_link) {
            qpair_stand_in(bar->addr + part->addr, memory_region_size(part));
        }
    }
    memory_region_transaction_commit();
}
