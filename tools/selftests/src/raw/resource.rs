// SPDX-License-Identifier: GPL-2.0
//! What `rdma resource show -dd` has: objects of the RDMA core, with the driver's details.
//!
//! The numbers are those of `include/uapi/rdma/rdma_netlink.h`.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::io::Write;

use nix::errno::Errno;
use nix::sys::socket::socket;
use nix::sys::socket::AddressFamily;
use nix::sys::socket::SockFlag;
use nix::sys::socket::SockProtocol;
use nix::sys::socket::SockType;

/// The client of a command: `RDMA_NL_NLDEV`.
const NLDEV: u16 = 5 << 10;
/// The command that dumps all devices.
const DEVICES: u16 = NLDEV | 1;
const DEV_INDEX: u16 = 1;
const DEV_NAME: u16 = 2;
pub(super) const LKEY: u16 = 43;
pub(super) const MRLEN: u16 = 45;
const DRIVER: u16 = 52;
const DRIVER_STRING: u16 = 54;
const DRIVER_U32: u16 = 57;
const DRIVER_DETAILS: u16 = 97;

/// A kind of object: the command that dumps all of a device, and the attribute of their table.
pub(super) struct Kind {
    command: u16,
    table: u16,
}

pub(super) const CQ: Kind = Kind {
    command: NLDEV | 12,
    table: 35,
};
pub(super) const QP: Kind = Kind {
    command: NLDEV | 10,
    table: 19,
};
pub(super) const MR: Kind = Kind {
    command: NLDEV | 13,
    table: 40,
};

#[derive(Default)]
pub(super) struct Object {
    /// Numbers of the core, by attribute.
    pub(super) core: HashMap<u16, u64>,
    /// Numbers of the driver, by name.
    pub(super) driver: HashMap<String, u32>,
}

/// The attributes in `bytes`: type and payload.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const NESTED: u16 = 1 << 15;
    std::iter::from_fn(move || {
        let length = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let payload = bytes.get(4..length.into())?;
        let next = usize::from(length).next_multiple_of(4);
        bytes = bytes.get(next..).unwrap_or_default();
        Some((kind & !NESTED, payload))
    })
}

/// A number of 4 or 8 bytes.
fn number(payload: &[u8]) -> Option<u64> {
    match payload.len() {
        4 => Some(u32::from_ne_bytes(payload.try_into().ok()?).into()),
        8 => Some(u64::from_ne_bytes(payload.try_into().ok()?)),
        _ => None,
    }
}

fn text(payload: &[u8]) -> String {
    String::from_utf8_lossy(payload)
        .trim_end_matches('\0')
        .to_string()
}

/// The attributes of each message that answers a dump.
fn dump(command: u16, attributes: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
    const HEADER: usize = 16;
    let flags = libc::NLM_F_REQUEST as u16 | libc::NLM_F_DUMP as u16;
    let length = (HEADER + attributes.len()) as u32;
    let mut request = length.to_ne_bytes().to_vec();
    request.extend([command, flags].map(u16::to_ne_bytes).as_flattened());
    // Sequence and sender: the socket has no other request.
    request.extend([0; 8]);
    request.extend(attributes);
    let io = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
    let mut socket = File::from(socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRDMA,
    )?);
    socket.write_all(&request).map_err(io)?;
    let (mut answers, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let read = socket.read(&mut buffer).map_err(io)?;
        let mut rest = &buffer[..read];
        while let Some(header) = rest.get(..HEADER) {
            let length = number(&header[..4]).ok_or(Errno::EPROTO)? as usize;
            let payload = rest.get(HEADER..length).ok_or(Errno::EPROTO)?;
            // Both end with an errno.
            let errno = || {
                payload
                    .get(..4)
                    .map_or(0, |code| number(code).unwrap_or(0) as i32)
            };
            match i32::from(u16::from_ne_bytes([header[4], header[5]])) {
                libc::NLMSG_DONE | libc::NLMSG_ERROR if errno() != 0 => {
                    return Err(Errno::from_raw(-errno()));
                }
                libc::NLMSG_DONE => return Ok(answers),
                _ => answers.push(payload.to_vec()),
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// An attribute with its payload of at most 4 bytes.
fn attribute(kind: u16, payload: &[u8]) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..2].copy_from_slice(&(4 + payload.len() as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&kind.to_ne_bytes());
    bytes[4..4 + payload.len()].copy_from_slice(payload);
    bytes
}

/// The objects of a kind of `qpairN`, of all processes and of kernel ULPs.
pub(super) fn objects(device: usize, of: &Kind) -> Result<Vec<Object>, Errno> {
    let name = format!("qpair{device}");
    let devices = dump(DEVICES, &[])?;
    let index = devices.iter().find_map(|message| {
        let all: HashMap<u16, &[u8]> = attributes(message).collect();
        (text(all.get(&DEV_NAME)?) == name).then(|| all.get(&DEV_INDEX).copied())?
    });
    let which = [
        attribute(DEV_INDEX, index.ok_or(Errno::ENODEV)?),
        attribute(DRIVER_DETAILS, &[1]),
    ];
    let mut found = Vec::new();
    for message in dump(of.command, which.as_flattened())? {
        for (_, table) in attributes(&message).filter(|(kind, _)| *kind == of.table) {
            found.extend(attributes(table).map(|(_, entry)| object(entry)));
        }
    }
    Ok(found)
}

fn object(entry: &[u8]) -> Object {
    let mut object = Object::default();
    for (kind, payload) in attributes(entry) {
        if kind != DRIVER {
            object
                .core
                .extend(number(payload).map(|value| (kind, value)));
            continue;
        }
        // A name, and then its number.
        let mut name = String::new();
        for (kind, payload) in attributes(payload) {
            match (kind, number(payload)) {
                (DRIVER_STRING, _) => name = text(payload),
                (DRIVER_U32, Some(value)) => {
                    object.driver.insert(name.clone(), value as u32);
                }
                _ => {}
            }
        }
    }
    object
}
