/* SPDX-License-Identifier: GPL-2.0 */

#ifndef QPAIR_FFI_H
#define QPAIR_FFI_H

/*
 * The qpair device model, as QEMU calls it. Generated from qemu/ffi by
 * cbindgen; `QPAIR_UPDATE_HEADER=1 cargo test -p qpair-ffi` writes it anew.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 What the value of a setting is.
 */
typedef enum QpairKind {
    /*
     A number.
     */
    QPAIR_KIND_NUMBER,
    /*
     On or off: 1 or 0.
     */
    QPAIR_KIND_SWITCH,
    /*
     Several numbers, as text with colons between them; write only.
     */
    QPAIR_KIND_WORDS,
} QpairKind;

/*
 What is left after a run of the core.
 */
typedef enum QpairRun {
    /*
     Nothing, or nothing before the time that was asked for.
     */
    QPAIR_RUN_IDLE,
    /*
     It wants to go on.
     */
    QPAIR_RUN_MORE,
    /*
     The function is bound to the BQL: `qpair_model_run`, by its holder.
     */
    QPAIR_RUN_BOUND,
} QpairRun;

/*
 Something that can be traced; the arguments of each are in brackets.
 */
typedef enum QpairTrace {
    /*
     A doorbell was written (page, place, value).
     */
    QPAIR_TRACE_DOORBELL,
    /*
     A doorbell made no sense (page, value).
     */
    QPAIR_TRACE_VIOLATION,
    /*
     A send work request was fetched (QP, index, blocks).
     */
    QPAIR_TRACE_FETCH,
    /*
     A receive was fetched (QP, index).
     */
    QPAIR_TRACE_FETCH_RECEIVE,
    /*
     An admin command was done (opcode, object, error).
     */
    QPAIR_TRACE_COMMAND,
    /*
     A CQE was written (CQ, index, QP, opcode, status, vendor detail).
     */
    QPAIR_TRACE_COMPLETION,
    /*
     An EQE was written (EQ, index, kind, object).
     */
    QPAIR_TRACE_EVENT,
    /*
     An interrupt was raised (EQ, vector).
     */
    QPAIR_TRACE_INTERRUPT,
    /*
     A queue pair changed its state (QP, from, to).
     */
    QPAIR_TRACE_STATE,
    /*
     The function stopped (cause).
     */
    QPAIR_TRACE_FATAL,
    /*
     The function was reset.
     */
    QPAIR_TRACE_RESET,
} QpairTrace;

/*
 A function, and who is in it.
 */
typedef struct QpairModel QpairModel;

/*
 What QEMU has to know of the function.
 */
typedef struct QpairFacts {
    /*
     PCI vendor.
     */
    uint16_t vendor;
    /*
     PCI device.
     */
    uint16_t device;
    /*
     PCI revision.
     */
    uint8_t revision;
    /*
     BAR of the registers.
     */
    uint8_t bar_registers;
    /*
     BAR of the doorbell pages.
     */
    uint8_t bar_doorbells;
    /*
     BAR of the MSI-X table.
     */
    uint8_t bar_msix;
    /*
     Bytes of the registers' BAR.
     */
    uint64_t register_bytes;
    /*
     How many settings there are.
     */
    uint32_t settings;
    /*
     How many counters there are.
     */
    uint32_t counters;
} QpairFacts;

/*
 A piece of constant text, not terminated.
 */
typedef struct QpairText {
    /*
     Its first byte.
     */
    const char *text;
    /*
     How many there are.
     */
    size_t bytes;
} QpairText;

/*
 A property of the device.
 */
typedef struct QpairSetting {
    /*
     Its name.
     */
    struct QpairText name;
    /*
     What it is, for people.
     */
    struct QpairText text;
    /*
     What its value is.
     */
    enum QpairKind kind;
    /*
     It may be changed while the device is in use.
     */
    bool live;
    /*
     What it is when nobody says anything.
     */
    uint64_t initial;
} QpairSetting;

/*
 A counter of the device.
 */
typedef struct QpairCounter {
    /*
     Its name.
     */
    struct QpairText name;
    /*
     What it counts, for people.
     */
    struct QpairText text;
} QpairCounter;

