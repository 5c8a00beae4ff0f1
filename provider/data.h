/* SPDX-License-Identifier: GPL-2.0 */

#ifndef QPAIR_DATA_H
#define QPAIR_DATA_H

/*
 * The data path of the provider, as its part in C calls it. Generated from
 * provider/data by cbindgen; `QPAIR_UPDATE_HEADER=1 cargo test -p qpair-verbs`
 * writes it anew.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

/*
 A completion queue of a process.
 */
struct qpair_data_cq;

/*
 A queue pair, which leaves its CQs when it is freed.
 */
struct qpair_data_qp;

/*
 A shared receive queue: a ring that a post locks, and that CQs give slots back to.
 */
struct qpair_data_srq;

/*
 The size of a ring.
 */
struct qpair_data_shape {
    /*
     Slots, a power of two.
     */
    uint32_t entries;
    /*
     Slots that the program may fill; the others are slack.
     */
    uint32_t usable;
    /*
     log2 of the blocks of a slot.
     */
    uint32_t stride;
    /*
     Inline bytes that a request has room for, of sends.
     */
    uint32_t inline_bytes;
    /*
     Bytes of all slots.
     */
    size_t bytes;
};

/*
 What a completion queue is made of.
 */
struct qpair_data_cq_parts {
    /*
     The number of the device.
     */
    uint32_t number;
    /*
     Entries of the ring.
     */
    uint32_t depth;
    /*
     Entries that the program may count on.
     */
    uint32_t usable;
    /*
     Whether a single thread uses it.
     */
    bool single;
    /*
     The ring: zeroed pages.
     */
    uint8_t *ring;
    /*
     The page of doorbells.
     */
    uint8_t *doorbells;
};

/*
 The ring in which a completion queue goes on.
 */
struct qpair_data_cq_next {
    /*
     Index past the last completion in the ring before.
     */
    uint32_t end;
    /*
     Index of the first completion in this one.
     */
    uint32_t begin;
    /*
     Entries of the ring.
     */
    uint32_t depth;
    /*
     Entries that the program may count on.
     */
    uint32_t usable;
    /*
     The ring: zeroed pages.
     */
    uint8_t *ring;
};

/*
 What a queue pair is made of.
 */
struct qpair_data_qp_parts {
    /*
     The number of the device.
     */
    uint32_t number;
    /*
     The number as verbs have it.
     */
    uint32_t qpn;
    /*
     The ring of sends: whole pages.
     */
    uint8_t *sq;
    /*
     The ring of receives: whole pages.
     */
    uint8_t *rq;
    /*
     The size of the ring of sends.
     */
    struct qpair_data_shape sq_shape;
    /*
     The size of the ring of receives.
     */
    struct qpair_data_shape rq_shape;
    /*
     Most SGEs of a send.
     */
    uint32_t max_send_sge;
    /*
     Most SGEs of a receive.
     */
    uint32_t max_recv_sge;
    /*
     Most inline bytes of a send.
     */
    uint32_t max_inline_data;
    /*
     Whether all sends are signaled.
     */
    bool sq_sig_all;
    /*
     Whether the queue pair is of UD.
     */
    bool is_ud;
    /*
     The page of doorbells.
     */
    uint8_t *doorbells;
    /*
     The completion queue of sends.
     */
    const struct qpair_data_cq *send_cq;
    /*
     The completion queue of receives.
     */
    const struct qpair_data_cq *recv_cq;
    /*
     Where its receives are, or null: then there is a ring of receives.
     */
    const struct qpair_data_srq *srq;
};

/*
 What a shared receive queue is made of.
 */
struct qpair_data_srq_parts {
    /*
     The number of the device.
     */
    uint32_t number;
    /*
     The ring: whole pages.
     */
    uint8_t *ring;
    /*
     The size of the ring.
     */
    struct qpair_data_shape shape;
    /*
     Most SGEs of a receive.
     */
    uint32_t max_sge;
    /*
     The page of doorbells.
     */
    uint8_t *doorbells;
};

/*
 The ring of a completion queue of at least `entries` entries, in a device with at most `most`;
 false if it has no such.

 # Safety

 `shape` can be written.
 */
bool qpair_data_cq_shape(uint32_t entries, uint32_t most, struct qpair_data_shape *shape);

/*
 The ring of `max_wr` sends of at most `max_sge` SGEs or `max_inline_data` bytes, of UD if `is_ud`,
 as `qpair_data_cq_shape()`.

 # Safety

 `shape` can be written.
 */
bool qpair_data_sq_shape(uint32_t max_wr,
                         uint32_t max_sge,
                         uint32_t max_inline_data,
                         bool is_ud,
                         uint32_t most,
                         struct qpair_data_shape *shape);

/*
 The ring of `max_wr` receives of at most `max_sge` SGEs, as `qpair_data_cq_shape()`.

 # Safety

 `shape` can be written.
 */
bool qpair_data_rq_shape(uint32_t max_wr,
                         uint32_t max_sge,
                         uint32_t most,
                         struct qpair_data_shape *shape);

/*
 The ring of an SRQ of `max_wr` receives of at most `max_sge` SGEs, as `qpair_data_cq_shape()`.

 # Safety

 `shape` can be written.
 */
