"""The hook: observe DeepSpeed inside a rank, what `deepspeed.initialize` resolved and what each step of the engine did.

The shim puts this folder first on the PYTHONPATH of a rank, so that Python imports this file as its sitecustomize. It removes itself from
the path, restores the environment, and runs the next sitecustomize. Then it waits until `deepspeed` is imported and wraps the methods of
its engines. It writes into the folder that the shim names:

    rank_N.jsonl     one JSON object a line; key "is": start, initialize, step, save, load, evaluation, alone, fault, end
    rank_N.json      what the rank does now: phase and step, written in place, at most ten times a second
    rank_N.stacks    Python stacks, by faulthandler, each time the rank gets the signal that rank_N.json names

It must never disturb the training: every error is caught and counted, no tensor is kept alive, no device is synchronised, and a thread does
the writing. It needs Python 3.8, DeepSpeed 0.14 and the standard library; before deepspeed is imported it imports only built-in modules.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import sys
import time
from _signal import SIG_DFL, SIGRTMIN, getsignal
from _thread import get_ident

TYPE_CHECKING = False  # importing typing would double the time of the import
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
SETTINGS = "DSTUI_HOOK"
"""The variable with three lines: mode, folder of the files, and whether PYTHONPATH was set before."""
VERSION = 1
"""The version of the lines; readers skip unknown kinds."""
STATE = "_dstui_hook"
"""The attribute of an engine with its state."""
SIGNALS = range(SIGRTMIN + 11, SIGRTMIN + 20)
"""Real-time signals to choose from: the first one without a handler is used."""
PERIOD, RESTING = 0.1, 0.5
"""Seconds between two updates of what the rank does now, and while its engine rests."""
QUICK = 0.02
"""Seconds of a step. Below, an engine rests between the steps that are reported: a wrapped call costs two microseconds with cold caches."""
BURST = 200.0
"""Steps that are reported in any case."""
RATES = ((20_000, 5.0), (200_000, 2.0), (float("inf"), 0.2))
"""(lines written so far, reported steps per second from then on): a million steps give a file of some tens of MB."""
MAX_FAULTS = 10
"""After this many errors nothing more is observed."""
MAX_LOSSES = 64
"""Losses of micro-batches that are reported for one step."""
LARGEST_CONFIG = 1 << 18
NOW_SIZE = 512
SLOTS = 4096
"""Numbers that can be in transfer from a device to the host at the same time."""


class Output:
    """The files of this rank. A thread formats and writes the lines."""

    def __init__(self, folder: str, rank: str, mode: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        os.makedirs(folder, 0o700, exist_ok=True)
        base = "%s/rank_%s." % (folder, rank)
        self.lines, self.now = (os.open(base + kind, flags | extra, 0o600) for kind, extra in (("jsonl", os.O_APPEND), ("json", 0)))
        self.stacks = os.open(base + "stacks", flags | os.O_APPEND, 0o600)
        self.torn = False
        self.count = 0
        self.queue: Any = None
        self.pending: list[dict[str, Any] | None] = []
        self.pid = os.getpid()
        self.phase = "start"
        self.signal = self.dump_on_signal()
        self.write(
            '{"is": "start", "version": %d, "t": %.3f, "pid": %d, "mode": "%s", "python": "%s"}'
            % (VERSION, time.time(), os.getpid(), mode, sys.version.split()[0])
        )
        start = '{"pid": %d, "phase": "start", "since": %.3f, "signal": %s}' % (os.getpid(), time.time(), self.signal or "null")
        os.pwrite(self.now, start.ljust(NOW_SIZE).encode(), 0)

    def dump_on_signal(self) -> int | None:
        """Register faulthandler on a signal without a handler, and return the signal."""
        for number in SIGNALS:
            if getsignal(number) == SIG_DFL:
                faulthandler.register(number, file=self.stacks, all_threads=True, chain=False)
                return number
        return None

    def write(self, text: str) -> None:
        """Append a line in one write. After an incomplete one (on a full disk) start with a newline."""
        data = (("\n" if self.torn else "") + text + "\n").encode("utf-8", "replace")
        try:
            self.torn = os.write(self.lines, data) != len(data)
        except OSError:
            self.torn = True
        self.count += 1


class Budget:
    """The steps that may be reported: every one of usual trainings, a sample of many per second."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.tokens, self.refilled = BURST, 0.0

    def take(self, now: float) -> bool:
        """Return whether to report this step."""
        self.tokens, self.refilled = self.due(now), now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True

    def due(self, now: float) -> float:
        """Return how many steps may be reported now."""
        rate = next(rate for most, rate in RATES if self.output.count < most)
        return min(self.tokens + (now - self.refilled) * rate, BURST)

    def allow(self, steps: int, now: float) -> None:
        """Allow this many steps and no more."""
        self.tokens, self.refilled = float(steps), now


