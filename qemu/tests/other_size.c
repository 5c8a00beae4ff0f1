/* SPDX-License-Identifier: GPL-2.0 */
/* The plugin as for an emulator with a larger PCIDevice, which has to be refused. */
#include "qemu/osdep.h"
#include "hw/pci/pci_device.h"
#include "qpair.h"

typedef struct {
    PCIDevice pci;
    uint64_t more;
} LargerDevice;

#define PCIDevice LargerDevice
#include "qpair_plugin.c"
