"""Textual's driver, made robust against a terminal that goes away: a closed window, a lost ssh connection or a signal.

When a terminal goes away, the kernel sends SIGHUP and SIGCONT together, every write fails and every read is empty. With Textual 8.2.8
alone, the writer thread dies of the first failure and the app waits for it forever; the input thread reads nothing forever and uses a whole
core; SIGCONT restarts both while the app exits, and the interpreter waits for them; and all other waiting at the exit (for a thread, or a
terminal that takes no output) has no limit. Therefore one thread waits for everything that ends a session from outside, asks the app to
exit, and ends the process if that takes too long.

Textual's input thread also dies of the first byte that is not UTF-8 (a terminal in Latin-1, a broken paste), and ends the app with it.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import termios
import time
from codecs import getincrementaldecoder
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from typing import IO, Any

from textual._xterm_parser import XTermParser
from textual.app import App
from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver

DEADLINE, WITHOUT_TERMINAL = 2.0, 1.0
"""Seconds for the app to exit, which takes a fifth of one; less without a terminal, when there is nothing to restore."""
RECHECK = 1000
"""Milliseconds after which the terminal is checked again, in case the kernel does not wake the waiting thread."""
INPUT_WAIT = 0.1
"""Seconds between two checks whether an escape was a key of its own, until it is one. Afterwards the thread sleeps until the next input."""
END_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
"""No key sends the first two while the session has the terminal, but `kill` and a terminal that was just lost can."""
OVER = 0
"""Stands for a signal: the session has ended by itself."""
LEFT = "\x1b[<u\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1049l\x1b[?25h"
"""Restores keyboard, mouse, paste, screen and cursor."""


class _Lasting:
    """The terminal as a file that accepts every write, even if nobody reads it any more."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self.gone = False

    def fileno(self) -> int:
        return self._file.fileno()

    def write(self, text: str) -> None:
        if not self.gone:
            try:
                self._file.write(text)
            except OSError:
                self.gone = True

    def flush(self) -> None:
        if not self.gone:
            try:
                self._file.flush()
            except OSError:
                self.gone = True


class _Awaited(Event):
    """An event that `select` can wait for too."""

    def __init__(self) -> None:
        super().__init__()
        self._pipe = os.pipe()

    def fileno(self) -> int:
        return self._pipe[0]

    def set(self) -> None:
        super().set()
        os.write(self._pipe[1], b"\0")

    def clear(self) -> None:
        if select.select([self], [], [], 0)[0]:
            os.read(self._pipe[0], 4096)
        super().clear()

    def close(self) -> None:
        """Close the pipe; the event cannot be used any more."""
        for end in self._pipe:
            os.close(end)


