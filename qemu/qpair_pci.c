/* SPDX-License-Identifier: GPL-2.0 */
/*
 * qpair: what both functions have: an abstract type, capabilities, power states.
 */

#include "qemu/osdep.h"
#include "qemu/module.h"
#include "qapi/error.h"
#include "hw/pci/pcie.h"
#include "qpair.h"

/* D0 and D3hot; no PME. */
static int qpair_power_init(PCIDevice *pci, Error **errp)
{
    int at = pci_pm_init(pci, 0, errp);

    if (at >= 0) {
        pci_set_word(pci->config + at + PCI_PM_PMC, PCI_PM_CAP_VER_1_2);
        pci_set_word(pci->wmask + at + PCI_PM_CTRL, PCI_PM_CTRL_STATE_MASK);
    }
    return at;
}

bool qpair_caps_init(PCIDevice *pci, Error **errp)
{
    if (pcie_endpoint_cap_init(pci, 0) < 0) {
        error_setg(errp, "%s: no space for the PCI Express capability",
                   object_get_typename(OBJECT(pci)));
        return false;
    }
    pcie_cap_flr_init(pci);
    pcie_cap_deverr_init(pci);
    return qpair_power_init(pci, errp) >= 0 &&
           pcie_aer_init(pci, PCI_ERR_VER, PCI_CONFIG_SPACE_SIZE,
                         PCI_ERR_SIZEOF, errp) >= 0;
}

void qpair_caps_exit(PCIDevice *pci)
{
    pcie_aer_exit(pci);
    pcie_cap_exit(pci);
}

static unsigned qpair_power_state(PCIDevice *pci)
{
    return pci_get_word(pci->config + pci->pm_cap + PCI_PM_CTRL) &
           PCI_PM_CTRL_STATE_MASK;
}

void qpair_caps_write(PCIDevice *pci, uint32_t addr, uint32_t value, int len)
{
    unsigned was = qpair_power_state(pci), is;

    pci_default_write_config(pci, addr, value, len);
    is = qpair_power_state(pci);
    if (was == 0 && is != 0) {
        /* D3hot permits no DMA and no interrupt, and keeps no state. */
        device_cold_reset(DEVICE(pci));
    } else if (was != 0 && is == 0) {
        /*
         * No_Soft_Reset is 0: the transition to D0 resets the configuration
         * too.
         */
        pci_device_reset(pci);
    }
    pcie_cap_flr_write_config(pci, addr, value, len);
    pcie_aer_write_config(pci, addr, value, len);
    qpair_sections_keep(pci);
}

static const TypeInfo qpair_function_info = {
    .name = TYPE_QPAIR_FUNCTION,
    .parent = TYPE_PCI_DEVICE,
    .instance_size = sizeof(QpairState),
    .abstract = true,
    .interfaces = (InterfaceInfo[]) {
        { INTERFACE_PCIE_DEVICE },
        { },
    },
};

static void qpair_function_register_types(void)
{
    type_register_static(&qpair_function_info);
}
type_init(qpair_function_register_types)
