"""Work beside the screen, in threads that nobody waits for: a disk, a process or a network that never answers keeps no session alive.

Textual's own thread workers are waited for at the end (asyncio and the interpreter join them). What a thread has found it tells by
`post_message` or `call_later`, which do not wait either: `call_from_thread` waits for ever where the app has ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from textual.message_pump import MessagePump


def in_thread(owner: MessagePump, work: Callable[[], object]) -> Thread:
    """Start this work for a part of the app. What it raises is a fault of dstui: it is told, and the session goes on."""
    thread = Thread(target=_run, args=(owner, work), daemon=True)
    thread.start()
    return thread


def _run(owner: MessagePump, work: Callable[[], object]) -> None:
    try:
        work()
    except Exception as error:
        with suppress(Exception):  # the app may have ended
            owner.app.call_later(owner.app.notify, f"A fault of dstui: {error!r}", severity="error", markup=False)
