// SPDX-License-Identifier: GPL-2.0
//! The keys that frames name, and the memory that each permits: regions, an FRMR and a window.
//!
//! Memory is granted as far as the key and the queue pair permit, so that the harness finds every
//! other access.

use crate::frames::HERE;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::entry::frmr_of;
use qpair_abi::Number;

/// Where all but the region of the queue pair begin, and their length.
const VA: u64 = 0x1000;
const BYTES: u64 = 4096;
/// The part that the window has.
const WINDOW: u64 = 1024;
const WIDTH: u64 = 2048;
/// Keys of [`Keys::all`] that no frame and no receive may use.
const WRONG: usize = 4;

/// A key, and the addresses that it is for.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub(crate) raw: u32,
    pub(crate) begin: u64,
    pub(crate) bytes: u64,
}

/// What an invalidation ends.
#[derive(Clone, Copy)]
enum Ends {
    Frmr(Number),
    Window(Number),
}

pub(crate) struct Keys {
    all: Vec<Key>,
    /// Those that are valid, and their memory.
    valid: Vec<(Ends, u64)>,
}

/// Grants what a peer may do by these rights, in place of what is granted.
fn permit(m: &Machine, addr: u64, bytes: u64, rights: u8) {
    m.memory.revoke(addr);
    match rights & access::GRANTS {
        0 => m.memory.grant(addr, 0, Grant::Read),
        access::REMOTE_READ => m.memory.grant(addr, bytes, Grant::Read),
        _ => m.memory.grant(addr, bytes, Grant::Write),
    }
}

impl Keys {
    /// Of a queue pair that gives its peer these rights; a window of type 2, or else 1.
    pub(crate) fn new(f: &mut Far, rights: u8, two: bool) -> Self {
        let (pd, own) = (f.pds[HERE], f.mrs[HERE]);
        let other = f.m(HERE).pd();
        let mut all = vec![Key {
            raw: own.key.raw(),
            begin: own.va,
            bytes: own.bytes,
        }];
        let key = |raw| Key {
            raw,
            begin: VA,
            bytes: BYTES,
        };
        // Some are permitted less than the queue pair, and some more.
        let mut valid = Vec::new();
        for access in [access::REMOTE_READ, access::ALL] {
            let mr = f.m(HERE).mr_at(pd, VA, BYTES, access);
            permit(f.m(HERE), mr.addr, BYTES, access & rights);
            all.push(key(mr.key.raw()));
        }
        let m = f.m(HERE);
        let addr = m.memory.alloc(BYTES, 64, Grant::Write);
        let raw = m.registered(pd, VA, block(addr, BYTES));
        permit(m, addr, BYTES, rights);
        let (frmr, _) = frmr_of(raw).expect("the key of an FRMR");
        all.push(key(raw));
        valid.push((Ends::Frmr(frmr), addr));
        // Only RC binds.
        if f.connection.service == service::RC {
            let (window, addr) = Self::bind(f, if two { mw_type::TWO } else { mw_type::ONE });
            permit(f.m(HERE), addr, WIDTH, rights);
            valid.push((Ends::Window(window.0), addr));
            all.push(Key {
                raw: window.1,
                begin: VA + WINDOW,
                bytes: WIDTH,
            });
        }
        for (pd, access) in [(pd, access::LOCAL_WRITE), (other, access::ALL)] {
            let mr = f.m(HERE).mr_at(pd, VA, BYTES, access);
            permit(f.m(HERE), mr.addr, BYTES, 0);
            all.push(key(mr.key.raw()));
        }
        all.extend([own.key.raw() ^ 1 << 16, 0].map(key));
        Self { all, valid }
    }

    /// A bound window: its number and key, and its memory, of a region that has no right itself.
    fn bind(f: &mut Far, kind: u8) -> ((Number, u32), u64) {
        let pd = f.pds[HERE];
        let (m, qp) = (&mut f.lan.machines[HERE], &mut f.qps[HERE]);
        let mr = m.mr_at(pd, VA, BYTES, access::BIND | access::LOCAL_WRITE);
        m.memory.revoke(mr.addr);
        m.memory.grant(mr.addr + WINDOW, WIDTH, Grant::Write);
        let (window, key) = m.mw(pd, kind);
        let bind = Pair::bind(key, &mr, WINDOW, WIDTH);
        m.post_words(qp, &bind_words(bind));
        m.ring_sq(qp);
        m.settle();
        let bound = f.done(HERE);
        assert_eq!(bound[0].status, 0, "{bound:?}");
        ((window, bind.new_key), mr.addr + WINDOW)
    }

    /// Takes the memory of keys away that the device calls invalid.
    pub(crate) fn forget(&mut self, m: &mut Machine) {
        self.valid.retain(|&(ends, addr)| {
            let is_valid = match ends {
                Ends::Frmr(number) => m.query_frmr(number).valid != 0,
                Ends::Window(number) => {
                    MwContext::decode(&m.query(kind::MW, number)).region != Number::default()
                }
            };
            if !is_valid {
                permit(m, addr, 0, 0);
            }
            is_valid
        });
    }

    pub(crate) fn all(&self) -> &[Key] {
        &self.all
    }

    pub(crate) fn wrong(&self) -> &[Key] {
        &self.all[self.all.len() - WRONG..]
    }
}
