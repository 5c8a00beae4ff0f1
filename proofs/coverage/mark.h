/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The begin or the end, as MARK is, of the coverage sections of the module: objects are linked in
 * their order, and the loader of modules defines no symbols for it.
 */
#define NAME(kind, mark) qpair_##kind##_##mark
#define BOUND(kind, mark) char NAME(kind, mark)[0] __attribute__((section("__llvm_prf_" #kind), aligned(8)))

BOUND(data, MARK);
BOUND(cnts, MARK);