/*
 What the model asks of QEMU. Each callback gets `opaque`, is called from inside of a call into the
 model, and returns without having freed the model. All calls come one after another, from whatever thread. In
 a call that came without the BQL a callback must not take it; so memory that is no RAM is refused there.
 */
typedef struct QpairHost {
    /*
     Handed to all of them.
     */
    void *opaque;
    /*
     Reads guest memory into `buffer`; false if the system refuses.
     */
    bool (*read)(void *opaque, uint64_t addr, void *buffer, size_t bytes);
    /*
     Writes guest memory from `buffer`; false if the system refuses.
     */
    bool (*write)(void *opaque, uint64_t addr, const void *buffer, size_t bytes);
    /*
     Writes one aligned word of guest memory at once and after all earlier writes; false if the
     system refuses.
     */
    bool (*write_word)(void *opaque, uint64_t addr, uint64_t word);
    /*
     Maps guest RAM for reading and writing until `unmap`, as one piece of `bytes` bytes, and
     sets `mapping`; NULL if that cannot be.
     */
    void *(*map)(void *opaque, uint64_t addr, size_t bytes, void **mapping);
    /*
     Reads bytes of a mapping into `buffer`.
     */
    void (*load)(void *mapping, size_t at, void *buffer, size_t bytes);
    /*
     Writes bytes of a mapping from `buffer`.
     */
    void (*store)(void *mapping, size_t at, const void *buffer, size_t bytes);
    /*
     Copies bytes of the mapping `from` to the mapping `to`, which may be the same; they may overlap.
     */
    void (*copy)(void *to, size_t at, void *from, size_t from_at, size_t bytes);
    /*
     Words of a mapping were written by the model itself.
     */
    void (*written)(void *mapping, size_t at, size_t bytes);
    /*
     Ends a mapping.
     */
    void (*unmap)(void *mapping);
    /*
     Sends the interrupt message of a vector, once the call into the model has returned.
     */
    void (*raise)(void *opaque, uint32_t vector);
    /*
     The virtual clock, in nanoseconds.
     */
    uint64_t (*now)(void *opaque);
    /*
     Calls `qpair_model_run` soon.
     */
    void (*wake)(void *opaque);
    /*
     Calls `qpair_model_run` at this time of the virtual clock, and not when it was
     last asked to; the largest number is never.
     */
    void (*wake_at)(void *opaque, uint64_t nanos);
    /*
     A number that the guest cannot predict.
     */
    uint64_t (*random)(void *opaque);
    /*
     Whether the function may be bus master.
     */
    bool (*bus_master)(void *opaque);
    /*
     Traces something; `arguments` are six.
     */
    void (*trace)(void *opaque, enum QpairTrace what, const uint64_t *arguments);
} QpairHost;

/*
 What QEMU has to know of the function.
 */
struct QpairFacts qpair_facts(void);

/*
 The setting with this index; behind the last one its name is empty.
 */
struct QpairSetting qpair_setting(uint32_t index);

/*
 The counter with this index; behind the last one its name is empty.
 */
struct QpairCounter qpair_counter(uint32_t index);

/*
 Makes a function of `values`, one for each setting; NULL and a message in `error` if they cannot be.
 On a deterministic machine the core works at times that the guest's instructions alone decide.

 # Safety

 The callbacks keep what [`QpairHost`] says until the model is freed; `values` has a number for each
 setting; `room` bytes from `error` are valid for writes.
 */
struct QpairModel *qpair_model_new(struct QpairHost host,
                                   const uint64_t *values,
                                   bool deterministic,
                                   char *error,
                                   size_t room);

/*
 The function is gone: when this returns, nothing is mapped, no DMA is under way, and no callback is
 called any more. Registers read as ones, all else does nothing. Called from inside of the model, all that holds
 when that has returned.

 # Safety

 See the [module](self).
 */
void qpair_model_end(const struct QpairModel *model);

/*
 Frees a model.

 # Safety

 See the [module](self); and no call into the model is under way.
 */
void qpair_model_free(struct QpairModel *model);

