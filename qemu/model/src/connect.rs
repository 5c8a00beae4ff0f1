// SPDX-License-Identifier: GPL-2.0
//! Connections by frames: they begin with a peer at another port, and end with a reset.

use crate::datapath::DataPath;
use crate::host::Host;
use crate::link::limits;
use crate::link::Link;
use crate::net::source_port;
use crate::path::bytes_of;
use crate::path::Path;
use qpair_abi::command::service;
use qpair_abi::Number;
use qpair_roce::frame::Route;

/// The hop limit where PATH has 0.
const HOPS: u8 = 64;

impl<H: Host> DataPath<H> {
    /// The peer of a queue pair was set. One at another port has a connection, if frames reach it.
    pub(crate) fn connect(&mut self, qp: Number) {
        let from_mac = self.core.knobs.mac;
        let Some(found) = self.qps.get_mut(qp) else {
            return;
        };
        let begun = found.sq.window.head();
        let link = match (found.path, found.av) {
            (Path::There(to), Some(av)) => {
                let from = self.port.gids.get(usize::from(av.source));
                let route = Route {
                    from_mac,
                    to_mac: av.mac,
                    from: bytes_of(from.copied().unwrap_or_default()),
                    to: bytes_of(to.gid),
                    source_port: source_port(qp),
                    hops: if av.hops == 0 { HOPS } else { av.hops },
                    class: av.class,
                    flow: av.flow,
                };
                let limits = limits(&found.attributes, av.reads);
                Some(Box::new(match found.service {
                    service::UC => Link::unreliable(route, to.qp.raw(), &av, begun),
                    _ => Link::reliable(route, to.qp.raw(), &av, limits, begun),
                }))
            }
            _ => None,
        };
        found.set_link(link);
    }

    /// The first PSN of the SQ was set.
    pub(crate) fn start(&mut self, qp: Number) {
        let Some(found) = self.qps.get_mut(qp) else {
            return;
        };
        if let Some((link, av)) = found.link.as_mut().zip(found.attributes.av) {
            link.starts(&av, limits(&found.attributes, av.reads));
        }
    }

    /// Retries or timers were set.
    pub(crate) fn limit(&mut self, qp: Number) {
        let now = self.core.bus.host.now();
        let Some(found) = self.qps.get_mut(qp) else {
            return;
        };
        if let Some((link, av)) = found.link.as_mut().zip(found.attributes.av) {
            link.set_limits(now, limits(&found.attributes, av.reads));
        }
    }
}
