/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Declarations shared by the parts of the device in QEMU: qpair.c (threads,
 * MMIO, realize and exit), qpair_host.c (the model's callbacks),
 * qpair_interrupts.c, qpair_wire.c, qpair_properties.c; and by those of the function of
 * channels, qpair_stream.c. qpair_pci.c is of both. qpair_plugin.c loads them into an
 * emulator that they are not linked into.
 */

#ifndef QPAIR_H
#define QPAIR_H

#include "hw/pci/pci_device.h"
#include "qom/object.h"
#include "system/iothread.h"
#include "system/runstate.h"
#include "qpair_compat.h"
#include "qpair_ffi.h"

#define TYPE_QPAIR "qpair"
#define TYPE_QPAIR_STREAM "qpair-stream"

/* Abstract: what both functions have. */
#define TYPE_QPAIR_FUNCTION "qpair-function"

/* Size of the buffer for the model's error messages. */
#define QPAIR_REASON_BYTES 256

/* Size of the buffer for a setting of text. */
#define QPAIR_TEXT_BYTES 1024

typedef struct QpairState QpairState;
DECLARE_INSTANCE_CHECKER(QpairState, QPAIR, TYPE_QPAIR_FUNCTION)

struct QpairState {
    PCIDevice pci;
    MemoryRegion registers;
    MemoryRegion doorbells;
    MemoryListener listener;
    Error *migration_blocker;
    VMChangeStateEntry *vm_change;

    QpairModel *model;          /* from realize until finalize; not a stream's */
    bool present;               /* from realize to exit; the BQL's */
    uint64_t *settings;         /* what was asked for, by index */
    char **texts;               /* the same of settings that are text; or NULL */

    IOThread *iothread;         /* the core's; NULL: it works in the main loop */
    bool locked_doorbells;      /* they take the BQL */
    QEMUBH *core_bh;            /* the core has work, in real time ... */
    QEMUTimer *core_timer;      /* ... and in virtual time */
    QEMUTimer *deadline_timer;  /* the model's next deadline */
    QEMUBH *main_bh;            /* another thread has work for a holder of the BQL */
    bool paced;                 /* in virtual time; atomic */

    char *netdev;               /* the backend of the port's network device */
    struct QpairWire *wire;     /* frames; NULL without a network */

    uint32_t translations;      /* IOMMUs in our view of memory; the BQL's */
    bool view_changed;          /* our view lost a range; the BQL's */

    uint32_t vectors;
    struct QpairRoute *routes;  /* by vector, where KVM sends; else NULL */
    unsigned long *raised;      /* vectors to send; atomic */
    bool pending;               /* there may be some; atomic */
    bool delivering;            /* they are being sent; the BQL's */
};

static inline const char *qpair_id(QpairState *s)
{
    const char *id = DEVICE(s)->id;

    return id ? id : object_get_typename(OBJECT(s));
}

/* The model's callbacks. */
QpairHost qpair_host(QpairState *s);

/* Schedules the core: it runs soon, but never inside the model. */
void qpair_wake(void *opaque);

/* The model raises an interrupt; in any thread. */
void qpair_raise(void *opaque, uint32_t vector);

/* Sends the interrupts that were raised; with the BQL. */
void qpair_deliver(QpairState *s);

/* The same in the IOThread: without the BQL, and outside the model. */
void qpair_deliver_apart(QpairState *s);

/*
 * With the BQL: the caller has entered the model, which processed queued
 * doorbells, but it must not send an interrupt itself.
 */
void qpair_deliver_later(QpairState *s);

/*
 * With the BQL: MSI-X was enabled or disabled, so KVM's routes are added or
 * removed.
 */
void qpair_routes_follow(QpairState *s, bool enabled);

/* Clears raised interrupts; the model has been reset, and raises none. */
void qpair_interrupts_reset(QpairState *s);
bool qpair_interrupts_init(QpairState *s, Error **errp);
void qpair_interrupts_exit(QpairState *s);

/*
 * The network: attaches the port to the backend of its network device, if it has
 * one, drops the frames that wait, and detaches it. free follows when the model has
 * ended.
 */
bool qpair_wire_attach(QpairState *s, Error **errp);
void qpair_wire_reset(QpairState *s);
void qpair_wire_detach(QpairState *s);
void qpair_wire_free(QpairState *s);

/* Of the model's callbacks, in any thread. */
size_t qpair_room(void *opaque);
void qpair_transmit(void *opaque, const void *frame, size_t bytes);

void qpair_add_properties(ObjectClass *class);

void qpair_settings_free(QpairState *s);

/* Gives the texts that were asked for to the model, which may refuse them. */
bool qpair_texts_init(QpairState *s, Error **errp);

/*
 * Capabilities: PCI Express with function level reset, power states D0 and
 * D3hot, AER. exit undoes a failed init, too.
 */
bool qpair_caps_init(PCIDevice *pci, Error **errp);
void qpair_caps_exit(PCIDevice *pci);

/* Writes the configuration space, with the resets that this implies. */
void qpair_caps_write(PCIDevice *pci, uint32_t addr, uint32_t value, int len);

/* Keeps the sections of the memory map when BARs that are mapped now are not. */
void qpair_sections_keep(PCIDevice *pci);

#endif /* QPAIR_H */