/*
 Reads a register.

 # Safety

 See the [module](self).
 */
uint32_t qpair_model_reg_read(const struct QpairModel *model, uint64_t offset);

/*
 Writes a register.

 # Safety

 See the [module](self).
 */
void qpair_model_reg_write(const struct QpairModel *model, uint64_t offset, uint32_t value);

/*
 Writes `bytes` bytes at this offset of the doorbells' BAR.

 # Safety

 See the [module](self).
 */
void qpair_model_doorbell(const struct QpairModel *model,
                          uint64_t offset,
                          uint64_t value,
                          uint32_t bytes);

/*
 The same from a CPU that does not hold the BQL, and without waiting for anybody. False if it was not done: then
 it has to be done with the BQL.

 # Safety

 See the [module](self).
 */
bool qpair_model_post(const struct QpairModel *model,
                      uint64_t offset,
                      uint64_t value,
                      uint32_t bytes);

/*
 Lets the core work for a while; true if it wants to go on.

 # Safety

 See the [module](self).
 */
bool qpair_model_run(const struct QpairModel *model);

/*
 The same in a thread that does not hold the BQL.

 # Safety

 See the [module](self).
 */
enum QpairRun qpair_model_run_apart(const struct QpairModel *model);

/*
 Binds the function to the BQL, because an IOMMU translates for it, or looses it. When this returns, nobody without
 the BQL is at work in a bound function.

 # Safety

 See the [module](self).
 */
void qpair_model_bind(const struct QpairModel *model,
                      bool bound);

/*
 Returns the function to power-on.

 # Safety

 See the [module](self).
 */
void qpair_model_reset(const struct QpairModel *model);

/*
 Drops all mappings; they are made anew when they are needed.

 # Safety

 See the [module](self).
 */
void qpair_model_unmap_all(const struct QpairModel *model);

/*
 Whether the function plays dead: all reads are ones.

 # Safety

 See the [module](self).
 */
bool qpair_model_vanished(const struct QpairModel *model);

/*
 Whether the core's work takes (virtual) time.

 # Safety

 See the [module](self).
 */
bool qpair_model_paced(const struct QpairModel *model);

/*
 MSI-X vectors.

 # Safety

 See the [module](self).
 */
uint32_t qpair_model_vectors(const struct QpairModel *model);

/*
 Bytes of doorbell pages.

 # Safety

 See the [module](self).
 */
uint64_t qpair_model_doorbell_bytes(const struct QpairModel *model);

/*
 The value of a counter.

 # Safety

 See the [module](self).
 */
uint64_t qpair_model_counter(const struct QpairModel *model, uint32_t index);

/*
 The value of a setting.

 # Safety

 See the [module](self).
 */
uint64_t qpair_model_get(const struct QpairModel *model, uint32_t index);

/*
 Changes a setting; false and a message in `error` if that cannot be.

 # Safety

 See the [module](self); `room` bytes from `error` are valid for writes.
 */
bool qpair_model_set(const struct QpairModel *model,
                     uint32_t index,
                     uint64_t value,
                     char *error,
                     size_t room);

/*
 Does what a setting of several numbers says; false and a message in `error` if that cannot be.

 # Safety

 See the [module](self); `bytes` bytes from `text` are valid for reads, `room` from `error` for writes.
 */
bool qpair_model_set_words(const struct QpairModel *model,
                           uint32_t index,
                           const char *text,
                           size_t bytes,
                           char *error,
                           size_t room);

/*
 What QEMU has to know of the function.
 */
struct QpairFacts qpair_facts(void);

/*
 The setting with this index; behind the last one its name is empty.
 */
struct QpairSetting qpair_setting(uint32_t index);

/*
 The counter with this index; behind the last one its name is empty.
 */
struct QpairCounter qpair_counter(uint32_t index);

/*
 Makes a function of `values`, one for each setting; NULL and a message in `error` if they cannot be.
 On a deterministic machine the core works at times that the guest's instructions alone decide.

 # Safety

 The callbacks keep what [`QpairHost`] says until the model is freed; `values` has a number for each
 setting; `room` bytes from `error` are valid for writes.
 */
