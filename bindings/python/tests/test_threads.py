# SPDX-License-Identifier: Apache-2.0
"""Signals, threads, forks and the end of the process."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from conftest import DEMO, ids_of

import libantigravity as ag
from libantigravity._engine import Job
from libantigravity._native import lib


def interrupt_after(seconds):
    timer = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    return timer


@pytest.fixture(scope="module")
def slow():
    """One thread and floats: a prefill of 100,000 tokens takes tens of seconds."""
    return ag.Model(DEMO, threads=1, weights="f32")


def test_sigint_ends_a_prefill_within_a_layer(slow):
    session = slow.session(prefill_chunk=256, kv_policy="streaming", kv_budget=1024)
    timers = []

    def interrupt(done, total):
        if done == 512:  # the next chunk begins before the signal arrives
            timers.append(interrupt_after(0.01))

    with pytest.raises(KeyboardInterrupt):
        session.prefill(ids_of(100000, 4000), progress=interrupt)
    timers[0].join()
    n = session.position
    assert 512 <= n <= 50000, "the call ended long after the signal"
    assert n % 256 == 0
    assert session.tokens == ids_of(100000, 4000)[:n]
    session.decode(5)
    assert session.position == n + 1


def test_sigint_ends_a_generation(slow):
    timer = interrupt_after(0.3)
    with pytest.raises(KeyboardInterrupt):
        for _piece in slow.generate("Once upon a time", max_tokens=-1, ignore_eos=True):
            time.sleep(0)
        slow.session(max_seq_len=2000).prefill(ids_of(1900))
        time.sleep(10)
    timer.join()
    assert slow.generate("The fox", max_tokens=2, temperature=0).text()


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGALRM])
def test_exception_of_a_second_signal_does_not_end_the_wait(model, first):
    def fail(number, frame):
        raise TimeoutError("of mine")

    ready, ended, jobs = threading.Event(), [], []

    def hold():
        ready.wait()
        while not jobs[0].cancelled:  # the first signal
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGALRM)
        time.sleep(0.05)
        ended.append(True)

    def interrupt():
        ready.set()
        time.sleep(0.05)  # the main thread waits
        os.kill(os.getpid(), first)

    before = signal.signal(signal.SIGALRM, fail)
    thread = threading.Thread(target=interrupt)
    try:
        jobs.append(model._engine.submit(hold))
        thread.start()
        with pytest.raises((KeyboardInterrupt, TimeoutError)):
            jobs[0].wait()
        assert ended, "the call is running"
    finally:
        thread.join()
        signal.signal(signal.SIGALRM, before)


def test_threads_take_turns(model):
    want = model.generate("The old king", max_tokens=20, temperature=0).text()
    texts, failures = {}, []

    def tell(i):
        try:
            texts[i] = model.generate("The old king", max_tokens=20, temperature=0).text()
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=tell, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    assert set(texts.values()) == {want}


def test_closing_a_generation_consumes_no_token_of_its_own(model):
    session = model.session(kv_policy="streaming", kv_budget=256)
    generation = session.generate("Once upon a time", max_tokens=-1, ignore_eos=True, seed=1)
    next(generation)
    generation.close()
    assert session.position == len(session.tokens)
    session.decode(5)
    assert session.position == len(session.tokens)


class LockThatCancels:
    """A lock of a job. Cancels the job when it is released for the n-th time."""

    def __init__(self, job, n):
        self.job, self.n, self.lock = job, n, job._lock

    def __enter__(self):
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()
        self.n -= 1
        if self.n == 0:
            self.job.cancel()


@pytest.mark.parametrize("n", [1, 2])
def test_cancelling_a_call_that_ends_consumes_no_token(model, n):
    session = model.session()
    session.prefill([7, 8])
    handle = session._handle
    job = Job(lambda: lib.ag_session_truncate(handle.pointer, 2, ag._native.ffi.NULL), [handle], lambda _: False)
    job._lock = LockThatCancels(job, n)  # 1: the call has begun; 2: it has ended
    model._engine.run(job.run)
    assert job.cancelled
    assert session.position == 2
    session.decode(5)  # the cancellation is gone
    assert session.position == 3


def test_cancelling_the_last_call_of_a_full_session_does_not_end_the_next(model):
    session = model.session(max_seq_len=16)
    session.prefill(ids_of(15))

    def decode_and_cancel(pointer):
        assert lib.ag_session_decode(pointer, 5, ag._native.ffi.NULL) == 0
        session.cancel()

    session._run(decode_and_cancel, [5])
    assert session.position == 16
    session.truncate(8)
    session.decode(5)
    assert session.position == 9


def watch_end(handle, destroy):
    """Return a list that gets an item when the object of a handle is destroyed."""
    ends = []

    def watched(pointer):
        ends.append(True)
        destroy(pointer)

    handle._destroy = watched
    return ends


def close_before_calls(monkeypatch, engine, closed, ends):
    """Close an object before each call that is submitted, as another thread may."""
    submit = engine.submit

    def close_and_submit(function, *arguments):
        closed.close()
        submit(lambda: None).wait()  # the object would be destroyed before this call
        assert not ends, "destroyed before the call that uses it"
        return submit(function, *arguments)

    monkeypatch.setattr(engine, "submit", close_and_submit)


CALLS = {
    "prefill": lambda s, path: s.prefill([5, 6]),
    "decode": lambda s, path: s.decode(5),
    "score": lambda s, path: s.score([5, 6]),
    "generate": lambda s, path: s.generate("a", max_tokens=2).text(),
    "truncate": lambda s, path: s.truncate(1),
    "reset": lambda s, path: s.reset(),
    "begin_turn": lambda s, path: s.begin_turn(),
    "logits": lambda s, path: s.logits.copy(),
    "position": lambda s, path: s.position,
    "fork": lambda s, path: s.fork(),
    "save": lambda s, path: s.save(path / "s.kv"),
    "kv": lambda s, path: s.kv(0),
    "step": lambda s, path: s._model.step([(s, [5, 6], "none")]),
}


@pytest.mark.parametrize("name", CALLS)
def test_session_that_another_thread_closes_lives_until_its_call_ends(model, monkeypatch, tmp_path, name):
    session = model.session()
    session.prefill([7, 8, 9])
    ends = watch_end(session._handle, lib.ag_session_destroy)
    close_before_calls(monkeypatch, model._engine, session, ends)
    try:
        CALLS[name](session, tmp_path)
    except ag.InvalidError as e:
        assert "the session is closed" in str(e)  # prefill and decode read the logits after their call
    monkeypatch.undo()
    model._engine.run(lambda: None)
    assert ends, "a closed session is not freed"


def test_model_that_another_thread_closes_lives_until_its_sessions_end(monkeypatch):
    closing = ag.Model(DEMO)
    ends = watch_end(closing._handle, lib.ag_model_destroy)
    close_before_calls(monkeypatch, closing._engine, closing, ends)
    session = closing.session()
    monkeypatch.undo()
    fork = session.fork()
    session.close()
    closing._engine.run(lambda: None)
    assert not ends
    fork.prefill([5, 6])
    with pytest.raises(ag.InvalidError, match="the model is closed"):
        closing.generate("a")


def test_model_that_is_closed_during_a_generation_is_freed():
    closing = ag.Model(DEMO)
    ends = watch_end(closing._handle, lib.ag_model_destroy)
    generation = closing.generate("Once upon a time", max_tokens=5)
    closing.close()
    assert generation.text()
    del generation
    closing._engine.run(lambda: None)
    closing._engine.run(lambda: None)
    assert ends


def test_other_threads_run_while_the_model_computes(slow):
    session = slow.session(max_seq_len=2048)
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.monotonic()
    session.prefill(ids_of(1500))
    end = time.monotonic()
    stop.set()
    thread.join()
    assert sum(begin < t < end for t in ticks) > 10


def run_python(code):
    root = str(pathlib.Path(ag.__file__).parents[1])
    code = "import libantigravity as ag\n" + textwrap.dedent(code)
    environment = {**os.environ, "PYTHONPATH": root}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)


def test_child_of_a_fork_gets_an_error():
    result = run_python(f"""
        import gc, os, sys
        model = ag.Model({str(DEMO)!r})
        session = model.session()
        session.prefill([5, 6, 7])
        pid = os.fork()
        if pid == 0:
            for call in (lambda: session.decode(3), lambda: model.generate("a").text(), lambda: session.position):
                try:
                    call()
                except ag.ForkError as e:
                    assert "spawn" in str(e)
                else:
                    os._exit(1)
            del session, model
            gc.collect()
            sys.exit(7)
        status = os.waitpid(pid, 0)[1]
        assert os.waitstatus_to_exitcode(status) == 7, status
        session.decode(3)
        print("fine")
        """)
    assert result.returncode == 0 and result.stdout == "fine\n", result.stderr


def test_child_of_a_fork_gets_an_error_from_a_generation():
    result = run_python(f"""
        import os, signal, sys
        model = ag.Model({str(DEMO)!r}, threads=1)
        ended = model.generate("The fox", max_tokens=2)
        ended.text()
        session = model.session(kv_policy="streaming", kv_budget=256)
        generation = session.generate("Once upon a time", max_tokens=-1, ignore_eos=True)
        next(generation)
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)  # a call that waits has no end
            for call in (lambda: generation.text(), lambda: generation.stats, lambda: generation.close()):
                try:
                    call()
                except ag.ForkError as e:
                    assert "spawn" in str(e)
                else:
                    os._exit(1)
            generation.cancel()
            assert ended.stats.n_generated == 2
            del generation
            os._exit(7)
        status = os.waitpid(pid, 0)[1]
        assert os.waitstatus_to_exitcode(status) == 7, status
        generation.close()
        print("fine")
        """)
    assert result.returncode == 0 and result.stdout == "fine\n", result.stderr


def test_callbacks_must_not_wait_for_a_generation(model):
    hold, generations = threading.Event(), []
    model._engine.submit(hold.wait)
    job = model._engine.submit(lambda: generations[0].text())  # as a callback of a call does
    generations.append(model.generate("a", max_tokens=2))
    hold.set()
    with pytest.raises(ag.InvalidError, match="callback"):
        job.wait()
    assert generations[0].text()


def test_process_ends_during_a_generation():
    result = run_python(f"""
        model = ag.Model({str(DEMO)!r})
        generation = model.generate("Once upon a time", max_tokens=-1, ignore_eos=True)
        print(len(next(generation)) > 0)
        """)
    assert result.returncode == 0 and result.stdout == "True\n" and not result.stderr, result.stderr


def test_process_ends_during_the_older_of_two_generations():
    result = run_python(f"""
        import signal
        signal.alarm(20)  # the older generation has no end
        model = ag.Model({str(DEMO)!r}, threads=1)
        sessions = [model.session(kv_policy="streaming", kv_budget=256) for _ in range(2)]
        older, newer = (s.generate("Once upon a time", max_tokens=-1, ignore_eos=True) for s in sessions)
        next(older)
        """)
    assert result.returncode == 0 and not result.stderr, result.stderr


def test_callbacks_must_not_use_the_model(model):
    session = model.session(prefill_chunk=16)
    with pytest.raises(ag.InvalidError, match="callback"):
        session.prefill(ids_of(40), progress=lambda done, total: session.position)


def test_memory_does_not_grow(model):
    session = model.session(max_seq_len=512)

    def work(n):
        for _ in range(n):
            session.reset()
            session.prefill([5, 6, 7])
            for token in range(20):
                session.decode(token)
            model.generate("The fox", max_tokens=3, ignore_eos=True).text()

    work(20)
    before = ag.memory_usage().anonymous
    work(100)
    assert ag.memory_usage().anonymous - before < 4 << 20
