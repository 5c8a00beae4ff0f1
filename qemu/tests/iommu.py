# SPDX-License-Identifier: GPL-2.0
"""DMA with an IOMMU in front of the device: cases of device.py."""

from driver import BELL, CQ, EQ, FATAL, QEMU, REG, REMOTE_OPERATION, RESET, Driver, Registrar, Writer, device
from machine import Iommu, Machine


def behind_an_iommu_nothing_is_kept():
    with Machine(*QEMU, "-device", "intel-iommu", *device(), "--trace", "qpair_*") as m:
        f = Driver(m, 4)
        f.up()
        f.query()
        assert "kept mapped 1" in m.trace() and "qpair_unmap_all " not in m.trace()
        iommu = Iommu(m)
        iommu.on(devfn=4 << 3, iova=EQ, shift=0x1000000)
        assert "qpair_unmap_all " in m.trace(), "mappings outlived the switch"
        before = m.words(CQ, 16), m.words(EQ, 16)

        f.shift = 0x1000000
        f.set_register(REG["CTRL"], RESET)
        f.start()
        kept = m.trace().count("kept mapped 1")
        f.query()
        assert (m.words(CQ, 16), m.words(EQ, 16)) == before, "written past the IOMMU"
        assert m.trace().count("kept mapped 1") == kept, "mapped behind an IOMMU"

        before = m.words(CQ + f.shift, 16)
        iommu.map(CQ, None)
        f.post()
        f.until(lambda: f.register(REG["STATUS"]) & FATAL)
        assert m.get("dma-faults"), "no fault was counted"
        assert m.words(CQ + f.shift, 16) == before, "written after an unmap"
        assert "qpair_dma_fault " in m.trace()


def payload_goes_where_the_iommu_says():
    """The mapping of a region is kept, but not when an IOMMU is enabled, nor behind an IOMMU."""
    with Machine(*QEMU, "-device", "intel-iommu", *device(), "--trace", "qpair_*") as m:
        f = Writer(m, 4)
        f.up()
        f.connect()
        region = f"DMA at {f.PAYLOAD:#x}, 8192 bytes: kept mapped 1"
        for word in (1, 2, 3):
            assert f.write_page(word) == (0, word)
        assert m.trace().count(region) == 1, "not kept mapped, or not once"

        iommu = Iommu(m)
        iommu.on(devfn=4 << 3, iova=EQ, shift=0x1000000)
        f.shift = 0x1000000
        for ring in (EQ, f.ENTRIES, f.PAYLOAD):
            m.line("memset", ring + f.shift, 0x2000, 0)
        for word in (4, 5, 6):
            assert f.write_page(word) == (0, word)
        assert f.second_page(0) == 3, "written past the IOMMU"
        assert m.trace().count(region) == 1, "mapped behind an IOMMU"

        iommu.map(f.PAYLOAD + 0x1000, None)
        assert f.write_page(7) == (REMOTE_OPERATION, 6), "written after an unmap"
        assert m.get("dma-faults") == 1
        assert f.second_page(0) == 3


def tables_are_where_the_iommu_says():
    """The table of an FRMR is read through the IOMMU, anew for each registration."""
    with Machine(*QEMU, "-device", "intel-iommu", *device()) as m:
        f = Registrar(m, 4)
        f.up()
        f.connect()
        iommu = Iommu(m)
        iommu.on(devfn=4 << 3, iova=EQ, shift=0x1000000)
        f.shift = 0x1000000
        for ring in (EQ, f.ENTRIES):
            m.line("memset", ring + f.shift, 0x2000, 0)
        # One table for each registration, and one at the bare address.
        targets = {f.TABLE: 0x1E0000, f.TABLE + f.shift: 0x190000, f.TABLE + f.shift + 0x1000: 0x1A0000}
        for table, page in targets.items():
            m.store(table, [page, page + 0x1000])
        for page in targets.values():
            m.line("memset", page + f.shift, 0x2000, 0)

        def second_words():
            return [m.words(page + 0x1000 + f.shift, 1)[0] for page in targets.values()]

        for tag, words in ((1, [0, 1, 0]), (2, [0, 1, 2])):
            iommu.map(f.TABLE, f.TABLE + f.shift + 0x1000 * (tag - 1))
            m.store(f.PAYLOAD + f.shift, [tag])
            assert f.reg_mr(tag, 2) == 0
            assert f.write(0, 0x1000, 8, f.frmr | tag) == 0
            assert second_words() == words, f"{second_words()} by tag {tag}"
            assert f.local_inv(tag) == 0

        iommu.map(f.TABLE, None)
        assert f.reg_mr(3, 2) == 0, "the table was read early"
        assert m.get("dma-faults") == 0
        assert f.write(0, 0x1000, 8, f.frmr | 3) == REMOTE_OPERATION
        assert m.get("dma-faults") == 1
        assert second_words() == [0, 1, 2]


def a_large_message_takes_few_rounds():
    """An iteration of the event loop moves the payload of several turns, also with an IOMMU."""
    turn = 1 << 16
    options = f"bytes-per-turn={turn}"
    with Machine(*QEMU, "-device", "intel-iommu", *device(options), "--trace", "qpair_*") as m:
        f = Writer(m, 4)
        f.BYTES = 8 * turn
        f.up()
        f.connect()
        for shift in (0, 0x1000000):
            if shift:
                Iommu(m).on(devfn=4 << 3, iova=EQ, shift=shift)
                f.shift = shift
                for ring, size in ((EQ, 0x2000), (f.ENTRIES, 0x1000)):
                    m.line("memset", ring + f.shift, size, 0)
            before = m.trace().count("qpair_round ")
            assert f.write(0, 0, f.BYTES) == 0
            rounds = m.trace().count("qpair_round ") - before
            assert rounds <= 4, f"{rounds} rounds for 8 turns, shift {shift:#x}"


def entries_do_not_go_to_devices():
    """The EQ is in memory when it is created; afterwards its address is another device's
    doorbells."""
    with Machine(*QEMU, "-device", "intel-iommu", *device(), "-device", "qpair,id=r,addr=5") as m:
        f = Driver(m, 4)
        g = Driver(m, 5, bars={0: 0xC2000000, 2: 0xD0000000, 4: 0xC3000000})
        g.up()
        table = Iommu(m)
        table.on(devfn=4 << 3, iova=EQ, shift=0x1000000)
        f.enable()
        f.shift = 0x1000000
        f.start()
        f.query()
        table.map(EQ, g.bars[2])
        f.doorbell(BELL["EQ_HEAD"], 0)
        f.doorbell(BELL["CQ_ARM_NEXT"], 0)
        f.until(lambda: f.register(REG["STATUS"]) & FATAL)
        assert m.get("dma-faults")
        assert m.get("sq-doorbells", "r") + m.get("violations", "r") == 0, "DMA rang a doorbell"


TESTS = [
    entries_do_not_go_to_devices,
    behind_an_iommu_nothing_is_kept,
    payload_goes_where_the_iommu_says,
    tables_are_where_the_iommu_says,
    a_large_message_takes_few_rounds,
]