struct QpairModel *qpair_model_new(struct QpairHost host,
                                   const uint64_t *values,
                                   bool deterministic,
                                   char *error,
                                   size_t room);

/*
 The function is gone: when this returns, nothing is mapped, no DMA is under way, and no callback is
 called any more. Registers read as ones, all else does nothing. Called from inside of the model, all that holds
 when that has returned.

 # Safety

 See the [module](self).
 */
void qpair_model_end(const struct QpairModel *model);

/*
 Frees a model.

 # Safety

 See the [module](self); and no call into the model is under way.
 */
void qpair_model_free(struct QpairModel *model);

/*
 Reads a register.

 # Safety

 See the [module](self).
 */
uint32_t qpair_model_reg_read(const struct QpairModel *model, uint64_t offset);

/*
 Writes a register.

 # Safety

 See the [module](self).
 */
void qpair_model_reg_write(const struct QpairModel *model, uint64_t offset, uint32_t value);

/*
 Writes `bytes` bytes at this offset of the doorbells' BAR.

 # Safety

 See the [module](self).
 */
void qpair_model_doorbell(const struct QpairModel *model,
                          uint64_t offset,
                          uint64_t value,
                          uint32_t bytes);

/*
 The same from a CPU that does not hold the BQL, and without waiting for anybody. False if it was not done: then
 it has to be done with the BQL.

 # Safety

 See the [module](self).
 */
bool qpair_model_post(const struct QpairModel *model,
                      uint64_t offset,
                      uint64_t value,
                      uint32_t bytes);

/*
 Lets the core work for a while; true if it wants to go on.

 # Safety

 See the [module](self).
 */
bool qpair_model_run(const struct QpairModel *model);

/*
 The same in a thread that does not hold the BQL.

 # Safety

 See the [module](self).
 */
enum QpairRun qpair_model_run_apart(const struct QpairModel *model);

/*
 Binds the function to the BQL, because an IOMMU translates for it, or looses it. When this returns, nobody without
 the BQL is at work in a bound function.

 # Safety

 See the [module](self).
 */
void qpair_model_bind(const struct QpairModel *model,
                      bool bound);

/*
 Returns the function to power-on.

 # Safety

 See the [module](self).
 */
void qpair_model_reset(const struct QpairModel *model);

/*
 Drops all mappings; they are made anew when they are needed.

 # Safety

 See the [module](self).
 */
void qpair_model_unmap_all(const struct QpairModel *model);

/*
 Whether the function plays dead: all reads are ones.

 # Safety

 See the [module](self).
 */
bool qpair_model_vanished(const struct QpairModel *model);

/*
 Whether the core's work takes (virtual) time.

 # Safety

 See the [module](self).
 */
bool qpair_model_paced(const struct QpairModel *model);

/*
 MSI-X vectors.

 # Safety

 See the [module](self).
 */
uint32_t qpair_model_vectors(const struct QpairModel *model);

/*
 Bytes of doorbell pages.

 # Safety

 See the [module](self).
 */
uint64_t qpair_model_doorbell_bytes(const struct QpairModel *model);

/*
 The value of a counter.

 # Safety

 See the [module](self).
 */
uint64_t qpair_model_counter(const struct QpairModel *model, uint32_t index);

/*
 The value of a setting.

 # Safety

 See the [module](self).
 */
uint64_t qpair_model_get(const struct QpairModel *model, uint32_t index);

/*
 Changes a setting; false and a message in `error` if that cannot be.

 # Safety

 See the [module](self); `room` bytes from `error` are valid for writes.
 */
bool qpair_model_set(const struct QpairModel *model,
                     uint32_t index,
                     uint64_t value,
                     char *error,
                     size_t room);

/*
 Does what a setting of several numbers says; false and a message in `error` if that cannot be.

 # Safety

 See the [module](self); `bytes` bytes from `text` are valid for reads, `room` from `error` for writes.
 */
bool qpair_model_set_words(const struct QpairModel *model,
                           uint32_t index,
                           const char *text,
                           size_t bytes,
                           char *error,
                           size_t room);

#endif  /* QPAIR_FFI_H */
