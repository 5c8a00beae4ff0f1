// SPDX-License-Identifier: GPL-2.0
//! What the function counts. Free-running 64-bit numbers since power-on or reset, which QMP reads
//! by name.

counters! {
    RegReads = "reg-reads", "register reads";
    RegWrites = "reg-writes", "register writes";
    Frames = "frames", "frames received";
    FrameBytes = "frame-bytes", "bytes of frames received";
    Descriptors = "descriptors", "descriptors read";
    Completions = "completions", "descriptors completed or written back";
    Interrupts = "interrupts", "interrupt messages";
    DmaReads = "dma-reads", "DMA reads";
    DmaReadBytes = "dma-read-bytes", "bytes of DMA reads";
    DmaWrites = "dma-writes", "DMA writes";
    DmaWriteBytes = "dma-write-bytes", "bytes of DMA writes";
    DmaFaults = "dma-faults", "DMA that the system refused";
    Drops = "drops", "frames dropped";
    Halts = "halts", "channels that halted by themselves";
    Turns = "turns", "turns of channels in the core";
}
