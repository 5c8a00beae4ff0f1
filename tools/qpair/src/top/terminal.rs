// SPDX-License-Identifier: GPL-2.0
//! The terminal: raw mode, keys, and its restoration in any case.
//!
//! It may be a serial line: its size may be unknown, and it may not answer queries. So it is not
//! queried; the size is the kernel's or 80x24, and keys are read as bytes.

use std::io::{stdin, stdout, IsTerminal as _, Stdout, Write as _};
use std::time::Duration;

use anyhow::{bail, Context as _};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::layout::Rect;
use ratatui::{Frame, TerminalOptions, Viewport};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::termios::{tcgetattr, tcgetwinsize, tcsetattr, OptionalActions, Termios};

/// The size if the kernel has none.
const SIZE: Rect = Rect::new(0, 0, 80, 24);

/// The terminal in raw mode.
pub(crate) struct Terminal {
    screen: ratatui::Terminal<CrosstermBackend<Stdout>>,
    size: Rect,
    /// The earlier settings, if the input is a terminal.
    before: Option<Termios>,
}

impl Terminal {
    pub(crate) fn take() -> anyhow::Result<Self> {
        if !stdout().is_terminal() {
            bail!("the output is no terminal: use --once, or --json");
        }
        let before = match stdin().is_terminal() {
            true => Some(tcgetattr(stdin()).context("the terminal")?),
            false => None,
        };
        let size = size();
        let options = TerminalOptions {
            viewport: Viewport::Fixed(size),
        };
        let screen = ratatui::Terminal::with_options(CrosstermBackend::new(stdout()), options)?;
        // From here on the drop restores it.
        let mut this = Self {
            screen,
            size,
            before,
        };
        if let Some(before) = &this.before {
            let mut raw = before.clone();
            raw.make_raw();
            tcsetattr(stdin(), OptionalActions::Flush, &raw).context("the terminal")?;
        }
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        this.screen.clear()?;
        Ok(this)
    }

    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> anyhow::Result<()> {
        let size = size();
        if size != self.size {
            self.size = size;
            self.screen.resize(size)?;
        }
        self.screen.draw(draw).context("the terminal")?;
        Ok(())
    }

    /// Waits for keys for up to `time`. Arrows are `j`, `k`.
    pub(crate) fn keys(&self, time: Duration) -> anyhow::Result<Vec<u8>> {
        if self.before.is_none() {
            std::thread::sleep(time);
            return Ok(Vec::new());
        }
        let stdin = stdin();
        let timeout = Timespec::try_from(time).context("an interval without end")?;
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            result => result.context("the terminal")?,
        };
        let mut bytes = [0; 64];
        let count = rustix::io::read(&stdin, &mut bytes).context("the terminal")?;
        if count == 0 {
            bail!("the terminal has hung up");
        }
        Ok(letters(&bytes[..count]))
    }
}

/// Arrows as letters, other sequences as nothing.
fn letters(bytes: &[u8]) -> Vec<u8> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        match (first, tail) {
            (0x1b, [b'[' | b'O', key, tail @ ..]) => {
                keys.extend(match key {
                    b'A' => Some(b'k'),
                    b'B' => Some(b'j'),
                    _ => None,
                });
                rest = tail;
            }
            (0x1b, _) => (),
            _ => keys.push(first),
        }
    }
    keys
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // If the terminal is gone there is nothing to restore.
        let _ = execute!(stdout(), Show, LeaveAlternateScreen);
        let _ = stdout().flush();
        if let Some(before) = &self.before {
            let _ = tcsetattr(stdin(), OptionalActions::Flush, before);
        }
    }
}

fn size() -> Rect {
    match tcgetwinsize(stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Rect::new(0, 0, size.ws_col, size.ws_row),
        _ => SIZE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_are_letters() {
        assert_eq!(letters(b"q\x1b[A\x1b[B\x1bOBx"), b"qkjjx");
        assert_eq!(letters(b"\x1b[C\x1b"), b"");
        assert_eq!(letters(b"\x03"), [3]);
    }
}
