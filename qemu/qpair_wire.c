/* SPDX-License-Identifier: GPL-2.0 */
/*
 * qpair: the network. The port belongs to a network device of the guest, and
 * peers see one machine with one address. A filter on the backend of that
 * device (netdev=) sees the frames in both directions: it gives those from the
 * network to the model, which takes its own, and sends those of the model, which
 * the network device never sees.
 *
 * - Filters run under the BQL. The model sends in any thread, inside its lock, so
 *   its frames wait in a queue for a bottom half of the main loop.
 * - A full queue drops nothing. The model sees that there is no room, and its
 *   senders wait until the bottom half wakes the core. If the backend takes no
 *   frame, the bottom half tries again later, since no callback reports that it
 *   would.
 * - Either device may be unplugged, and the backend removed. Without one of them
 *   frames are lost, as with a cable that is out.
 */

#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "qemu/iov.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/timer.h"
#include "qapi/error.h"
#include "net/eth.h"
#include "net/filter.h"
#include "net/net.h"
#include "net/vhost_net.h"
#include "qpair.h"
#include "trace.h"

#define TYPE_QPAIR_FILTER "qpair-filter"
OBJECT_DECLARE_SIMPLE_TYPE(QpairFilter, QPAIR_FILTER)

/* The most frames that wait to be sent. */
#define QPAIR_FRAMES 1024

/* Those that are sent before the main loop looks at its other events. */
#define QPAIR_BATCH 64

/* When to try again, if the backend takes no frame. */
#define QPAIR_AGAIN_NS (500 * SCALE_US)

struct QpairFilter {
    NetFilterState parent;
    QpairState *qpair;      /* from attach to detach */
};

typedef struct QpairWire {
    QpairFilter *filter;    /* NULL if it is gone; the BQL's */
    QEMUBH *bh;             /* frames wait */
    QEMUTimer *again;       /* the backend took none of them */
    bool warned;            /* of the network device's address */

    QemuMutex lock;         /* taken inside the model's lock, too */
    GQueue frames;          /* of GBytes; protected by the lock */
    bool starved;           /* the model found no room; the same */
} QpairWire;

size_t qpair_room(void *opaque)
{
    QpairState *s = opaque;
    QpairWire *w = s->wire;
    size_t room;

    if (!w) {
        return 0;
    }
    QEMU_LOCK_GUARD(&w->lock);
    room = QPAIR_FRAMES - g_queue_get_length(&w->frames);
    w->starved |= room == 0;
    return room;
}

void qpair_transmit(void *opaque, const void *frame, size_t bytes)
{
    QpairState *s = opaque;
    QpairWire *w = s->wire;

    if (!w) {
        return;
    }
    QEMU_LOCK_GUARD(&w->lock);
    /* The model sends only what there is room for. */
    g_assert(g_queue_get_length(&w->frames) < QPAIR_FRAMES);
    g_queue_push_tail(&w->frames, g_bytes_new(frame, bytes));
    if (g_queue_get_length(&w->frames) == 1) {
        qemu_bh_schedule(w->bh);
    }
}

/* The network device; NULL if it or its backend is gone. */
static NetClientState *qpair_wire_nic(QpairWire *w)
{
    NetClientState *backend = w->filter ? NETFILTER(w->filter)->netdev : NULL;

    return backend ? backend->peer : NULL;
}

/* A frame comes from the address of mac=; peers send to the network device's. */
static void qpair_wire_check(QpairState *s, NetClientState *nic,
                             const uint8_t *frame)
{
    const uint8_t *mac, *from = PKT_GET_ETH_HDR(frame)->h_source;

    if (s->wire->warned || nic->info->type != NET_CLIENT_DRIVER_NIC) {
        return;
    }
    s->wire->warned = true;
    mac = qemu_get_nic(nic)->conf->macaddr.a;
    if (memcmp(mac, from, ETH_ALEN)) {
        warn_report("%s: mac= is not the address of the network device at "
                    "netdev %s, so nothing may reach the port", qpair_id(s),
                    s->netdev);
    }
}

