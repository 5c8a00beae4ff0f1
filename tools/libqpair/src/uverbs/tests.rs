// SPDX-License-Identifier: GPL-2.0
//! What needs no device: errors of calls, events, doorbells, and the files of the port.

use std::fs;
use std::io::Write as _;

use rustix::pipe::{pipe_with, PipeFlags};
use tempfile::TempDir;

use super::*;

/// A file that is no device, the other end of its events, and the parent of its port's folder.
pub(super) fn no_device() -> (File, fs::File, TempDir) {
    let (events, writer) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
    let root = tempfile::tempdir().unwrap();
    let fd = tempfile::tempfile().unwrap();
    fd.set_len(doorbell::PAGE_BYTES).unwrap();
    // SAFETY: A new mapping, at an address of the kernel's choice.
    let page = unsafe {
        rustix::mm::mmap(
            ptr::null_mut(),
            doorbell::PAGE_BYTES as usize,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &fd,
            0,
        )
    };
    let file = File {
        fd: fd.into(),
        events,
        page: NonNull::new(page.unwrap().cast()).unwrap(),
        vectors: 1,
        limits: qpair_uresp_alloc_ucontext::default(),
        port: root.path().join("ports/1"),
        cqs: Numbers::default(),
        srqs: Numbers::default(),
        qps: Numbers::default(),
    };
    (file, writer.into(), root)
}

#[test]
fn each_call_returns_the_error_of_the_kernel() {
    let (file, _events, _root) = no_device();
    let object = Object {
        handle: 1,
        number: Number::from_raw(1),
    };
    let cq = NewCq {
        buffer: 0,
        buffer_bytes: 4096,
        depth: 64,
        vector: 0,
        eventfd: None,
    };
    let srq = NewSrq {
        pd: 1,
        buffer: 0,
        buffer_bytes: 4096,
        depth: 64,
        stride: 0,
    };
    let qp = |qp_type, srq| NewQp {
        pd: 1,
        send_cq: object,
        recv_cq: object,
        sq_buffer: 0,
        sq_buffer_bytes: 4096,
        rq_buffer: 0,
        rq_buffer_bytes: 4096,
        sq_blocks: 64,
        rq_depth: 64,
        rq_stride: 0,
        srq,
        qp_type,
    };
    let mr = NewMr {
        pd: 1,
        addr: 0,
        bytes: 4096,
        access: 0,
    };
    let errors = [
        file.query().err(),
        file.alloc_pd().err(),
        file.dealloc_pd(1).err(),
        file.create_cq(&cq).err(),
        file.destroy_cq(object).err(),
        file.create_srq(&srq).err(),
        file.arm_srq(object, 1).err(),
        file.query_srq(object).err(),
        file.destroy_srq(object).err(),
        file.create_qp(&qp(QpType::Connected(Service::Rc), None))
            .err(),
        file.create_qp(&qp(QpType::Connected(Service::Uc), None))
            .err(),
        file.create_qp(&qp(QpType::Ud, Some(object))).err(),
        file.modify_qp(object, Change::Error).err(),
        file.query_qp(object).err(),
        file.destroy_qp(object).err(),
        file.create_ah(1, Address::Lid(1)).err(),
        file.destroy_ah(1).err(),
        file.reg_mr(&mr).err(),
        file.dereg_mr(1).err(),
    ];
    assert_eq!(errors, [Some(Errno::NOTTY); 19]);
}

#[test]
fn a_file_that_is_no_device_is_not_opened() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let refused = File::open(file.path(), "qpair0").unwrap_err();
    assert_eq!(refused, Errno::NOTTY);
}

