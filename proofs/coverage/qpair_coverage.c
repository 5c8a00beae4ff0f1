// SPDX-License-Identifier: GPL-2.0
/*
 * Keeps the counters of a module that was built with -Cinstrument-coverage.
 *
 * The counters are freed with the module, so this one, which is loaded first, adds them up whenever
 * it goes. debugfs has them: qpair_coverage/at, data and cnts, which scripts/qp/coverage.py reads, and
 * live, the counters now, which guide scripts/fuzz uverbs.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/slab.h>
#include <linux/string.h>

enum { DATA, CNTS, KINDS };

static const char *const names[KINDS] = { "data", "cnts" };
static const char *const begins[KINDS] = { "qpair_data_begin", "qpair_cnts_begin" };
static const char *const ends[KINDS] = { "qpair_data_end", "qpair_cnts_end" };

static struct dentry *dir;
/* What debugfs has: of each load the same size, as long as the module is the same. */
static struct debugfs_blob_wrapper kept[KINDS], at;
/* Where both were at the first load, and their sizes. */
static u64 bounds[KINDS][2];
/* Where both are while the module is there. */
static void *live[KINDS];
/* Held while live is read or changes. */
static DEFINE_MUTEX(lock);

static void *symbol(struct module *module, const char *name)
{
	struct mod_kallsyms *all;
	void *found = NULL;
	unsigned int i;

	rcu_read_lock();
	all = rcu_dereference(module->kallsyms);
	for (i = 0; i < all->num_symtab && !found; i++)
		if (!strcmp(all->strtab + all->symtab[i].st_name, name))
			found = (void *)all->symtab[i].st_value;
	rcu_read_unlock();
	return found;
}

static int coming(struct module *module)
{
	size_t size;
	int i;

	for (i = 0; i < KINDS; i++) {
		void *begin = symbol(module, begins[i]), *end = symbol(module, ends[i]);

		if (!begin || !end)
			return -ENOENT;
		size = end - begin;
		if (kept[i].data && kept[i].size != size)
			return -EEXIST;
		live[i] = begin;
		if (kept[i].data)
			continue;
		kept[i].data = i == CNTS ? kvzalloc(size, GFP_KERNEL) : kvmemdup(begin, size, GFP_KERNEL);
		if (!kept[i].data)
			return -ENOMEM;
		kept[i].size = size;
		bounds[i][0] = (unsigned long)begin;
		bounds[i][1] = size;
		debugfs_create_blob(names[i], 0400, dir, &kept[i]);
	}
	return 0;
}

static void going(void)
{
	u64 *sums = kept[CNTS].data, *counters = live[CNTS];
	size_t i;

	for (i = 0; i < kept[CNTS].size / sizeof(*sums); i++)
		sums[i] += counters[i];
}

static ssize_t live_read(struct file *file, char __user *into, size_t size, loff_t *at)
{
	ssize_t count = 0;

	mutex_lock(&lock);
	if (live[CNTS])
		count = simple_read_from_buffer(into, size, at, live[CNTS], kept[CNTS].size);
	mutex_unlock(&lock);
	return count;
}

static const struct file_operations live_ops = { .owner = THIS_MODULE, .read = live_read };

static int notify(struct notifier_block *block, unsigned long state, void *module)
{
	int error;

	if (strcmp(((struct module *)module)->name, "qpair"))
		return NOTIFY_DONE;
	mutex_lock(&lock);
	if (state == MODULE_STATE_COMING) {
		error = coming(module);
		if (error)
			pr_err("qpair_coverage: no counters of qpair: %d\n", error);
	} else if (state == MODULE_STATE_GOING && live[CNTS]) {
		going();
		live[CNTS] = NULL;
	}
	mutex_unlock(&lock);
	return NOTIFY_DONE;
}

static struct notifier_block block = { .notifier_call = notify };

static int __init qpair_coverage_init(void)
{
	dir = debugfs_create_dir("qpair_coverage", NULL);
	at = (struct debugfs_blob_wrapper){ .data = bounds, .size = sizeof(bounds) };
	debugfs_create_blob("at", 0400, dir, &at);
	debugfs_create_file("live", 0400, dir, NULL, &live_ops);
	return register_module_notifier(&block);
}

static void __exit qpair_coverage_exit(void)
{
	int i;

	unregister_module_notifier(&block);
	debugfs_remove_recursive(dir);
	for (i = 0; i < KINDS; i++)
		kvfree(kept[i].data);
}

module_init(qpair_coverage_init);
module_exit(qpair_coverage_exit);
MODULE_DESCRIPTION("The coverage counters of qpair");
MODULE_LICENSE("GPL");