static void qpair_wire_send(QpairState *s, NetClientState *nic, GBytes *frame)
{
    /* Longer than each header of virtio-net: 24 bytes with tunnels, in 11.1. */
    static const uint8_t zeros[64];
    NetFilterState *nf = NETFILTER(s->wire->filter);
    size_t bytes, header = nf->netdev->vnet_hdr_len;
    const void *data = g_bytes_get_data(frame, &bytes);
    struct iovec iov[] = {
        { (void *)zeros, header },
        { (void *)data, bytes },
    };
    unsigned from = header == 0;

    if (header > sizeof(zeros)) {
        warn_report_once("%s: netdev %s has headers of %zu bytes, and at most "
                         "%zu are known; no frame is sent", qpair_id(s),
                         s->netdev, header, sizeof(zeros));
        return;
    }
    qpair_wire_check(s, nic, data);
    qemu_netfilter_pass_to_next(nic, 0, iov + from, ARRAY_SIZE(iov) - from, nf);
}

/* The first of the frames that wait; NULL if there is none. */
static GBytes *qpair_wire_next(QpairWire *w, bool take)
{
    QEMU_LOCK_GUARD(&w->lock);
    return take ? g_queue_pop_head(&w->frames) : g_queue_peek_head(&w->frames);
}

/* The bottom half: sends the frames that wait, as far as the backend takes them. */
static void qpair_wire_run(void *opaque)
{
    QpairState *s = opaque;
    QpairWire *w = s->wire;
    bool sent, starved = false;
    unsigned i;

    for (i = 0; i < QPAIR_BATCH && qpair_wire_next(w, false); i++) {
        NetClientState *nic = qpair_wire_nic(w);
        GBytes *frame;

        if (nic && !qemu_can_send_packet(nic)) {
            timer_mod_ns(w->again, qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL) +
                                   QPAIR_AGAIN_NS);
            trace_qpair_wire_full(qpair_id(s));
            break;
        }
        frame = qpair_wire_next(w, true);
        sent = nic && !nic->link_down;
        trace_qpair_wire_out(qpair_id(s), g_bytes_get_size(frame), sent);
        if (sent) {
            qpair_wire_send(s, nic, frame);
        }
        g_bytes_unref(frame);
    }
    if (i == QPAIR_BATCH) {
        qemu_bh_schedule(w->bh);
    }

    WITH_QEMU_LOCK_GUARD(&w->lock) {
        if (g_queue_get_length(&w->frames) < QPAIR_FRAMES) {
            starved = w->starved;
            w->starved = false;
        }
    }
    if (starved) {
        qpair_wake(s);
    }
}

/*
 * A frame on its way: `sender` is the backend for one from the network. Returns
 * its bytes if the model has taken it.
 */
static ssize_t qpair_filter_receive(NetFilterState *nf, NetClientState *sender,
                                    unsigned flags, const struct iovec *iov,
                                    int iovcnt, NetPacketSent *sent_cb)
{
    QpairState *s = QPAIR_FILTER(nf)->qpair;
    NetClientState *nic = nf->netdev->peer;
    size_t header = nf->netdev->vnet_hdr_len, size = iov_size(iov, iovcnt);
    g_autofree void *copy = NULL;
    const uint8_t *frame;
    bool own;

    if (!s || !s->present || !nic || sender != nf->netdev || size <= header) {
        return 0;
    }
    if (nic->link_down) {
        /* Lost, as a frame to the network device is. */
        return size;
    }
    if (iovcnt == 1) {
        frame = iov->iov_base;
    } else {
        frame = copy = g_malloc(size);
        iov_to_buf(iov, iovcnt, 0, copy, size);
    }
    own = qpair_model_frame(s->model, frame + header, size - header);
    qpair_deliver_later(s);
    trace_qpair_wire_in(qpair_id(s), size - header, own);
    return own ? size : 0;
}

