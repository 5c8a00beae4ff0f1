/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The headers of the RDMA core, which the kernel's own Rust bindings lack; and
 * the helpers.
 */
#include <linux/kconfig.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/restrack.h>
#include <rdma/uverbs_ioctl.h>

#define __rust_helper
#include "helpers.c"