class Device:
    """Numbers and times of the rank's GPU, read without waiting for it; numbers on a CPU are read at once."""

    def __init__(self) -> None:
        self.cuda: Any = None
        """torch.cuda of a rank on a GPU."""
        self.ring: Any = None
        self.slot = 0

    def fetch(self, value: Any) -> Any:
        """Return a number, or `("slot", n)` for one that a device still computes; None if it is unavailable without waiting."""
        if value is None or isinstance(value, (int, float)):
            return value
        if value.device.type == "cpu":
            return value.item()
        if self.cuda is None or value.device.type != "cuda" or self.cuda.is_current_stream_capturing():
            return None
        if self.ring is None:
            torch = sys.modules["torch"]
            self.ring = torch.empty(SLOTS, dtype=torch.float64, pin_memory=True)
        self.slot = (self.slot + 1) % SLOTS
        self.ring[self.slot].copy_(value.detach().reshape(()), non_blocking=True)
        return ("slot", self.slot)

    def number(self, value: Any) -> float | None:
        """Return a number that has arrived from the device."""
        return float(self.ring[value[1]]) if isinstance(value, tuple) else value

    def mark(self) -> Any:
        """Record an event in the device's own queue."""
        if self.cuda.is_current_stream_capturing():
            return None
        event = self.cuda.Event(enable_timing=True)
        event.record()
        return event

    def memory(self) -> dict[str, int]:
        """Return the bytes that torch has reserved, and the most that it has allocated."""
        return {"reserved": self.cuda.memory_reserved(), "peak": self.cuda.max_memory_allocated()}


