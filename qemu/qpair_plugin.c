/* SPDX-License-Identifier: GPL-2.0 */
/*
 * qpair: the device as a plugin of an unmodified emulator (-plugin FILE).
 *
 * A plugin is loaded after the emulator's own types are registered and before
 * devices are created. This one registers the device's types, and no callback:
 * the translation of guest code does not change.
 *
 * The object has the layout of the emulator's structures compiled in. So it
 * refuses an emulator of another version, or with a type of another size, before
 * it registers anything.
 *
 * -device DRIVER,help and the patterns of -trace are processed before plugins
 * are loaded. help=DRIVER and trace=PATTERN of the plugin replace them.
 */

#include "qemu/osdep.h"
#include "qemu/config-file.h"
#include "qemu/cutils.h"
#include "qemu/error-report.h"
#include "qemu/option.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-control.h"
#include "monitor/qdev.h"
#include "net/filter.h"
#include "trace/control.h"
#include "qpair.h"

/* Registers the trace points, by module_init() of qpair_compat.h. */
#include "trace/trace-hw_misc_qpair.c"

#define QPAIR_REMEDY "build the plugin for this emulator, or start the " \
                     "emulator that it is built for"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

/* The functions of type_init() and trace_init(). */
static GSList *qpair_inits;

void qpair_plugin_init(void (*function)(void))
{
    qpair_inits = g_slist_prepend(qpair_inits, function);
}

static bool qpair_is_for_version;

/*
 * When the object is loaded: the emulator may refuse its qemu_plugin_version
 * before it calls qemu_plugin_install(), but does not know the remedy.
 */
static void __attribute__((constructor)) qpair_check_version(void)
{
    g_autoptr(VersionInfo) version = qmp_query_version(&error_abort);
    VersionTriple *is = version->qemu;

    qpair_is_for_version = is->major == QEMU_VERSION_MAJOR &&
                           is->minor == QEMU_VERSION_MINOR;
    if (!qpair_is_for_version) {
        error_report("qpair: the plugin is built for QEMU %d.%d, and this is "
                     "QEMU %" PRId64 ".%" PRId64 ".%" PRId64 " (%s); "
                     QPAIR_REMEDY, QEMU_VERSION_MAJOR, QEMU_VERSION_MINOR,
                     is->major, is->minor, is->micro, version->package);
    }
}

/* Types whose structures the device contains or accesses. */
static const struct {
    const char *name;
    size_t instance_size;
    size_t class_size;
} qpair_layout[] = {
    { TYPE_OBJECT, sizeof(Object), sizeof(ObjectClass) },
    { TYPE_DEVICE, sizeof(DeviceState), sizeof(DeviceClass) },
    { TYPE_PCI_DEVICE, sizeof(PCIDevice), sizeof(PCIDeviceClass) },
    { TYPE_MEMORY_REGION, sizeof(MemoryRegion), sizeof(MemoryRegionClass) },
    { TYPE_NETFILTER, sizeof(NetFilterState), sizeof(NetFilterClass) },
    /* With a semaphore, which contains a QemuMutex. Its class is private. */
    { TYPE_IOTHREAD, sizeof(IOThread) },
};

/*
 * The beginning of TypeImpl, which qom/object.c does not export. The sizes of
 * TYPE_OBJECT, the first that is compared, show whether this still holds.
 */
typedef struct QpairTypeImpl {
    const char *name;
    size_t class_size;
    size_t instance_size;
} QpairTypeImpl;

static bool qpair_is_for_layout(void)
{
    unsigned i;

    for (i = 0; i < ARRAY_SIZE(qpair_layout); i++) {
        const char *name = qpair_layout[i].name;
        ObjectClass *class = object_class_by_name(name);
        const QpairTypeImpl *type;

        if (!class) {
            error_report("qpair: this emulator has no type %s; " QPAIR_REMEDY,
                         name);
            return false;
        }
        type = (QpairTypeImpl *)class->type;
        if (type->instance_size != qpair_layout[i].instance_size ||
            (qpair_layout[i].class_size &&
             type->class_size != qpair_layout[i].class_size)) {
            error_report("qpair: the plugin is built for an emulator whose %s "
                         "has %zu bytes and its class %zu, and this one has "
                         "%zu and %zu; " QPAIR_REMEDY, name,
                         qpair_layout[i].instance_size,
                         qpair_layout[i].class_size, type->instance_size,
                         type->class_size);
            return false;
        }
    }
    return true;
}

static bool qpair_is_first(void)
{
    if (!object_class_by_name(TYPE_QPAIR_FUNCTION)) {
        return true;
    }
    error_report("qpair: this emulator has the device already; load the plugin "
                 "once, and not into an emulator that it is linked into");
    return false;
}

/* Prints the properties of a driver, and ends the emulator. */
static bool qpair_help(const char *driver)
{
    g_autofree char *words = g_strdup_printf("%s,help", driver);

    if (!object_class_by_name(driver)) {
        error_report("qpair: help=%s is not the name of a driver; use "
                     "help=" TYPE_QPAIR " or help=" TYPE_QPAIR_STREAM, driver);
        return false;
    }
    qdev_device_help(qemu_opts_parse_noisily(qemu_find_opts("device"), words,
                                             true));
    exit(EXIT_SUCCESS);
}

static bool qpair_option(const char *option)
{
    const char *value;

    if (strstart(option, "help=", &value)) {
        return qpair_help(value);
    }
    if (strstart(option, "trace=", &value)) {
        trace_enable_events(value);
        return true;
    }
    error_report("qpair: the plugin has no option %s; it has trace=PATTERN and "
                 "help=DRIVER", option);
    return false;
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id,
                                           const qemu_info_t *info,
                                           int argc, char **argv)
{
    GSList *each;
    int i;

    if (!qpair_is_for_version || !qpair_is_for_layout() || !qpair_is_first()) {
        return -1;
    }
    for (each = qpair_inits; each; each = each->next) {
        ((void (*)(void))each->data)();
    }
    for (i = 0; i < argc; i++) {
        if (!qpair_option(argv[i])) {
            return -1;
        }
    }
    return 0;
}