bool qpair_data_srq_shape(uint32_t max_wr,
                          uint32_t max_sge,
                          uint32_t most,
                          struct qpair_data_shape *shape);

/*
 Makes a completion queue; null if the parts do not fit together.

 # Safety

 The memory has the size of the shape, and is mapped until `qpair_data_cq_free()`. A single
 thread uses it if `single` is set.
 */
const struct qpair_data_cq *qpair_data_cq_new(const struct qpair_data_cq_parts *parts);

/*
 Locks a completion queue for a resize. Returns how many completions are unread.

 # Safety

 It is of `qpair_data_cq_new()`. This thread has it not locked, and calls
 `qpair_data_cq_release()`.
 */
uint32_t qpair_data_cq_hold(const struct qpair_data_cq *cq);

/*
 The device writes further completions to this ring. Returns how many rings before it are still
 read; negative if the parts do not fit together.

 # Safety

 This thread has called `qpair_data_cq_hold()`. The memory has the size of the depth, and is
 mapped until `qpair_data_cq_free()`, or until a later call returns that it is not read.
 */
ptrdiff_t qpair_data_cq_resized(const struct qpair_data_cq *cq,
                                const struct qpair_data_cq_next *next);

/*
 Unlocks a completion queue.

 # Safety

 This thread has called `qpair_data_cq_hold()`.
 */
void qpair_data_cq_release(const struct qpair_data_cq *cq);

/*
 Frees a completion queue, which no queue pair uses.

 # Safety

 It is of `qpair_data_cq_new()`, and is not used again.
 */
void qpair_data_cq_free(const struct qpair_data_cq *cq);

/*
 Makes a queue pair in RESET; null if the parts do not fit together.

 # Safety

 The memory has the size of the shapes, and is mapped until `qpair_data_qp_free()`.
 */
const struct qpair_data_qp *qpair_data_qp_new(const struct qpair_data_qp_parts *parts);

/*
 Makes a shared receive queue; null if the parts do not fit together.

 # Safety

 The memory has the size of the shape, and is mapped until `qpair_data_srq_free()`.
 */
const struct qpair_data_srq *qpair_data_srq_new(const struct qpair_data_srq_parts *parts);

/*
 Makes a shared receive queue go on in another ring. Posts wait for `change`, by which the device
 goes on there, or which returns an errno. Returns 0, or that errno; `EINVAL` if the ring is too
 small for the receives in flight, or the parts do not fit together.

 # Safety

 It is of `qpair_data_srq_new()`. The memory has the size of the shape. After `change` has
 succeeded it is mapped until `qpair_data_srq_free()`, or until a later resize has succeeded.
 `change` may be called with `arg`.
 */
int qpair_data_srq_resize(const struct qpair_data_srq *srq,
                          uint8_t *ring,
                          const struct qpair_data_shape *shape,
                          int (*change)(void *arg),
                          void *arg);

/*
 Frees a shared receive queue, which no queue pair uses.

 # Safety

 It is of `qpair_data_srq_new()`, and is not used again.
 */
void qpair_data_srq_free(const struct qpair_data_srq *srq);

/*
 Frees a queue pair that the kernel has destroyed.

 # Safety

 It is of `qpair_data_qp_new()`, and is not used again.
 */
void qpair_data_qp_free(const struct qpair_data_qp *qp);

/*
 The queue pair is in this state now, other than RESET.

 # Safety

 It is of `qpair_data_qp_new()`.
 */
void qpair_data_qp_permit(const struct qpair_data_qp *qp, enum ibv_qp_state state);

/*
 The queue pair is in RESET now, and its entries in the completion queues are those from these
 indices on.

 # Safety

 It is of `qpair_data_qp_new()`.
 */
void qpair_data_qp_reset(const struct qpair_data_qp *qp, uint32_t send_since, uint32_t recv_since);

/*
 `ibv_poll_cq()`.

 # Safety

 As of `ibv_poll_cq()`.
 */
int qpair_data_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);

/*
 `ibv_req_notify_cq()`.

 # Safety

 As of `ibv_req_notify_cq()`.
 */
int qpair_data_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/*
 Sets the operations of `ibv_start_poll()` and of the parts of completions that the program asked
 for.

 # Safety

 The completion queue is one of this provider.
 */
void qpair_data_cq_extend(struct ibv_cq_ex *cq, uint64_t wc_flags);

/*
 `ibv_post_send()`.

 # Safety

 As of `ibv_post_send()`.
 */
int qpair_data_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);

/*
 What an address handle has for sends besides a GID.
 */
uint64_t qpair_data_route(uint16_t source,
                          uint8_t hop_limit,
                          uint8_t traffic_class,
                          uint32_t flow_label);

/*
 `ibv_post_recv()`.

 # Safety

 As of `ibv_post_recv()`.
 */
int qpair_data_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/*
 `ibv_post_srq_recv()`.

 # Safety

 As of `ibv_post_srq_recv()`.
 */
int qpair_data_post_srq_recv(struct ibv_srq *srq,
                             struct ibv_recv_wr *wr,
                             struct ibv_recv_wr **bad_wr);

/*
 Sets the operations of `ibv_wr_*()` that the program asked for.

 # Safety

 The queue pair is one of this provider.
 */
void qpair_data_qp_extend(struct ibv_qp_ex *qp, uint64_t operations);

#endif  /* QPAIR_DATA_H */