/* The filter is removed, by detach or with its backend. */
static void qpair_filter_cleanup(NetFilterState *nf)
{
    QpairFilter *filter = QPAIR_FILTER(nf);

    if (filter->qpair) {
        filter->qpair->wire->filter = NULL;
        filter->qpair = NULL;
    }
}

/* Whether a filter can be on the backend; what to do, if it cannot. */
static bool qpair_wire_check_backend(QpairState *s, Error **errp)
{
    g_autofree char *mac = object_property_get_str(OBJECT(s), "mac", NULL);
    NetClientState *backend;
    int queues;

    if (!mac || !*mac) {
        error_setg(errp, "%s: netdev= goes with mac=, the address of the "
                   "network device at %s", qpair_id(s), s->netdev);
        return false;
    }
    queues = qemu_find_net_clients_except(s->netdev, &backend,
                                          NET_CLIENT_DRIVER_NIC, 1);
    if (queues == 0) {
        error_setg(errp, "%s: no network backend has the id '%s'; add a -netdev "
                   "with id=%s", qpair_id(s), s->netdev, s->netdev);
        return false;
    }
    if (queues > 1) {
        error_setg(errp, "%s: netdev '%s' has several queues, and a filter sees "
                   "one; leave out queues= there", qpair_id(s), s->netdev);
        return false;
    }
    if (get_vhost_net(backend)) {
        error_setg(errp, "%s: vhost takes the frames of netdev '%s' past QEMU; "
                   "set vhost=off there", qpair_id(s), s->netdev);
        return false;
    }
    return true;
}

bool qpair_wire_attach(QpairState *s, Error **errp)
{
    QpairWire *w;
    Object *filter;

    if (!s->netdev || !*s->netdev) {
        return true;
    }
    if (!qpair_wire_check_backend(s, errp)) {
        return false;
    }
    filter = object_new_with_props(TYPE_QPAIR_FILTER, OBJECT(s), "filter", errp,
                                   "netdev", s->netdev, "queue", "all", NULL);
    if (!filter) {
        return false;
    }
    w = g_new0(QpairWire, 1);
    qemu_mutex_init(&w->lock);
    g_queue_init(&w->frames);
    w->bh = qemu_bh_new(qpair_wire_run, s);
    w->again = timer_new_ns(QEMU_CLOCK_VIRTUAL, qpair_wire_run, s);
    w->filter = QPAIR_FILTER(filter);
    w->filter->qpair = s;
    s->wire = w;
    return true;
}

/* Frames that wait are of connections that the reset has ended. */
void qpair_wire_reset(QpairState *s)
{
    QpairWire *w = s->wire;

    if (!w) {
        return;
    }
    QEMU_LOCK_GUARD(&w->lock);
    g_queue_clear_full(&w->frames, (GDestroyNotify)g_bytes_unref);
    w->starved = false;
}

void qpair_wire_detach(QpairState *s)
{
    if (s->wire && s->wire->filter) {
        object_unparent(OBJECT(s->wire->filter));
    }
}

void qpair_wire_free(QpairState *s)
{
    QpairWire *w = g_steal_pointer(&s->wire);

    if (!w) {
        return;
    }
    qemu_bh_delete(w->bh);
    timer_free(w->again);
    g_queue_clear_full(&w->frames, (GDestroyNotify)g_bytes_unref);
    qemu_mutex_destroy(&w->lock);
    g_free(w);
}

static void qpair_filter_class_init(ObjectClass *class, QpairClassData *data)
{
    NetFilterClass *k = NETFILTER_CLASS(class);

    k->receive_iov = qpair_filter_receive;
    k->cleanup = qpair_filter_cleanup;
}

static const TypeInfo qpair_filter_info = {
    .name = TYPE_QPAIR_FILTER,
    .parent = TYPE_NETFILTER,
    .instance_size = sizeof(QpairFilter),
    .class_init = qpair_filter_class_init,
};

static void qpair_wire_register_types(void)
{
    type_register_static(&qpair_filter_info);
}
type_init(qpair_wire_register_types)