#[test]
fn an_event_names_its_object() {
    let (file, mut events, _root) = no_device();
    let number = Number::from_raw(7);
    for numbers in [&file.cqs, &file.srqs, &file.qps] {
        numbers.with(|_| Ok(()), |()| number).unwrap();
    }
    assert_eq!(file.async_event(), Ok(None));
    let cases = [
        (event::CQ_ERR, AsyncEvent::CqOverrun(number)),
        (event::QP_FATAL, AsyncEvent::QpFatal(number)),
        (event::QP_ACCESS_ERR, AsyncEvent::QpAccess(number)),
        (event::QP_REQ_ERR, AsyncEvent::QpRequest(number)),
        (event::SRQ_LIMIT_REACHED, AsyncEvent::SrqLimit(number)),
        (event::SRQ_ERR, AsyncEvent::SrqFatal(number)),
        (event::QP_LAST_WQE_REACHED, AsyncEvent::LastReceive(number)),
    ];
    let mut came = |handle: u64, kind: u32| {
        let [mut bytes, kind] =
            [handle.to_ne_bytes(), u64::from(kind).to_ne_bytes()].map(Vec::from);
        bytes.extend(kind);
        events.write_all(&bytes).unwrap();
        file.async_event().unwrap()
    };
    for (kind, named) in cases {
        assert_eq!(came(0, kind), Some(named));
        assert!(named.to_string().contains(&number.to_string()), "{named}");
        // One that was destroyed meanwhile.
        assert_eq!(came(1, kind), Some(AsyncEvent::Other(kind)));
    }
    let port = event::PORT_ERR;
    assert_eq!(came(0, event::DEVICE_FATAL), Some(AsyncEvent::DeviceFatal));
    assert_eq!(came(0, port), Some(AsyncEvent::Other(port)));
    assert_eq!(file.async_event(), Ok(None));
}

#[test]
fn a_doorbell_is_written_inside_the_page_alone() {
    let (file, _events, _root) = no_device();
    let words = doorbell::PAGE_BYTES as usize / size_of::<u64>();
    file.doorbell(8, 0x1234);
    file.doorbell(doorbell::PAGE_BYTES - 8, 0x5678);
    file.doorbell(doorbell::PAGE_BYTES, 0x9abc);
    // SAFETY: The page is mapped, and nothing else accesses it.
    let page = unsafe { std::slice::from_raw_parts(file.page.as_ptr(), words) };
    let mut right = vec![0; words];
    (right[1], right[words - 1]) = (0x1234, 0x5678);
    assert_eq!(page, right);
}

#[test]
fn files_of_the_port_are_read_or_say_why_not() {
    let (file, _events, _root) = no_device();
    assert_eq!(file.gid(0), Err(Errno::NODEV));
    assert_eq!(file.counters(), Err(Errno::NODEV));
    let folders = ["gids", "hw_counters"].map(|name| file.port.join(name));
    for folder in &folders {
        fs::create_dir_all(folder).unwrap();
    }
    let [gids, counters] = folders;
    assert_eq!(file.gid(0), Err(Errno::NOSYS));
    fs::write(gids.join("0"), "fe80:0000:0000:0000:5054:00ff:fe12:3456\n").unwrap();
    fs::write(gids.join("1"), "none\n").unwrap();
    assert_eq!(
        file.gid(0),
        Ok(*b"\xfe\x80\0\0\0\0\0\0\x50\x54\0\xff\xfe\x12\x34\x56")
    );
    assert_eq!(file.gid(1), Err(Errno::IO));

    fs::write(counters.join("lifespan"), "0\n").unwrap();
    assert_eq!(file.counters(), Err(Errno::NOSYS));
    for (value, which) in Counter::ALL.iter().enumerate() {
        let name = which.name().replace('-', "_");
        fs::write(counters.join(name), format!("{value}\n")).unwrap();
    }
    let values = file.counters().unwrap();
    assert!(
        values.into_iter().eq(0..Counter::COUNT as u64),
        "{values:?}"
    );
    fs::write(counters.join("lifespan"), "soon\n").unwrap();
    assert_eq!(file.counters(), Err(Errno::IO));
}

#[test]
fn the_doorbell_page_is_unmapped_with_the_file() {
    let (file, _events, _root) = no_device();
    // While this descriptor is open, no file of another test gets the same inode.
    let held = file.fd.try_clone().unwrap();
    let inode = rustix::fs::fstat(&held).unwrap().st_ino.to_string();
    let is_mapped = || {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines()
            .any(|line| line.split_whitespace().nth(4) == Some(&inode))
    };
    assert!(is_mapped());
    drop(file);
    assert!(!is_mapped());
}

/// Doorbells are written. A directory can be opened for reading alone.
#[test]
fn a_file_is_opened_for_writing() {
    let folder = tempfile::tempdir().unwrap();
    let opened = File::open(folder.path(), "qpair0");
    assert_eq!(opened.map(drop), Err(Errno::ISDIR));
}
