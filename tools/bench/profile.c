// SPDX-License-Identifier: GPL-2.0
/*
 * A QEMU plugin that counts how often each instruction of a guest ran.
 *
 * QEMU translates a guest in blocks, which run from start to end; each has a counter that the
 * translated code itself increments. When QEMU ends, the plugin writes a line for each block that
 * ran: the count, and the addresses of its instructions. A block that is translated again keeps its
 * counter.
 *
 *   -plugin profile.so,out=FILE
 */

#include <glib.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <qemu-plugin.h>

struct block {
	struct qemu_plugin_scoreboard *runs;
	size_t length;
	uint64_t addresses[];
};

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

static GMutex lock;
static GHashTable *blocks;
static char *out;

static guint hash(gconstpointer key)
{
	const struct block *block = key;
	guint64 first = block->addresses[0];

	return g_int64_hash(&first) * 31 + block->length;
}

static gboolean same(gconstpointer a, gconstpointer b)
{
	const struct block *one = a, *other = b;

	return one->length == other->length &&
	       !memcmp(one->addresses, other->addresses, one->length * sizeof(*one->addresses));
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t i, length = qemu_plugin_tb_n_insns(tb);
	struct block *block, *known;

	block = g_malloc0(sizeof(*block) + length * sizeof(*block->addresses));
	block->length = length;
	for (i = 0; i < length; i++)
		block->addresses[i] = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, i));

	g_mutex_lock(&lock);
	known = g_hash_table_lookup(blocks, block);
	if (known) {
		g_free(block);
		block = known;
	} else {
		block->runs = qemu_plugin_scoreboard_new(sizeof(uint64_t));
		g_hash_table_add(blocks, block);
	}
	g_mutex_unlock(&lock);
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64,
							  qemu_plugin_scoreboard_u64(block->runs), 1);
}

static void tell(gpointer key, gpointer value, gpointer file)
{
	const struct block *block = key;
	uint64_t runs = qemu_plugin_u64_sum(qemu_plugin_scoreboard_u64(block->runs));
	size_t i;

	if (!runs)
		return;
	fprintf(file, "%" PRIu64, runs);
	for (i = 0; i < block->length; i++)
		fprintf(file, " %" PRIx64, block->addresses[i]);
	fputc('\n', file);
}

static void ended(qemu_plugin_id_t id, void *data)
{
	FILE *file = fopen(out, "w");

	if (!file) {
		fprintf(stderr, "profile: cannot write %s\n", out);
		return;
	}
	g_hash_table_foreach(blocks, tell, file);
	if (fclose(file))
		fprintf(stderr, "profile: cannot write %s\n", out);
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	if (argc != 1 || !g_str_has_prefix(argv[0], "out=")) {
		fprintf(stderr, "profile: usage: out=FILE\n");
		return -1;
	}
	out = g_strdup(argv[0] + strlen("out="));
	blocks = g_hash_table_new(hash, same);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, ended, NULL);
	return 0;
}
