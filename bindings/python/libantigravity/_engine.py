# SPDX-License-Identifier: Apache-2.0
"""Engine: the thread that uses a backend, its models and their sessions.

The library allows one thread at a time to use them, so every call runs on this thread, in the order
of arrival. Callers wait for their call; a signal ends the wait and cancels the call.
"""

from __future__ import annotations

import atexit
import contextvars
import os
import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from . import errors
from ._native import ffi, lib, text_of

T = TypeVar("T")

_FORKED = (
    "this process was forked after the model was loaded, and the model's threads do not exist in it; "
    "load the model in the child, or start processes with multiprocessing's start method 'spawn'"
)


@ffi.callback("bool(void *, size_t, const float *)", error=False)
def _reject_row(_user: Any, _i: int, _row: Any) -> bool:
    return False


def clear_cancellation(session: Handle) -> None:
    """Clear a cancellation that a call ended without seeing: it would end the session's next call.

    The call consumes no token: the cancellation ends it, or else its callback. A session that is full
    retains its cancellation, and its next call tries again.
    """
    error = ffi.new("ag_error *")
    lib.ag_session_score(session.pointer, ffi.new("int32_t[1]"), 1, _reject_row, ffi.NULL, error)
    session.is_cancelled = text_of(lib.ag_status_name(error.status)) != errors.CancelledError.status


class Job(Generic[T]):
    """A call on the engine's thread."""

    def __init__(
        self, function: Callable[[], T], sessions: Sequence[Handle], saw_cancellation: Callable[[T], bool]
    ) -> None:
        self._function = function
        self._sessions = sessions[:1]  # cancel() cancels it; a step ends if one of its sessions is cancelled
        self._saw_cancellation = saw_cancellation
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._running = False
        self._sent = False  # whether the library has got the cancellation
        self._done = threading.Lock()
        self._done.acquire()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._listener: Callable[[], None] | None = None
        self.finished = False
        self.cancelled = False

    def run(self) -> None:
        """Run the call on the engine's thread."""
        with self._lock:
            begins = self._running = not self.cancelled
        try:
            if not begins:
                raise errors.CancelledError("cancelled before the call began")
            self._result = self._function()
        except BaseException as e:
            self._error = e
        with self._lock:
            self._running = False
        if self._sent and not self._has_seen_cancellation():
            for session in self._sessions:
                clear_cancellation(session)
        self._function = None  # type: ignore[assignment]
        with self._lock:
            self.finished = True
            self._sessions = ()
            listener = self._listener
        self._done.release()
        if listener:
            listener()

    def _has_seen_cancellation(self) -> bool:
        if self._error is not None:
            return isinstance(self._error, errors.CancelledError)
        return self._saw_cancellation(self._result)  # type: ignore[arg-type]

    def cancel(self) -> None:
        """Cancel the call: it ends within one layer. A call that waits does not begin.

        Does nothing in a child of os.fork(), where the engine's thread may have left a lock locked.
        """
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self.finished or self.cancelled:
                return
            self.cancelled = True
            if self._running:
                self._sent = True
                for session in self._sessions:
                    lib.ag_session_cancel(session.pointer)

    def when_finished(self, listener: Callable[[], None]) -> None:
        """Call `listener` once the call has ended, on the engine's thread or at once."""
        with self._lock:
            if not self.finished:
                self._listener = listener
                return
        listener()

    def result(self) -> T:
        """Return the result of a finished call, or raise its exception."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self = None  # type: ignore[assignment] # breaks the cycle of traceback and error
        return self._result  # type: ignore[return-value]

    def wait(self) -> T:
        """Wait for the call. An exception of a signal handler cancels it and is raised after it."""
        try:
            with self._done:
                pass
        except BaseException:
            self.cancel()
            self.wait_until_finished()
            raise
        return self.result()

    def wait_until_finished(self) -> None:
        """Wait for the call. The first exception of a signal handler is raised after it."""
        failure: BaseException | None = None
        while not self.finished:
            try:
                with self._done:
                    pass
            except BaseException as e:
                failure = failure or e
        if failure is not None:
            raise failure


class Scope:
    """The calls that a function submits: cancel() cancels the newest, and all later ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: Job[Any] | None = None
        self._cancelled = False

    def run(self, function: Callable[[], T]) -> T:
        """Run a function with this scope, in a context of its own."""
        return contextvars.copy_context().run(self._enter, function)

    def _enter(self, function: Callable[[], T]) -> T:
        _scope.set(self)
        return function()

    def add(self, job: Job[Any]) -> None:
        with self._lock:
            self._newest = job
        if self._cancelled:
            job.cancel()

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
        if self._newest is not None:
            self._newest.cancel()


_scope: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("scope", default=None)


def _run_jobs(jobs: queue.SimpleQueue[Any], unfinished: set[Job[Any]]) -> None:
    while True:
        job = jobs.get()
        if job is None:
            return
        job.run()
        unfinished.discard(job)
        del job


class Engine:
    """The thread of one backend. It ends when the engine is collected or the process exits."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._pid = os.getpid()
        self._unfinished: set[Job[Any]] = set()  # those that stop() cancels
        arguments = (self._jobs, self._unfinished)
        self._thread = threading.Thread(target=_run_jobs, args=arguments, name="antigravity", daemon=True)
        self._thread.start()
        _engines.add(self)

    def check(self) -> None:
        """Raise an error if this thread of this process cannot use the engine."""
        if os.getpid() != self._pid:
            raise errors.ForkError(_FORKED)
        if threading.get_ident() == self._thread.ident:
            raise errors.InvalidError(
                "called from a callback of the model: a callback must not use its model or sessions"
            )

    def submit(
        self,
        function: Callable[[], T],
        sessions: Sequence[Handle] = (),
        saw_cancellation: Callable[[T], bool] = lambda _: False,
    ) -> Job[T]:
        """Run a call after those before it. A function that uses an object of the library holds its Handle.

        saw_cancellation(result) returns whether the call ended because it was cancelled.
        """
        self.check()
        job = Job(function, sessions, saw_cancellation)
        self._unfinished.add(job)
        scope = _scope.get()
        if scope is not None:
            scope.add(job)
        self._jobs.put(job)
        return job

    def run(self, function: Callable[[], T], sessions: Sequence[Handle] = ()) -> T:
        """Run a call and wait for its result."""
        return self.submit(function, sessions).wait()

    def post(self, function: Callable[[], Any]) -> None:
        """Run a call that nobody waits for, such as a destructor. Any thread may post at any time."""
        if os.getpid() == self._pid:
            self._jobs.put(Job(function, (), lambda _: False))

    def stop(self) -> None:
        """Cancel all calls, wait until they have ended, and end the thread."""
        if os.getpid() != self._pid:
            return
        for job in list(self._unfinished):
            job.cancel()
        self._jobs.put(None)
        self._thread.join()

    def __del__(self) -> None:
        if os.getpid() == self._pid:
            self._jobs.put(None)


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


@atexit.register
def _stop_engines() -> None:
    for engine in list(_engines):
        engine.stop()


class Handle:
    """Owns an object of the library. Its parents are destroyed after it.

    A call that waits for the engine holds the Handle, not the pointer: close() on another thread then
    destroys the object after the call.
    """

    def __init__(self, engine: Engine, pointer: Any, destroy: Any, parent: Handle | None = None):
        self.engine = engine
        self.pointer = pointer
        self._destroy = destroy
        self.parent = parent
        self.is_cancelled = False  # of a session: a cancellation is pending

    def __del__(self) -> None:
        pointer, destroy = self.pointer, self._destroy
        self.engine.post(lambda: destroy(pointer))