class Writer:
    """Writes what the hook observes, in a thread, and what the rank does now."""

    def __init__(self, output: Output, device: Device, budget: Budget) -> None:
        self.output, self.device, self.budget = output, device, budget
        self.active = True
        self.faults = 0
        self.thread: Any = None
        self.current: Engine | None = None
        """The engine that was used last."""
        self.engines: list[Engine] = []
        self.sources: set[Any] = set()
        """Files of the engines' classes, by which the frames of a resting engine are known."""
        self.written: tuple[Any, ...] = ()

    def start(self) -> None:
        """Start the writing thread, once."""
        if self.output.queue is not None:
            return
        import queue
        import threading

        self.output.queue = queue.SimpleQueue()
        self.thread = threading.Thread(target=self.write_on, name="dstui-hook", daemon=True)
        self.thread.start()
        atexit.register(self.end)
        os._exit = self.ended_by(os._exit)  # type: ignore[assignment]
        os.register_at_fork(after_in_child=self.stop)

    def ended_by(self, leave: Callable[[int], Any]) -> Callable[[int], Any]:
        """Wrap os._exit, with which many trainings end, to write the last step first."""

        def exit_at_once(status: int) -> Any:
            self.end()
            return leave(status)

        return exit_at_once

    def replaced_by(self, replace: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap os.execv or os.execve, to report that this process becomes another program, which is not observed."""

        def execute(path: Any, *rest: Any) -> Any:
            try:
                if os.access(path, os.X_OK) and not os.path.isdir(path):
                    self.end(str(os.fsdecode(path)))
            except Exception:
                pass  # observing must not stop the call, and the call itself reports a bad path
            return replace(path, *rest)

        execute.__name__, execute.__doc__ = replace.__name__, replace.__doc__
        return execute

    def stop(self) -> None:
        """Stop observing: in a forked child, or after too many errors."""
        self.active = False

    def put(self, what: str, facts: dict[str, Any]) -> None:
        self.output.queue.put(dict({"is": what, "t": round(time.time(), 6)}, **facts))

    def write_on(self) -> None:
        """In the thread: write lines as they come, and what the rank does now ten times a second."""
        from queue import Empty

        while self.active:
            try:
                try:
                    self.output.pending.append(self.output.queue.get(timeout=RESTING if self.current and self.current.rests else PERIOD))
                except Empty:
                    pass
                self.write_pending()
                self.wake_engines(time.perf_counter())
                self.write_now()
            except Exception as error:  # whatever it is, the training continues
                self.fault("write", error)

    def wake_engines(self, now: float) -> None:
        """Let each resting engine report one step, if any may be reported."""
        resting = [state for state in self.engines if state.rests]
        if resting and self.budget.due(now) >= 1.0:
            self.budget.allow(len(resting), now)
            for state in resting:
                state.wake()

    def write_pending(self, last: bool = False) -> None:
        import json

        pending = self.output.pending
        while pending:
            facts = pending[0]
            if facts is None:  # only wakes the thread
                del pending[0]
                continue
            ready = facts.get("ready")
            if ready is not None and not last and len(pending) < MAX_LOSSES and not ready.query():
                return
            del pending[0]
            facts.pop("ready", None)
            if facts["is"] == "step":
                self.complete(facts)
            self.output.write(json.dumps(facts, default=str))

    def complete(self, facts: dict[str, Any]) -> None:
        """Insert the numbers of a step that have arrived from the device into its line."""
        losses, divided = [self.device.number(value) for value in facts.pop("losses")], facts.pop("divided")
        known = [loss for loss in losses if loss is not None]
        if known and len(known) == len(losses) < MAX_LOSSES:
            facts["loss"] = sum(known) if divided else sum(known) / len(known)
            if len(known) > 1:
                facts["losses"], facts["divided"] = known, divided
        facts["grad_norm"] = self.device.number(facts["grad_norm"])
        facts["times"] = {phase: round(seconds, 6) for phase, seconds in facts["times"].items()}
        facts["rss"] = resident()

    def write_now(self) -> None:
        """Write what the rank does now, if that has changed."""
        state, output = self.current, self.output
        if state is None:
            now: tuple[Any, ...] = (output.phase,)
        else:
            if state.rests or state.woken:
                self.look(state)
            if state.raised and not state.phase:
                now = (state.raised[0], state.step, state.number, state.raised[1])
            else:
                now = (state.phase or state.seen or "between steps", state.step, state.number)
        if now == self.written:
            return
        import json

        self.written = now
        facts = dict(zip(("phase", "step", "model", "raised"), now), pid=output.pid, signal=output.signal, faults=self.faults)
        text = json.dumps(dict(facts, since=round(time.time(), 3)))
        os.pwrite(output.now, text.ljust(NOW_SIZE).encode(), 0)

    def look(self, state: Engine) -> None:
        """Find the step of a resting engine, and its phase by the frames of its thread, or of the exception that ended it."""
        engine = state.engine()
        state.step = engine.global_steps if engine is not None else state.step
        state.seen = self.phase_in(sys._current_frames().get(state.thread))
        trace = getattr(sys, "last_traceback", None)
        while trace is not None and not state.raised:
            phase = self.phase_of(trace.tb_frame.f_code)
            if phase:
                state.raised = (phase, type(sys.last_value).__name__)
            trace = trace.tb_next

    def phase_of(self, code: Any) -> str:
        """Return the phase of an engine's method; "" for other code. DeepSpeed's decorators share one code, so names decide."""
        return PHASES.get(code.co_name, "") if code.co_filename in self.sources else ""

    def phase_in(self, frame: Any) -> str:
        """Return the phase of the outermost call of an engine in a stack; "" without any."""
        phase = ""
        while frame is not None:
            phase = self.phase_of(frame.f_code) or phase
            frame = frame.f_back
        return phase

    def end(self, program: str = "") -> None:
        """At the end of the interpreter, or before it becomes another program, write what is left."""
        if not self.active or os.getpid() != self.output.pid:
            return
        try:
            self.active = False
            if self.thread is not None:
                self.output.queue.put(None)
                self.thread.join(1.0)  # it may hold a line that is not written yet
                while not self.output.queue.empty():
                    self.output.pending.append(self.output.queue.get())
                self.write_pending(last=True)
            self.write_now()
            import json

            facts = {"is": "end", "t": round(time.time(), 3), "faults": self.faults}
            self.output.write(json.dumps(dict(facts, program=program) if program else facts))
        except Exception as error:
            self.fault("end", error)

    def fault(self, where: str, error: BaseException) -> None:
        """Count an error of the hook. Report the first, stop after a few."""
        self.faults += 1
        if self.faults == 1:
            try:
                import json

                text = "%s: %s" % (type(error).__name__, error)
                self.output.write(json.dumps({"is": "fault", "t": time.time(), "where": where, "error": text[:300]}))
            except Exception:
                pass
        if self.faults >= MAX_FAULTS:
            self.stop()


class Hook:
    """Observes the engines of this process. Each method that DeepSpeed's wrappers call catches its own errors."""

    def __init__(self, output: Output, mode: str) -> None:
        self.output, self.device, self.budget = output, Device(), Budget(output)
        self.writer = Writer(output, self.device, self.budget)
        self.ends_after = int(mode.rpartition("-")[2]) if mode.startswith("probe-") else 0
        """A probe ends the process after this many engines; 0 = it trains."""
        self.models = 0
        self.bare: dict[type, type] = {}
        """Class of an engine -> its subclass without wrappers."""
        self.is_compiling: Any = None
        self.optimizers: Any = None
        self.alone = False
        self.making = False
        """True if deepspeed.initialize runs, in which an optimizer may step to make its states (BF16_Optimizer)."""

    # Entry points: modules that have just been imported

    def deepspeed_imported(self, deepspeed: Any) -> None:
        """Wrap deepspeed.initialize and the engine's methods."""
        import functools

        torch = sys.modules["torch"]
        self.is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)
        self.writer.start()
        hook, initialize = self, deepspeed.initialize

        @functools.wraps(initialize)
        def initialize_and_report(*args: Any, **kwargs: Any) -> Any:
            hook.output.phase, hook.making = "initialize", True
            try:
                result = initialize(*args, **kwargs)
            finally:
                hook.making = False
            if hook.writer.active:
                hook.initialized(result, args, kwargs)
            if hook.ends_after and hook.models >= hook.ends_after:
                hook.leave_process()
            return result

        deepspeed.initialize = initialize_and_report
        self.wrap_class(deepspeed.DeepSpeedEngine)

    def torch_imported(self, module: Any) -> None:
        """Report an optimizer that steps although no engine was made."""
        when = "pre" if self.ends_after else "post"  # a probe trains nothing
        register = getattr(module, "register_optimizer_step_%s_hook" % when, None)
        if register is not None:
            self.optimizers = register(self.optimizer_stepped)

    def optimizer_stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """Report, once, that an optimizer stepped without an engine, and from where."""
        if self.alone or self.making or self.models or not self.writer.active:
            return
        if self.is_compiling is not None and self.is_compiling():
            return
        self.alone = True
        try:
            self.writer.start()
            distributed = sys.modules.get("torch.distributed")
            ranks = distributed.get_world_size() if distributed and distributed.is_available() and distributed.is_initialized() else 1
            caller, own = callers(sys._getframe(1))
            self.writer.put(
                "alone",
                {"optimizer": name_of(optimizer), "caller": caller, "own": own, "ranks": ranks, "imported": "deepspeed" in sys.modules},
            )
        except Exception as error:
            self.writer.fault("optimizer", error)
        if self.ends_after:
            self.leave_process()

    def leave_process(self) -> None:
        """End a probe: when all ranks have got this far, without output and before anything is trained or saved."""
        try:
            distributed = sys.modules["torch.distributed"]
            if distributed.is_available() and distributed.is_initialized():
                distributed.barrier()
        except Exception:
            pass
        self.writer.end()
        os._exit(0)

    # Engines

    def initialized(self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            engine = result[0]
            caller, own = callers(sys._getframe(2))
            config = kwargs.get("config", kwargs.get("config_params"))
            given = kwargs.get("args", args[0] if args else None)
            path = config if isinstance(config, str) else getattr(given, "deepspeed_config", None) if config is None else None
            self.adopt(engine, {"caller": caller, "own": own, "path": os.path.abspath(path) if path else None})
        except Exception as error:
            self.writer.fault("initialize", error)

    def adopt(self, engine: Any, facts: dict[str, Any]) -> Engine:
        """Observe an engine from now on, and report its description."""
        self.models += 1
        if self.optimizers is not None:
            self.optimizers.remove()
            self.optimizers = None
        for base in type(engine).__mro__:
            if base.__module__.startswith("deepspeed."):
                self.wrap_class(base)
        state = self.writer.current = engine.__dict__[STATE] = Engine(self.models, engine)
        self.writer.engines.append(state)
        facts["model"] = state.number
        facts.update(description(engine))
        if self.device.cuda is None and getattr(engine.device, "type", "") == "cuda":
            self.device.cuda = sys.modules["torch"].cuda
        self.writer.put("initialize", facts)
        return state

    def wrap_class(self, kind: Any) -> None:
        """Wrap the methods that this class itself defines."""
        for name, phase in PHASES.items():
            method = kind.__dict__.get(name)
            if callable(method) and not hasattr(method, STATE):
                wrapped = self.wrapped(method, name, phase)
                setattr(wrapped, STATE, True)
                setattr(kind, name, wrapped)
        self.writer.sources.add(getattr(sys.modules.get(kind.__module__), "__file__", None))

    def bare_class(self, kind: type) -> type:
        """Return the subclass of resting engines: the original methods.

        An engine changes its class, because patching the class again would invalidate the interpreter's caches of it each time.
        """
        if kind not in self.bare:

            def evaluate(engine: Any) -> Any:
                engine.__dict__[STATE].wake()
                return kind.eval(engine)  # type: ignore[attr-defined]  # every engine is a torch.nn.Module

            found: dict[str, Any] = {name: getattr(kind, name, None) for name in ("forward", "backward", "step", "train_batch")}
            members = {name: method.__wrapped__ for name, method in found.items() if hasattr(method, STATE)}
            members.update({"eval": evaluate, "__module__": kind.__module__, "__qualname__": kind.__qualname__})
            self.bare[kind] = type(kind)(kind.__name__, (kind,), members)
        return self.bare[kind]

    def wrapped(self, method: Callable[..., Any], name: str, phase: str) -> Callable[..., Any]:
        import functools

        hook = self
        is_compiling = self.is_compiling if name == "forward" else None

        @functools.wraps(method)
        def observed(engine: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling is not None and is_compiling():
                return method(engine, *args, **kwargs)
            return hook.observe(method, name, phase, engine, args, kwargs)

        return observed

    def observe(self, method: Callable[..., Any], name: str, phase: str, engine: Any, args: Any, kwargs: Any) -> Any:
        """Call a method of an engine, and report what it did."""
        if not self.writer.active:
            return method(engine, *args, **kwargs)
        if self.ends_after:
            self.leave_process()
        state = self.enter(engine, name, phase, args, kwargs)
        if state is None:
            return method(engine, *args, **kwargs)
        try:
            result = method(engine, *args, **kwargs)
        except BaseException as error:
            state.interrupt(error)
            raise
        self.leave(engine, state, name, args, kwargs, result)
        return result

    def enter(self, engine: Any, name: str, phase: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Engine | None:
        """Begin a phase; return None if the call is part of another one."""
        try:
            state: Engine = engine.__dict__.get(STATE) or self.adopt(engine, {})
            if state.phase or (state.rests and name not in REPORTED and phase != "evaluation"):
                return None
            now, self.writer.current, state.raised = time.perf_counter(), state, None
            if state.woken:
                state.step, state.seen, state.woken = engine.global_steps, "", False
            if name == "backward" and not state.calls_backward:
                state.calls_backward, state.losses = True, []
            if name == "forward" and not engine.__dict__["_modules"]["module"].training:
                phase = "evaluation"
            elif name == "forward":
                state.half_seen = False
                state.count_inputs(args, kwargs)
            state.backwards += name == "backward"
            if state.evaluated and phase in ("forward", "train_batch", "backward"):
                self.writer.put(
                    "evaluation", {"model": state.number, "step": state.step, "forwards": state.evaluated, "seconds": state.evaluating}
                )
                state.evaluated, state.evaluating = 0, 0.0
            if state.measured is None and phase in ("forward", "backward", "train_batch"):
                state.measured = self.budget.take(now)
                state.began = state.began or now
                # A forward that torch.compile has inlined is not seen here: then the class must not change.
                if not state.measured and state.seconds < QUICK and name != "backward":
                    state.rest(engine, self.bare_class(type(engine)))
                    return None
            state.phase, state.entered = phase, now
            if state.measured and self.device.cuda is not None:
                state.marks.append((phase, self.device.mark(), None))
            if name in REPORTED:
                self.checkpoint(name, state, args, kwargs, {"state": "begun"})
            return state
        except Exception as error:
            self.writer.fault(name, error)
            return None

    def leave(self, engine: Any, state: Engine, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """End a phase. If it completed an optimizer step, report the step."""
        phase, state.phase = state.phase, ""
        try:
            now = time.perf_counter()
            seconds = now - state.entered
            if state.measured is None:
                state.began = now  # an evaluation, or a checkpoint, does not count into the next step
            if phase == "evaluation":
                if not state.half_seen:
                    state.evaluated, state.evaluating = state.evaluated + 1, state.evaluating + seconds
            elif name in REPORTED:
                self.checkpoint(name, state, args, kwargs, {"state": "done", "seconds": seconds})
            elif state.measured:
                state.times[phase] = state.times.get(phase, 0.0) + seconds
                if self.device.cuda is not None:
                    state.marks[-1] = (phase, state.marks[-1][1], self.device.mark())
                    state.memory[phase] = self.device.cuda.memory_allocated()
                if name == "backward":
                    self.take_loss(state, args[0] if args else kwargs.get("loss"), kwargs.get("scale_wrt_gas") is False)
                elif name == "train_batch" or not state.calls_backward:
                    self.take_loss(state, loss_of(result), False)
            if name in ("step", "train_batch") and engine.global_steps != state.step:
                self.stepped(engine, state, now)
        except Exception as error:
            self.writer.fault(name, error)

    def checkpoint(self, name: str, state: Engine, args: tuple[Any, ...], kwargs: dict[str, Any], facts: dict[str, Any]) -> None:
        """Report the begin or the end of saving or loading a checkpoint."""
        self.writer.put(REPORTED[name], dict(place_of(args, kwargs), model=state.number, step=state.step, **facts))

    def take_loss(self, state: Engine, loss: Any, divided: bool) -> None:
        """Read the loss of a micro-batch without waiting for the device."""
        state.divided = divided
        if len(state.losses) < MAX_LOSSES and getattr(loss, "numel", int)() == 1:
            state.losses.append(self.device.fetch(loss))

    def stepped(self, engine: Any, state: Engine, now: float) -> None:
        """Report an optimizer step, if this one is reported, and begin the next."""
        state.step = engine.global_steps
        state.seconds = now - state.began
        if state.measured and self.writer.active:
            facts: dict[str, Any] = {
                "model": state.number,
                "step": state.step,
                "micro_steps": state.backwards or engine.gradient_accumulation_steps(),
                "losses": state.losses,
                "divided": state.divided,
                "lr": sorted(set(engine.get_lr()))[:8],
                "grad_norm": self.device.fetch(engine.__dict__.get("_global_grad_norm")),
                "skipped": engine.skipped_steps,
                "samples": engine.global_samples,
                "times": dict(state.times, total=now - state.began),
            }
            if engine.fp16_enabled():
                facts["loss_scale"] = read(lambda: engine.optimizer.cur_scale, lambda: engine.optimizer.loss_scale)
            if state.tokens:
                facts["tokens"] = state.tokens
            if state.elements:
                facts["elements"] = state.elements
            if self.device.cuda is not None:
                facts["memory"] = dict(state.memory, **self.device.memory())
                facts["ready"] = Ready(self.device.mark(), state.marks, facts["times"])
            self.writer.put("step", facts)
        state.begin(now)


class Engine:
    """The state of one engine. It holds no tensor and no reference that keeps the engine alive."""

    def __init__(self, number: int, engine: Any) -> None:
        import weakref

        self.number, self.step = number, engine.global_steps
        self.engine = weakref.ref(engine)
        self.phase = ""
        self.entered = 0.0
        self.seconds = 1.0
        """Seconds of the last step."""
        self.raised: tuple[str, str] | None = None
        self.evaluated, self.evaluating = 0, 0.0
        self.calls_backward = False
        """True if the program calls the engine's backward. Otherwise the loss is what forward returns, as with `loss.backward()`."""
        self.rests = False
        """True if the engine has the class without wrappers. The thread wakes it when a step may be reported."""
        self.thread = get_ident()
        self.seen = ""
        """The phase while it is not observed, as its thread's frames show it."""
        self.woken = False
        """True if it was woken, and none of its methods was called since."""
        self.half_seen = False
        """True if it was woken within an evaluation, whose batches are not counted then."""
        self.begin(0.0)

    def rest(self, engine: Any, bare: type) -> None:
        """Call the engine's methods without wrappers from the next call on."""
        self.thread, self.raised, self.awake = get_ident(), None, type(engine)
        object.__setattr__(engine, "__class__", bare)
        self.rests = True

    def wake(self) -> None:
        """Observe the engine again. The step in progress is not reported, since its beginning was not seen."""
        engine = self.engine()
        if engine is None or not self.rests:
            return
        self.rests, self.woken = False, True
        self.half_seen = not engine.__dict__["_modules"]["module"].training
        object.__setattr__(engine, "__class__", self.awake)

    def begin(self, now: float) -> None:
        """Begin the next optimizer step."""
        self.began = now
        self.measured: bool | None = None
        """True if this step is reported; None until it begins."""
        self.backwards = 0
        self.tokens, self.elements = 0, 0
        self.divided = False
        self.losses: list[Any] = []
        self.times: dict[str, float] = {}
        self.memory: dict[str, int] = {}
        self.marks: list[tuple[str, Any, Any]] = []

    def interrupt(self, error: BaseException) -> None:
        """Record that an exception left a phase: the phase stays in the record until the next one begins."""
        self.raised, self.phase, self.measured = (self.phase, type(error).__name__), "", None

    def count_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Add the elements of a micro-batch's first tensor, and its tokens: `input_ids`, or a first argument of integers."""
        ids: Any = kwargs.get("input_ids", args[0] if args else None)
        first = next((value for value in (ids, *kwargs.values()) if hasattr(value, "numel")), None)
        if first is not None:
            self.elements += first.numel()
        if hasattr(ids, "is_floating_point") and ids.dim() == 2 and not ids.is_floating_point():
            self.tokens += ids.numel()


class Ready:
    """Tells whether the device has reached the end of a step; then its own times replace those of the host."""

    def __init__(self, last: Any, marks: Sequence[tuple[str, Any, Any]], times: dict[str, float]) -> None:
        self.last, self.marks, self.times = last, marks, times

    def query(self) -> bool:
        if self.last is not None and not self.last.query():
            return False
        if all(begin is not None and end is not None for _, begin, end in self.marks):
            spent: dict[str, float] = {}
            for phase, begin, end in self.marks:
                spent[phase] = spent.get(phase, 0.0) + begin.elapsed_time(end) / 1000
            self.times.update(spent)
        return True


PHASES = {
    "forward": "forward",
    "backward": "backward",
    "step": "step",
    "train_batch": "train_batch",
    "eval_batch": "evaluation",
    "save_checkpoint": "save",
    "save_16bit_model": "save",
    "load_checkpoint": "load",
}
"""Methods of DeepSpeed's engines -> the phase of the rank."""
REPORTED = {"save_checkpoint": "save", "save_16bit_model": "save", "load_checkpoint": "load"}
"""Methods whose begin and end are reported as lines."""


def loss_of(result: Any) -> Any:
    """Return the loss in the result of a forward: itself, its attribute `loss`, or its first part."""
    return getattr(result, "loss", result[0] if isinstance(result, (tuple, list)) and result else result)


def place_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return folder and tag of a checkpoint from the arguments of its call."""
    folder = args[0] if args else kwargs.get("save_dir", kwargs.get("load_dir"))
    tag = args[1] if len(args) > 1 else kwargs.get("tag")
    return {"folder": os.path.abspath(str(folder)) if folder else None, "tag": None if tag is None else str(tag)}


def description(engine: Any) -> dict[str, Any]:
    """Describe an engine. A fact that this release lacks is None."""
    import json

    config = engine._config
    parameters = [(getattr(p, "ds_numel", None) or p.numel(), p.requires_grad, str(p.dtype)) for p in engine.module.parameters()]
    resolved = read(lambda: config._param_dict)
    text = json.dumps(resolved, default=str)
    modules = {name: getattr(sys.modules.get(name), "__version__", None) for name in ("deepspeed", "torch", "accelerate", "transformers")}
    dtypes: dict[str, int] = {}
    for count, _, dtype in parameters:
        dtypes[dtype] = dtypes.get(dtype, 0) + count
    return {
        "engine": name_of(engine),
        "config": json.loads(text) if len(text) <= LARGEST_CONFIG else None,
        "batch": [engine.train_batch_size(), engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()],
        "stage": read(lambda: int(engine.zero_optimization_stage())),
        "parameters": sum(count for count, _, _ in parameters),
        "trained": sum(count for count, trains, _ in parameters if trains),
        "dtypes": dtypes,
        "optimizer": read(lambda: name_of(engine.optimizer)) if engine.optimizer is not None else None,
        "inner_optimizer": read(lambda: name_of(engine.basic_optimizer)) if getattr(engine, "basic_optimizer", None) else None,
        "scheduler": name_of(engine.lr_scheduler) if engine.lr_scheduler is not None else None,
        "groups": {
            "data": read(lambda: engine.dp_world_size),
            "tensor": read(lambda: engine.mp_world_size),
            "sequence": read(lambda: engine.sequence_parallel_size, lambda: engine.seq_parallel_size),
            "pipe": read(lambda: engine.num_stages),
            "expert": read(lambda: max(layer.ep_size for layer in engine.moe_layers)),
        },
        "precision": "fp16" if engine.fp16_enabled() else "bf16" if engine.bfloat16_enabled() else "fp32",
        "device": str(engine.device),
        "device_name": read(lambda: sys.modules["torch"].cuda.get_device_name(engine.device)) if engine.device.type == "cuda" else None,
        "versions": {name: str(version) for name, version in modules.items() if version},
    }


def read(*ways: Callable[[], Any]) -> Any:
    """Return the first of several attributes that this release has; None if it has none."""
    for way in ways:
        try:
            return way()
        except Exception:
            continue
    return None


def name_of(value: Any) -> str:
    return "%s.%s" % (type(value).__module__, type(value).__qualname__)


def callers(frame: Any) -> tuple[str, str | None]:
    """Return `file:line` of a call, and of the innermost line outside of installed packages that led to it."""
    caller = "%s:%d" % (frame.f_code.co_filename, frame.f_lineno)
    for _ in range(200):
        name = frame.f_code.co_filename
        if not ("-packages" + os.sep in name or name.startswith(("<", sys.base_prefix + "/lib/")) or name == __file__):
            return caller, "%s:%d" % (name, frame.f_lineno)
        frame = frame.f_back
        if frame is None:
            break
    return caller, None


def resident() -> int | None:
    """Return the resident memory of this process in bytes."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


class Finder:
    """A module finder that finds nothing itself: it calls back when one of the expected modules was imported.

    It stays until then: transformers asks for the spec of deepspeed earlier, without importing it.
    """

    def __init__(self, waiting: dict[str, Callable[[Any], None]], failed: Callable[[str, BaseException], None]) -> None:
        self.waiting, self.failed = waiting, failed

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.waiting:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                self.call_back(name, spec.loader)
                return spec
        return None

    def call_back(self, name: str, loader: Any) -> None:
        try:
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                del loader.exec_module
                execute(module)
                action = self.waiting.pop(name, None)
                if not self.waiting and self in sys.meta_path:
                    sys.meta_path.remove(self)
                try:
                    if action is not None:
                        action(module)
                except Exception as error:
                    self.failed(name, error)

            loader.exec_module = exec_module
        except Exception as error:  # a loader without settable attributes: the rank is not observed
            self.failed(name, error)


def observe() -> None:
    """Start observing as the shim asks. First remove all traces from the environment, for the sake of child processes."""
    mode, folder, was_set = os.environ.pop(SETTINGS).split("\n")
    rest = os.environ.get("PYTHONPATH", "")[len(HERE) + 1 :]
    if was_set == "set":
        os.environ["PYTHONPATH"] = rest
    else:
        os.environ.pop("PYTHONPATH", None)
    sys.path[:] = [entry for entry in sys.path if entry != HERE]
    sys.path_importer_cache.pop(HERE, None)
    hook = Hook(Output(folder, os.environ["RANK"], mode), mode)
    os.execv, os.execve = hook.writer.replaced_by(os.execv), hook.writer.replaced_by(os.execve)
    if mode != "process":
        waiting = {"deepspeed": hook.deepspeed_imported, "torch.optim.optimizer": hook.torch_imported}
        sys.meta_path.insert(0, Finder(waiting, hook.writer.fault))


if __name__ == "sitecustomize" and SETTINGS in os.environ:
    try:
        observe()
    except Exception:  # for example, the files cannot be written: the rank runs unobserved
        pass
    finally:
        del sys.modules["sitecustomize"]
    import sitecustomize  # noqa: F401 - the next one, or the same ImportError as without this file
