// SPDX-License-Identifier: GPL-2.0
//! Endpoints for tasks of tokio.
//!
//! The reactor of tokio waits for the [descriptor](std::os::fd::AsFd::as_fd) of the endpoint.
//!
//! A call may be dropped before it is ready:
//!
//! - `send` has sent nothing then, `recv` has taken nothing, and `wait` can be called again.
//! - `read` and `write` may have been posted. The device moves their bytes at any time until the
//!   endpoint is dropped.
//! - `close` drops the endpoint: messages may be lost, and for the peer this side is
//!   [gone](EndpointError::Gone).

use std::os::fd::{AsFd as _, OwnedFd};

use tokio::io::unix::AsyncFd;
use tokio::io::Interest;
use tokio::time;

use crate::ended::EndpointError;
use crate::endpoint::{Endpoint, Ticket, NAP};
use crate::wr::{Remote, Sge};

/// An [`Endpoint`] whose calls are awaited. It is connected by [`Endpoint::connect`], which blocks:
/// on a thread that may (`spawn_blocking`).
#[derive(Debug)]
pub struct AsyncEndpoint {
    /// A duplicate of the endpoint's.
    fd: AsyncFd<OwnedFd>,
    endpoint: Endpoint,
}

impl AsyncEndpoint {
    /// Registers the endpoint with the runtime of the current task.
    pub fn new(endpoint: Endpoint) -> Result<Self, EndpointError> {
        let fd = endpoint.as_fd().try_clone_to_owned();
        // Deprecated for descriptors that may be closed too early; this one is owned.
        #[allow(deprecated)]
        let fd = fd.and_then(|fd| AsyncFd::with_interest(fd, Interest::READABLE));
        Ok(Self {
            fd: fd.map_err(EndpointError::Stream)?,
            endpoint,
        })
    }

    /// The endpoint itself, for the calls that do not wait.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Sends a message; waits while the backlog is full.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<Ticket, EndpointError> {
        self.until(|endpoint| endpoint.try_send(bytes)).await
    }

    /// Takes the next message; its bytes.
    pub async fn recv(&mut self, into: &mut [u8]) -> Result<usize, EndpointError> {
        self.until(|endpoint| endpoint.try_recv(into)).await
    }

    /// READs the peer's memory. If it is dropped, the device may still write to `into`.
    pub async fn read(&mut self, into: Sge, from: Remote) -> Result<(), EndpointError> {
        let ticket = self.until(|endpoint| endpoint.try_read(into, from)).await?;
        self.wait(ticket).await
    }

    /// WRITEs to the peer's memory. If it is dropped, the device may still do it.
    pub async fn write(&mut self, from: Sge, to: Remote) -> Result<(), EndpointError> {
        let ticket = self.until(|endpoint| endpoint.try_write(from, to)).await?;
        self.wait(ticket).await
    }

    /// Waits until what the ticket is of has completed.
    pub async fn wait(&mut self, ticket: Ticket) -> Result<(), EndpointError> {
        self.until(|endpoint| Ok(endpoint.is_done(ticket)?.then_some(())))
            .await
    }

    /// Waits until everything is delivered, and ends the connection.
    pub async fn close(mut self) -> Result<(), EndpointError> {
        self.until(|endpoint| Ok(endpoint.is_delivered()?.then_some(())))
            .await?;
        // `Endpoint::close` could wait again, on the thread of the runtime.
        self.endpoint.leave();
        Ok(())
    }

    /// Repeats a step until it has something.
    async fn until<T>(
        &mut self,
        mut step: impl FnMut(&mut Endpoint) -> Result<Option<T>, EndpointError>,
    ) -> Result<T, EndpointError> {
        loop {
            if let Some(result) = step(&mut self.endpoint)? {
                return Ok(result);
            }
            self.endpoint.arm()?;
            match time::timeout(NAP, self.fd.readable()).await {
                Ok(Ok(mut ready)) => {
                    // Before the step, so that what comes meanwhile is not missed.
                    ready.clear_ready();
                    self.endpoint.woken()?;
                }
                Ok(Err(error)) => return Err(EndpointError::Stream(error)),
                Err(time::error::Elapsed { .. }) => self.endpoint.check_pair()?,
            }
        }
    }
}
