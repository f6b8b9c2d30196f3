"""Textual's driver, for a terminal that may go: a closed window or a lost ssh connection must not leave a dstui that never ends.

The kernel then sends SIGHUP and SIGCONT together, and every write fails. With Textual 8.2.8 alone the writer thread dies of the first
failure and the app waits for it for ever, and a signal handler that runs in the midst of a `Queue.put` waits for itself.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import IO, Any

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver


class _Lasting:
    """The terminal as a file that takes every write, also when nobody reads it any more."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._gone = False

    def fileno(self) -> int:
        return self._file.fileno()

    def write(self, text: str) -> None:
        if not self._gone:
            try:
                self._file.write(text)
            except OSError:
                self._gone = True

    def flush(self) -> None:
        if not self._gone:
            try:
                self._file.flush()
            except OSError:
                self._gone = True


class LastingDriver(LinuxDriver):
    """LinuxDriver that outlives its terminal, for as long as the app needs to end."""

    def __init__(self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._file: Any = _Lasting(self._file)

    def start_application_mode(self) -> None:
        """Take the terminal over; from now on the event loop handles the signals of job control, between two of its steps."""
        super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual says nothing of its type
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTSTP, self._sigtstp_application)
        loop.add_signal_handler(signal.SIGCONT, self._continued)

    def run_input_thread(self) -> None:
        """Wait for input; without a terminal there is none, and SIGHUP says the rest."""
        with suppress(OSError):
            super().run_input_thread()

    def _continued(self) -> None:
        """Draw again after a stop. Who was stopped from outside, or not at all, still has the threads of before: they end first."""
        if not self._auto_restart:
            return
        if not self._must_signal_resume:
            self.suspend_application_mode()
        self.resume_application_mode()
        self._app.refresh(layout=True)
