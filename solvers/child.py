"""Runs one engine in a child process that can be ended, and keeps what it said until then.

The child is forked, not spawned: the problem holds a function for the interference rows and so cannot be
sent, but a fork simply has it. Incumbents, bounds and the answer come back as lines of JSON over a pipe,
so nothing that the child sends is ever executed, and whatever ends the child (its limit, a crash, the
kernel's out-of-memory killer) the parent still has the last incumbent. Nothing here is verified; that is
the caller's part.

The child leads a process group of its own, so that a solver's executable that it started ends with it, and
it ends itself when the parent dies, so that a killed planner leaves no solver behind.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import resource
import selectors
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NoReturn

from solvers.problem import Limits, Placed, Problem, Report, Solution, Status
from solvers.warm import from_plain, plain

#: How often a request to stop is looked for, how long a child has to obey SIGTERM, and to die by SIGKILL.
POLL_S = 0.05
OBEY_S = 0.25
DIE_S = 1.0

Solve = Callable[[Problem, Limits, Placed | None, Report], Solution]


class End(StrEnum):
    """What ended a child."""

    ANSWERED = "answered"
    CRASHED = "crashed"
    LATE = "late"  # it ran past its limit and the grace
    STOPPED = "stopped"  # somebody asked, from outside
    ENOUGH = "enough"  # the listener had heard what it needs


@dataclass(frozen=True)
class Heard:
    """What a child has said so far: its last incumbent with its claimed cost, and its last bound."""

    placed: Placed | None = None
    objective: int | None = None
    bound: int | None = None


@dataclass(frozen=True)
class Ending:
    """How a child ended; ``answer`` only if it gave one, ``note`` says why if it did not."""

    end: End
    heard: Heard
    answer: Solution | None = None
    note: str = ""
    wall_s: float = 0.0


def apart(
    solve: Solve,
    problem: Problem,
    limits: Limits,
    hint: Placed | None,
    *,
    ends_at: float,
    enough: Callable[[Heard], bool] = lambda heard: False,
    stop: Callable[[], bool] = lambda: False,
) -> Ending:
    """Run ``solve`` in a child until it answers, or until ``ends_at`` on the monotonic clock."""
    began = time.monotonic()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="planner-", ignore_cleanup_errors=True) as scratch,
            _forked(lambda send: _work(solve, problem, limits, hint, scratch, send)) as (pid, pipe),
        ):
            ending = _listen(pipe, ends_at, enough, stop)
            by_itself = ending.end in (End.ANSWERED, End.CRASHED)
            code = _ended(pid, OBEY_S if by_itself else 0.0)
    except OSError as error:  # no room for a process or for its files
        return Ending(End.CRASHED, Heard(), note=f"no process could be started: {error}")
    if ending.end is End.CRASHED and not ending.note:
        ending = replace(ending, note=_death(code, limits))
    return replace(ending, wall_s=time.monotonic() - began)


# The parent


@contextmanager
def _forked(work: Callable[[Callable[[dict[str, Any]], None]], None]) -> Iterator[tuple[int, int]]:
    """A child that does ``work``, and the pipe on which it is heard; it is gone when the block is left."""
    pipe, child_pipe = os.pipe()
    child_lifeline, lifeline = os.pipe()
    pid = None
    # Until the child has its own handlers, a signal must not run the parent's in it.
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        with warnings.catch_warnings():
            # Threads of the parent (BLAS pools, a progress bar) are no danger: the child uses none of them.
            warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _be_child(work, child_pipe, child_lifeline, (pipe, lifeline))
        with suppress(OSError):  # the child does the same; whoever is first
            os.setpgid(pid, pid)
        os.close(child_pipe)
        child_pipe = -1
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        yield pid, pipe
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        if pid is not None:
            _ended(pid)
        for fd in {pipe, child_pipe, lifeline, child_lifeline} - {-1}:
            os.close(fd)


def _listen(pipe: int, ends_at: float, enough: Callable[[Heard], bool], stop: Callable[[], bool]) -> Ending:
    """Hear the child out, in whole lines."""
    heard, pending = Heard(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while (left_s := ends_at - time.monotonic()) > 0:
            if stop():
                return Ending(End.STOPPED, heard)
            if not selector.select(min(left_s, POLL_S)):
                continue
            chunk = os.read(pipe, 1 << 20)
            if not chunk:
                return Ending(End.CRASHED, heard)
            pending += chunk
            *lines, pending = pending.split(b"\n") if b"\n" in chunk else (pending,)
            for message in map(json.loads, lines):
                if "crash" in message:
                    return Ending(End.CRASHED, heard, note=message["crash"])
                if "engine" in message:
                    return Ending(End.ANSWERED, heard, answer=_answer(message))
                heard = _update(heard, message)
                if enough(heard):
                    return Ending(End.ENOUGH, heard)
    return Ending(End.LATE, heard)


def _update(heard: Heard, message: dict[str, Any]) -> Heard:
    placed, bound = _placed(message["placed"]), message["bound"]
    if placed is not None:
        heard = replace(heard, placed=placed, objective=message["objective"])
    return heard if bound is None else replace(heard, bound=bound)


def _answer(message: dict[str, Any]) -> Solution:
    known = {
        "status": Status(message["status"]),
        "placed": _placed(message["placed"]),
        "warm": from_plain(message["warm"]),
    }
    return Solution(**{**message, **known})


def _placed(spots: list[list[int] | None] | None) -> Placed | None:
    return None if spots is None else tuple(None if spot is None else tuple(spot) for spot in spots)


def _ended(pid: int, patience_s: float = 0.0) -> int | None:
    """End the child and all that it started, unless it ends by itself in time; its exit code, if not reaped yet."""
    try:
        if not _is_over(pid, patience_s):
            _signal_group(pid, signal.SIGTERM)
            _is_over(pid, OBEY_S)
        _signal_group(
            pid, signal.SIGKILL
        )  # its own children too; the group is ours until the leader is reaped
        if not _is_over(pid, DIE_S):
            return None  # stuck in the kernel; waiting for it would pass the limit
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return None


def _is_over(pid: int, patience_s: float) -> bool:
    """Whether the child ends within this time; it stays to be reaped."""
    until = time.monotonic() + patience_s
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= until:
            return False
        time.sleep(0.002)
    return True


def _signal_group(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _death(code: int | None, limits: Limits) -> str:
    """One line for a child that ended without a word."""
    if code is None or code >= 0:
        return f"the process ended without an answer (exit code {code})"
    name = next((known.name for known in signal.Signals if known == -code), f"signal {-code}")
    memory = "the machine's memory" if limits.memory_mib is None else f"{limits.memory_mib} MiB"
    return f"the process was ended by {name}; it may have needed more than {memory}"


# The child


def _be_child(
    work: Callable[[Callable[[dict[str, Any]], None]], None],
    pipe: int,
    lifeline: int,
    others: tuple[int, int],
) -> NoReturn:
    """Never returns into the parent's code, whatever happens."""
    code = 1
    try:
        try:
            _settle(lifeline, others)
            send = _sender(
                pipe
            )  # the process's end closes it, not the end of the work: threads may still report
            work(send)
            code = 0
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # no more exceptions from its handler
    except BaseException:
        code = 1
    finally:
        os._exit(code)


