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
 The type of a setting's value.
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
    /*
     Text, of at most 1000 bytes.
     */
    QPAIR_KIND_TEXT,
} QpairKind;

/*
 A fault of the function of channels, for tests.
 */
typedef enum QpairKnob {
    /*
     The channels get no turns: 1 or 0.
     */
    QPAIR_KNOB_STALL,
    /*
     The function is gone: 1 or 0.
     */
    QPAIR_KNOB_VANISH,
    /*
     How many of the next interrupts get lost.
     */
    QPAIR_KNOB_DROP_INTERRUPTS,
} QpairKnob;

/*
 What is left after a run of the core.
 */
typedef enum QpairRun {
    /*
     Nothing, or nothing before the requested time.
     */
    QPAIR_RUN_IDLE,
    /*
     There is more work.
     */
    QPAIR_RUN_MORE,
    /*
     The function is bound to the BQL: a holder of the BQL must call `qpair_model_run`.
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
     A doorbell was invalid (page, value).
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
     An admin command was executed (opcode, object, error).
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
    /*
     A rule injected a fault (rule, QP, opcode, index past the request).
     */
    QPAIR_TRACE_FAULT,
    /*
     A rule made a word wrong that the device writes (rule, object, word).
     */
    QPAIR_TRACE_GARBAGE,
    /*
     A frame went from one channel to another (transmit, receive, bytes, dropped).
     */
    QPAIR_TRACE_FRAME,
    /*
     A channel halted by itself (channel, cause).
     */
    QPAIR_TRACE_HALT,
} QpairTrace;

/*
 A function, and the thread that is inside.
 */
typedef struct QpairModel QpairModel;

/*
 A function of channels.
 */
typedef struct QpairStream QpairStream;

/*
 Properties of the function that QEMU needs.
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
     The number of bytes.
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
     Its description.
     */
    struct QpairText text;
    /*
     The type of its value.
     */
    enum QpairKind kind;
    /*
     It may be changed while the device is in use.
     */
    bool live;
    /*
     Its default.
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
     Its description.
     */
    struct QpairText text;
} QpairCounter;

/*
 The model's callbacks into QEMU. Each gets `opaque`, is called during a call into the model, and
 must not free the model. All calls are serialized, but may come from any thread. In a call
 without the BQL a callback must not take it, so accesses to memory that is not RAM are refused
 there.
 */
typedef struct QpairHost {
    /*
     Passed to all of them.
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
     sets `mapping`; NULL if that is not possible.
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
     The model itself has written words of a mapping.
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
     A clock of the host that never goes back, in nanoseconds. It ends long runs of the core, and
     decides nothing else.
     */
    uint64_t (*host_now)(void *opaque);
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
     How many frames `transmit` takes now. After 0, `qpair_model_run` is called when there is room.
     */
    size_t (*room)(void *opaque);
    /*
     Sends a frame to the network, once the call into the model has returned.
     */
    void (*transmit)(void *opaque, const void *frame, size_t bytes);
    /*
     A number that the guest cannot predict.
     */
    uint64_t (*random)(void *opaque);
    /*
     Whether the function may be bus master.
     */
    bool (*bus_master)(void *opaque);
    /*
     Traces something; there are six `arguments`.
     */
    void (*trace)(void *opaque, enum QpairTrace what, const uint64_t *arguments);
} QpairHost;

/*
 Properties of the function of channels that QEMU needs.
 */
typedef struct QpairStreamFacts {
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
     BAR of the MSI-X table.
     */
    uint8_t bar_msix;
    /*
     Bytes of the registers' BAR.
     */
    uint64_t register_bytes;
    /*
     How many counters there are.
     */
    uint32_t counters;
    /*
     Pairs of channels, if no other number is asked for.
     */
    uint32_t channels;
} QpairStreamFacts;

/*
 Properties of the function that QEMU needs.
 */
struct QpairFacts qpair_facts(void);

/*
 The setting with this index; beyond the last one the name is empty.
 */
struct QpairSetting qpair_setting(uint32_t index);

/*
 The counter with this index; beyond the last one the name is empty.
 */
struct QpairCounter qpair_counter(uint32_t index);

/*
 Creates a function with `values`, one for each setting; NULL and a message in `error` if they
 are invalid. On a deterministic machine only the guest's instructions determine when the core
 runs. The port of a wired function sends and receives frames.

 # Safety

 The callbacks keep the contract of [`QpairHost`] until the model is freed; `values` has a number
 for each setting; `room` bytes from `error` are valid for writes.
 */
struct QpairModel *qpair_model_new(struct QpairHost host,
                                   const uint64_t *values,
                                   bool deterministic,
                                   bool wired,
                                   char *error,
                                   size_t room);

/*
 Ends the function: when this returns, nothing is mapped, no DMA is in flight, and the model
 calls no callback any more. Registers read as ones, all other calls do nothing. If this is
 called during a call into the model, all that holds when the outer call has returned.

 # Safety

 See the [module](self).
 */
void qpair_model_end(const struct QpairModel *model);

/*
 Frees a model.

 # Safety

 See the [module](self); no call into the model is in progress.
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
 The same from a CPU that does not hold the BQL, and without waiting for a lock. False if the
 doorbell was not accepted: then the caller must repeat it with the BQL.

 # Safety

 See the [module](self).
 */
