/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the examples have in common: checks that end the program, the device and its
 * port, the states of a queue pair, and waiting.
 */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <err.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PORT		1
#define Q_KEY		0x11111111
/* Bytes of a datagram's header in the receive. */
#define GRH		sizeof(struct ibv_grh)
/* Seconds after which a completion or an event is missing. */
#define PATIENCE	20

static struct ibv_context *context;
static struct ibv_port_attr port;
/* On Ethernet a GID of an IP address; its index may be any. */
static union ibv_gid gid;
static int gid_index;
/* What this thread is doing, for its messages. */
static _Thread_local char doing[64] = "start";

__attribute__((format(printf, 1, 2)))
static inline void now(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(doing, sizeof(doing), format, list);
	va_end(list);
}

static inline void check(bool holds, const char *otherwise)
{
	if (!holds)
		errx(1, "%s: %s", doing, otherwise);
}

/* Checks what a verb returns: 0, an error, or -1 with errno. */
static inline void must(int error, const char *what)
{
	if (!error)
		return;
	if (error > 0)
		errno = error;
	err(1, "%s: cannot %s", doing, what);
}

static inline void *need(void *made, const char *what)
{
	must(made ? 0 : -1, what);
	return made;
}

/* The device of this name, or without one the first. */
static inline struct ibv_device *find_device(struct ibv_device **all, const char *name)
{
	for (; *all; all++)
		if (!name || !strcmp(ibv_get_device_name(*all), name))
			return *all;
	errx(1, "there is no RDMA device %s; ibv_devices lists them", name ? name : "at all");
}

/* Opens it, and queries its port. */
static inline void open_port(const char *name)
{
	struct ibv_device **all = need(ibv_get_device_list(NULL), "list RDMA devices");
	int i;

	context = need(ibv_open_device(find_device(all, name)), "open the device");
	ibv_free_device_list(all);
	must(ibv_query_port(context, PORT, &port), "query the port");
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET)
		for (i = 0; i < port.gid_tbl_len; i++)
			if (!ibv_query_gid(context, PORT, i, &gid) && gid.global.interface_id)
				gid_index = i;
	must(ibv_query_gid(context, PORT, gid_index, &gid), "query the GID");
	check(gid.global.interface_id, "the port has no GID");
}

static inline struct ibv_ah_attr own_address(bool by_gid)
{
	struct ibv_ah_attr attr = { .dlid = port.lid, .port_num = PORT, .is_global = by_gid };

	if (by_gid)
		attr.grh = (struct ibv_global_route) {
			.dgid = gid, .sgid_index = gid_index, .hop_limit = 1
		};
	return attr;
}

/* Attributes of a queue pair whose peer has this number, on the same port. */
static inline struct ibv_qp_attr attributes(uint32_t peer)
{
	return (struct ibv_qp_attr) {
		.port_num = PORT,
		.qkey = Q_KEY,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = port.active_mtu,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = own_address(port.link_layer == IBV_LINK_LAYER_ETHERNET),
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
}

/* Moves a queue pair to a state, with the attributes that its type has for it. */
static inline void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, enum ibv_qp_state state)
{
	static const char *const moves[] = {
		[IBV_QPS_RESET] = "move a queue pair to RESET",
		[IBV_QPS_INIT] = "move a queue pair to INIT",
		[IBV_QPS_RTR] = "move a queue pair to RTR",
		[IBV_QPS_RTS] = "move a queue pair to RTS",
		[IBV_QPS_SQD] = "move a queue pair to SQD",
		[IBV_QPS_SQE] = "move a queue pair to SQE",
		[IBV_QPS_ERR] = "move a queue pair to ERROR",
	};
	bool is_rc = qp->qp_type == IBV_QPT_RC, is_ud = qp->qp_type == IBV_QPT_UD;
	int mask = IBV_QP_STATE;

	if (state == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (state == IBV_QPS_RTR && !is_ud)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (state == IBV_QPS_RTR && is_rc)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (state == IBV_QPS_RTS)
		mask |= IBV_QP_SQ_PSN;
	if (state == IBV_QPS_RTS && is_rc)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	attr->qp_state = state;
	must(ibv_modify_qp(qp, attr, mask), moves[state]);
}

static inline void move_to_rts(struct ibv_qp *qp, struct ibv_qp_attr *attr)
{
	modify(qp, attr, IBV_QPS_INIT);
	modify(qp, attr, IBV_QPS_RTR);
	modify(qp, attr, IBV_QPS_RTS);
}

/* Polls once; returns the number of completions. */
static inline int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
	int count = ibv_poll_cq(cq, most, wc);

	check(count >= 0, "cannot poll a CQ");
	return count;
}

/* Seconds of a clock that nothing sets. */
static inline time_t seconds(void)
{
	struct timespec at;

	must(clock_gettime(CLOCK_MONOTONIC, &at), "read the clock");
	return at.tv_sec;
}

/* Waits for a completion. */
static inline struct ibv_wc wait_one(struct ibv_cq *cq)
{
	time_t begin = seconds();
	struct ibv_wc wc;

	while (!poll_cq(cq, 1, &wc))
		check(seconds() - begin <= PATIENCE, "a completion is missing");
	return wc;
}

/* Waits until a file can be read. */
static inline void wait_for_file(int file)
{
	struct pollfd fd = { .fd = file, .events = POLLIN };

	int ready = poll(&fd, 1, 1000 * PATIENCE);

	must(ready < 0 ? -1 : 0, "wait for an event");
	check(ready, "an event is missing");
}

/* Waits for an asynchronous event. */
static inline struct ibv_async_event wait_event(void)
{
	struct ibv_async_event event;

	wait_for_file(context->async_fd);
	must(ibv_get_async_event(context, &event), "get an event");
	ibv_ack_async_event(&event);
	return event;
}

#endif