def _settle(lifeline: int, others: tuple[int, int]) -> None:
    """Own process group and signals, no voice on standard output, an end with the parent's."""
    for fd in others:
        os.close(fd)
    with suppress(OSError):
        os.setpgid(0, 0)
    faulthandler.disable()  # the parent says in a line how a child died
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to handle
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the engine's clean-up runs
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)  # solvers' banners; the parent may be printing JSON
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if the machine runs out of memory, the child goes and the parent stays
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    gc.freeze()  # the parent's objects are not the child's to collect: to look through them takes a tenth of a second
    if "highspy" in sys.modules:
        # HiGHS's thread pool is global; if the parent had one, its threads did not come along.
        sys.modules["highspy"].Highs.resetGlobalScheduler(False)


def _end_with_parent(lifeline: int) -> None:
    """The parent never writes here: reading ends when its side closes, also by its death."""
    os.read(lifeline, 1)
    with suppress(ProcessLookupError):
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def _sender(pipe: int) -> Callable[[dict[str, Any]], None]:
    lock, file = threading.Lock(), os.fdopen(pipe, "wb")

    def send(message: dict[str, Any]) -> None:
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with lock:  # engines report from several threads
            file.write(line)
            file.flush()

    return send


def _work(
    solve: Solve,
    problem: Problem,
    limits: Limits,
    hint: Placed | None,
    scratch: str,
    send: Callable[[dict[str, Any]], None],
) -> None:
    """Solve within the limits, and say what came of it."""
    tempfile.tempdir = os.environ["TMPDIR"] = scratch  # emptied by the parent, even after SIGKILL
    _bind(limits.memory_mib)

    def report(placed: Placed | None, objective: int | None, bound: int | None) -> None:
        send({"placed": _plain(placed), "objective": _int(objective), "bound": _int(bound)})

    try:
        found = solve(problem, limits, hint, report)
        answer = {
            "engine": found.engine,
            "status": found.status.value,
            "placed": _plain(found.placed),
            "objective": _int(found.objective),
            "bound": _int(found.bound),
            "note": found.note,
            "warm": plain(found.warm),
        }
    except MemoryError:
        limit = "" if limits.memory_mib is None else f" within its limit of {limits.memory_mib} MiB"
        answer = {"crash": f"out of memory{limit}"}
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        answer = {"crash": f"{text} ({os.path.basename(where.filename)}:{where.lineno})"}
    send(answer)


def _bind(memory_mib: int | None) -> None:
    """Bound the address space, never above what was allowed before; leave no core files."""
    if memory_mib is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = memory_mib << 20
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _plain(placed: Placed | None) -> list[list[int] | None] | None:
    return None if placed is None else [None if spot is None else [int(i) for i in spot] for spot in placed]


def _int(value: int | None) -> int | None:
    return None if value is None else int(value)