bool qpair_model_post(const struct QpairModel *model,
                      uint64_t offset,
                      uint64_t value,
                      uint32_t bytes);

/*
 Runs the core for a while; true if there is more work.

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
 A frame from the network. Returns whether it is of the function alone; if not, it is also for the
 network device.

 # Safety

 See the [module](self); `bytes` bytes from `frame` are valid for reads.
 */
bool qpair_model_frame(const struct QpairModel *model, const void *frame, size_t bytes);

/*
 Binds the function to the BQL, because an IOMMU translates for it, or unbinds it. When this
 returns, no thread without the BQL works in a bound function.

 # Safety

 See the [module](self).
 */
void qpair_model_bind(const struct QpairModel *model, bool bound);

/*
 Halts the core, because the machine stops, or lets it go on. When this returns, a core that is
 halted accesses no memory.

 # Safety

 See the [module](self).
 */
void qpair_model_halt(const struct QpairModel *model, bool halted);

/*
 Returns the function to power-on.

 # Safety

 See the [module](self).
 */
void qpair_model_reset(const struct QpairModel *model);

/*
 Drops all mappings; they are created again when needed.

 # Safety

 See the [module](self).
 */
void qpair_model_unmap_all(const struct QpairModel *model);

/*
 Whether the function is made to vanish: all reads are ones.

 # Safety

 See the [module](self).
 */
bool qpair_model_vanished(const struct QpairModel *model);

/*
 Bus mastering is to be switched off; whether that is to be ignored.

 # Safety

 See the [module](self).
 */
bool qpair_model_ignores_stop(const struct QpairModel *model);

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
 Changes a setting; false and a message in `error` if that fails.

 # Safety

 See the [module](self); `room` bytes from `error` are valid for writes.
 */
bool qpair_model_set(const struct QpairModel *model,
                     uint32_t index,
                     uint64_t value,
                     char *error,
                     size_t room);

/*
 Writes the terminated value of a setting of text.

 # Safety

 See the [module](self); `room` bytes from `text` are valid for writes.
 */
void qpair_model_get_text(const struct QpairModel *model, uint32_t index, char *text, size_t room);

/*
 Changes a setting of text, or executes one of several numbers; false and a message in `error` if
 that fails.

 # Safety

 See the [module](self); `bytes` bytes from `text` are valid for reads, `room` from `error` for writes.
 */
bool qpair_model_set_text(const struct QpairModel *model,
                          uint32_t index,
                          const char *text,
                          size_t bytes,
                          char *error,
                          size_t room);

/*
 Properties of the function of channels that QEMU needs.
 */
struct QpairStreamFacts qpair_stream_facts(void);

/*
 The counter of the function of channels with this index; beyond the last one the name is empty.
 */
struct QpairCounter qpair_stream_counter(uint32_t index);

/*
 Creates a function of `channels` pairs of channels, of the kind that the `bytes` bytes of `kind`
 name; NULL and a message in `error` if they are invalid.

 # Safety

 The callbacks keep the contract of [`QpairHost`] until the stream is freed; `bytes` bytes from
 `kind` are valid for reads, `room` from `error` for writes.
 */
struct QpairStream *qpair_stream_new(struct QpairHost host,
                                     uint32_t channels,
                                     const char *kind,
                                     size_t bytes,
                                     char *error,
                                     size_t room);

/*
 Ends the function: when this returns, the model calls no callback any more. Registers read as
 ones, all other calls do nothing. If this is called during a call into the model, all that holds
 when the outer call has returned.

 # Safety

 See the [module](self).
 */
void qpair_stream_end(const struct QpairStream *stream);

/*
 Frees a stream.

 # Safety

 See the [module](self); no call into the model is in progress.
 */
void qpair_stream_free(struct QpairStream *stream);

/*
 Reads a register.

 # Safety

 See the [module](self).
 */
uint32_t qpair_stream_reg_read(const struct QpairStream *stream, uint64_t offset);

/*
 Writes a register.

 # Safety

 See the [module](self).
 */
void qpair_stream_reg_write(const struct QpairStream *stream, uint64_t offset, uint32_t value);

/*
 Runs the channels for a while; true if there is more work.

 # Safety

 See the [module](self).
 */
bool qpair_stream_run(const struct QpairStream *stream);

/*
 Returns the function to power-on.

 # Safety

 See the [module](self).
 */
void qpair_stream_reset(const struct QpairStream *stream);

/*
 MSI-X vectors.

 # Safety

 See the [module](self).
 */
uint32_t qpair_stream_vectors(const struct QpairStream *stream);

/*
 The value of a counter.

 # Safety

 See the [module](self).
 */
uint64_t qpair_stream_count(const struct QpairStream *stream, uint32_t index);

/*
 The value of a knob.

 # Safety

 See the [module](self).
 */
uint64_t qpair_stream_get(const struct QpairStream *stream, enum QpairKnob knob);

/*
 Turns a knob.

 # Safety

 See the [module](self).
 */
void qpair_stream_set(const struct QpairStream *stream, enum QpairKnob knob, uint32_t value);

#endif  /* QPAIR_FFI_H */
