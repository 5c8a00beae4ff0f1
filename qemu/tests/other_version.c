/* SPDX-License-Identifier: GPL-2.0 */
/* The plugin as for another version of the emulator, which has to be refused. */
#include "qemu/osdep.h"
#undef QEMU_VERSION_MINOR
#define QEMU_VERSION_MINOR 99
#include "qpair_plugin.c"