class LastingDriver(LinuxDriver):
    """A LinuxDriver that outlives its terminal for as long as the app needs to exit."""

    def __init__(self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._file: Any = _Lasting(self._file)
        self.exit_event = self._over = _Awaited()
        self._signals = os.pipe()
        self._before: dict[int, Any] = {}
        """The handlers of signals from before the session."""
        self._ender: Thread | None = None
        self._ended_from_outside = False
        self._suspending = False

    def start_application_mode(self) -> None:
        """Set the terminal up; from now on the event loop handles the job-control signals."""
        super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual says nothing of its type
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTSTP, self._sigtstp_application)
        loop.add_signal_handler(signal.SIGCONT, self._continued)
        if self._ender is None:
            self._before = {number: signal.signal(number, self._signalled) for number in END_SIGNALS}
            self._ender = Thread(target=self._end, args=(loop,), name="dstui-end", daemon=True)
            self._ender.start()

    def suspend_application_mode(self) -> None:
        """Return the terminal for a while, unless it has been returned. Textual closes the driver for it as at the end."""
        if self._writer_thread is None or not self._writer_thread.is_alive():
            return  # a second SIGTSTP: nothing takes what would be written, and its full queue would block
        self._suspending = True
        try:
            super().suspend_application_mode()
        finally:
            self._suspending = False

    def close(self) -> None:
        """End the session's threads, restore the handlers of signals and close the pipes, unless the process is ended from outside."""
        super().close()
        if self._ended_from_outside or self._suspending:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._ender is not None:
            os.write(self._signals[1], bytes([OVER]))
            self._ender.join(WITHOUT_TERMINAL / 2)
            if self._ender.is_alive():  # it has just been ended from outside
                return
        for end in self._signals:
            os.close(end)
        self._over.close()

    def _get_terminal_size(self) -> tuple[int, int]:
        """Return the size that the app's console has.

        Textual's driver asks another function here. If both have to assume a size (a terminal of 0 rows, a standard output that is no
        terminal), they assume different ones, and the app would switch between them forever.
        """
        size = self._app.console.size
        return size.width, size.height

    def run_input_thread(self) -> None:
        """Read keys until the end. Invalid UTF-8 becomes U+FFFD; an exception ends the app like one of the event loop."""
        parser, decode = XTermParser(self._debug), getincrementaldecoder("utf-8")("replace").decode
        settled, wait = 0.0, None  # `settled`: when the parser stops waiting for a further part of a key
        try:
            while not self.exit_event.is_set():
                ready, now = select.select([self.fileno, self._over], [], [], wait)[0], time.monotonic()
                if self.fileno in ready:
                    data = os.read(self.fileno, 4096)
                    if not data:
                        return  # the terminal is gone
                    if text := decode(data):  # empty for an incomplete character, which the parser would take for the end of the input
                        for event in parser.feed(text):
                            self.process_message(event)
                    settled = time.monotonic() + ESCAPE_DELAY
                for event in parser.tick():
                    self.process_message(event)
                wait = INPUT_WAIT if now < settled else None
        except OSError:
            return  # the terminal is gone
        except Exception as error:
            self._app.call_later(self._app._handle_exception, error)

    def _continued(self) -> None:
        """Redraw after a stop (SIGCONT). Threads from before the stop may still run: they are ended first.

        An app that is ending does nothing: it would take the terminal again after it has returned it.
        """
        if not self._auto_restart or self.lost or getattr(self._app, "leaving", False):
            return
        if not self._must_signal_resume:
            self.suspend_application_mode()
        self.resume_application_mode()
        self._app.refresh(layout=True)

    # The end from outside

    @property
    def lost(self) -> bool:
        """Return whether the terminal is gone."""
        return self._file.gone or self._hung_up(0)

    def _hung_up(self, wait: int, *others: int) -> bool:
        """Return whether the terminal hangs up within this many milliseconds; return early if another descriptor has input."""
        watched = select.poll()
        watched.register(self.fileno, 0)  # POLLHUP is always reported
        for other in others:
            watched.register(other, select.POLLIN)
        return any(fd == self.fileno and what & select.POLLHUP for fd, what in watched.poll(wait))

    def _signalled(self, number: int, _frame: object) -> None:
        """Record a signal. A handler may interrupt anything, even code that holds a lock, so it does nothing else."""
        os.write(self._signals[1], bytes([number]))

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for the terminal to hang up or for a signal; then give the app time to exit. Unsaved edits are kept in any case."""
        number = self._waited_for()
        if number == OVER:
            return
        self._ended_from_outside = True
        status = 128 + number
        if gone := self.lost:
            self._file.gone = True
            self.exit_event.set()  # the input thread would read nothing forever
        Thread(target=self._last_words, daemon=True).start()
        with suppress(RuntimeError):  # it has ended already
            loop.call_soon_threadsafe(partial(self._app.exit, return_code=status))
        time.sleep(WITHOUT_TERMINAL if gone else DEADLINE)
        self._restore()
        os._exit(status)

    def _waited_for(self) -> int:
        while not self._hung_up(RECHECK, self._signals[0]):
            if select.select([self._signals[0]], [], [], 0)[0]:
                return os.read(self._signals[0], 1)[0]
        return signal.SIGHUP

    def _last_words(self) -> None:
        keep = getattr(self._app, "last_words", None)
        if keep is not None:
            keep()

    def _restore(self) -> None:
        """Restore the terminal, as far as that is possible without waiting for it."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])  # in the background the signal would stop this process
        with suppress(OSError, termios.error):
            if self.attrs_before is not None:
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
            if select.select([], [self.fileno], [], 0)[1]:
                os.write(self.fileno, LEFT.encode())
