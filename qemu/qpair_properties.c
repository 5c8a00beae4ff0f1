/* SPDX-License-Identifier: GPL-2.0 */
/*
 * qpair: properties. The model's tables describe its settings and counters. The
 * other properties are those of the device in QEMU.
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/visitor.h"
#include "qpair.h"

static char *qpair_string(QpairText text)
{
    return g_strndup(text.text, text.bytes);
}

static void qpair_get_setting(Object *obj, Visitor *v, const char *name,
                              void *opaque, Error **errp)
{
    QpairState *s = QPAIR(obj);
    uint32_t index = GPOINTER_TO_UINT(opaque);
    uint64_t value = s->present ? qpair_model_get(s->model, index)
                              : s->settings[index];
    bool on = value;
    g_autofree char *text = NULL;

    qpair_deliver_later(s);
    switch (qpair_setting(index).kind) {
    case QPAIR_KIND_NUMBER:
        visit_type_uint64(v, name, &value, errp);
        break;
    case QPAIR_KIND_SWITCH:
        visit_type_bool(v, name, &on, errp);
        break;
    case QPAIR_KIND_WORDS:
        text = g_strdup("");
        visit_type_str(v, name, &text, errp);
        break;
    case QPAIR_KIND_TEXT:
        if (s->present) {
            text = g_malloc0(QPAIR_TEXT_BYTES);
            qpair_model_get_text(s->model, index, text, QPAIR_TEXT_BYTES);
        } else {
            text = g_strdup(s->texts && s->texts[index] ? s->texts[index] : "");
        }
        visit_type_str(v, name, &text, errp);
        break;
    }
}

static bool qpair_set_text(QpairState *s, uint32_t index, const char *text,
                           Error **errp)
{
    char reason[QPAIR_REASON_BYTES];

    if (qpair_model_set_text(s->model, index, text, strlen(text), reason,
                             sizeof(reason))) {
        return true;
    }
    error_setg(errp, "%s", reason);
    return false;
}

bool qpair_texts_init(QpairState *s, Error **errp)
{
    uint32_t i;

    for (i = 0; i < qpair_facts().settings; i++) {
        if (s->texts[i] && !qpair_set_text(s, i, s->texts[i], errp)) {
            return false;
        }
    }
    return true;
}

void qpair_settings_free(QpairState *s)
{
    uint32_t i;

    for (i = 0; s->texts && i < qpair_facts().settings; i++) {
        g_free(s->texts[i]);
    }
    g_free(s->texts);
    g_free(s->settings);
}

static void qpair_set_setting(Object *obj, Visitor *v, const char *name,
                              void *opaque, Error **errp)
{
    QpairState *s = QPAIR(obj);
    uint32_t index = GPOINTER_TO_UINT(opaque);
    g_autofree char *text = NULL;
    char reason[QPAIR_REASON_BYTES];
    uint64_t value = 0;
    QpairKind kind = qpair_setting(index).kind;
    bool on, done = false;

    if (!s->settings) {
        /*
         * Setting the first default precedes all other initialisation of the
         * object.
         */
        s->settings = g_new0(uint64_t, qpair_facts().settings);
        s->texts = g_new0(char *, qpair_facts().settings);
    }
    switch (kind) {
    case QPAIR_KIND_NUMBER:
        done = visit_type_uint64(v, name, &value, errp);
        break;
    case QPAIR_KIND_SWITCH:
        done = visit_type_bool(v, name, &on, errp);
        value = done && on;
        break;
    case QPAIR_KIND_WORDS:
    case QPAIR_KIND_TEXT:
        done = visit_type_str(v, name, &text, errp);
        break;
    }
    if (!done) {
        return;
    }
    if (text && s->present) {
        qpair_set_text(s, index, text, errp);
    } else if (kind == QPAIR_KIND_WORDS) {
        error_setg(errp, "there is no device yet");
    } else if (text) {
        g_free(s->texts[index]);
        s->texts[index] = g_steal_pointer(&text); /* realize checks it */
    } else if (!s->present) {
        s->settings[index] = value; /* realize checks it */
    } else if (!qpair_model_set(s->model, index, value, reason,
                                sizeof(reason))) {
        error_setg(errp, "%s", reason);
    }
    if (s->present) {
        qatomic_set(&s->paced,
                    icount_enabled() || qpair_model_paced(s->model));
        qpair_deliver(s);
    }
}

static void qpair_get_counter(Object *obj, Visitor *v, const char *name,
                              void *opaque, Error **errp)
{
    QpairState *s = QPAIR(obj);
    uint32_t index = GPOINTER_TO_UINT(opaque);
    uint64_t value = s->present ? qpair_model_counter(s->model, index) : 0;

    qpair_deliver_later(s);
    visit_type_uint64(v, name, &value, errp);
}

/*
 * The guest's instruction count, which QEMU does not report otherwise. It
 * measures workloads that sleep, during which the guest's clock jumps.
 */
static void qpair_get_instructions(Object *obj, Visitor *v, const char *name,
                                   void *opaque, Error **errp)
{
    uint64_t value = icount_enabled() ? icount_get_raw() : 0;

    visit_type_uint64(v, name, &value, errp);
}

static const Property qpair_properties[] = {
    DEFINE_PROP_LINK("iothread", QpairState, iothread, TYPE_IOTHREAD,
                     IOThread *),
    DEFINE_PROP_STRING("netdev", QpairState, netdev),
    DEFINE_PROP_BOOL("locked-doorbells", QpairState, locked_doorbells, false),
};

void qpair_add_properties(ObjectClass *class)
{
    static const char *const types[] = {
        [QPAIR_KIND_NUMBER] = "uint64",
        [QPAIR_KIND_SWITCH] = "bool",
        [QPAIR_KIND_WORDS] = "str",
        [QPAIR_KIND_TEXT] = "str",
    };
    QpairFacts facts = qpair_facts();
    ObjectProperty *property;
    uint32_t i;

    for (i = 0; i < facts.settings; i++) {
        QpairSetting setting = qpair_setting(i);
        g_autofree char *name = qpair_string(setting.name);
        g_autofree char *text = qpair_string(setting.text);

        property = object_class_property_add(class, name, types[setting.kind],
                                             qpair_get_setting,
                                             qpair_set_setting, NULL,
                                             GUINT_TO_POINTER(i));
        object_class_property_set_description(class, name, text);
        if (setting.kind == QPAIR_KIND_NUMBER) {
            object_property_set_default_uint(property, setting.initial);
        }
    }
    for (i = 0; i < facts.counters; i++) {
        QpairCounter counter = qpair_counter(i);
        g_autofree char *name = qpair_string(counter.name);
        g_autofree char *text = qpair_string(counter.text);
        g_autofree char *full = g_strdup_printf("counter: %s", text);

        object_class_property_add(class, name, "uint64", qpair_get_counter,
                                  NULL, NULL, GUINT_TO_POINTER(i));
        object_class_property_set_description(class, name, full);
    }
    object_class_property_add(class, "guest-instructions", "uint64",
                              qpair_get_instructions, NULL, NULL, NULL);
    object_class_property_set_description(class, "guest-instructions",
        "counter: instructions of the guest until its processor last stopped (0 without -icount)");
    device_class_set_props(DEVICE_CLASS(class), qpair_properties);
    object_class_property_set_description(class, "iothread",
        "the core runs in this IOThread; without one, in the main loop");
    object_class_property_set_description(class, "netdev",
        "backend of the network device whose address is mac=: the port sends and receives frames there");
    object_class_property_set_description(class, "locked-doorbells",
        "test: doorbells take the global lock");
}
