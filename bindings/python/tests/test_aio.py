# SPDX-License-Identifier: Apache-2.0
"""asyncio forms."""

import asyncio
import functools
import threading
import time

import pytest
from conftest import ids_of

import libantigravity as ag
from libantigravity._engine import Scope
from libantigravity.aio import AsyncModel, AsyncSession


def test_texts_equal_those_of_the_model(model):
    async def tell():
        pieces = [p async for p in AsyncModel(model).generate("The fox", max_tokens=20, temperature=0)]
        return "".join(pieces)

    assert asyncio.run(tell()) == model.generate("The fox", max_tokens=20, temperature=0).text()


def hold_engine(model):
    """Hold the model's thread, as a long call does. Return what ends this."""
    release = threading.Event()
    model._engine.submit(release.wait)
    return release.set


def test_loop_runs_while_a_prefill_waits(model):
    async def both():
        session = await AsyncModel(model).session()
        release = hold_engine(model)
        task = asyncio.create_task(session.prefill(ids_of(20)))
        for _ in range(5):
            await asyncio.sleep(0.001)
        assert not task.done()
        release()
        await task
        return session.session.position

    assert asyncio.run(both()) == 20


def test_cancelling_a_task_cancels_its_work(model):
    async def cancel():
        session = await AsyncModel(model).session(kv_policy="streaming", kv_budget=1024)
        loop = asyncio.get_running_loop()

        def stop(done, total):
            loop.call_soon_threadsafe(task.cancel)

        session.session.prefill = functools.partial(session.session.prefill, progress=stop)
        task = asyncio.create_task(session.prefill(ids_of(200000, 4000)))
        with pytest.raises(asyncio.CancelledError):
            await task
        await session.decode(5)
        return session.session.position

    assert asyncio.run(cancel()) < 200000


@pytest.mark.parametrize("name", ["session", "generate", "chat", "chat_stream", "session.generate"])
def test_loop_runs_while_a_call_waits_for_another(chat_model, name):
    model, messages = AsyncModel(chat_model), [{"role": "user", "content": "Who are you?"}]
    session = chat_model.session()
    calls = {
        "session": model.session,
        "generate": lambda: anext(model.generate("The fox")),
        "chat": lambda: model.chat(messages, max_tokens=2),
        "chat_stream": lambda: anext(model.chat_stream(messages)),
        "session.generate": lambda: anext(AsyncSession(session).generate("The fox")),
    }
    guard = threading.Timer(60, lambda: release())  # ends the wait of a loop that is blocked

    async def both():
        chat_model._free_sessions.clear()
        task = asyncio.create_task(calls[name]())
        for _ in range(10):
            await asyncio.sleep(0.001)
        assert guard.is_alive() and not task.done()
        release()
        return await task

    release = hold_engine(chat_model)
    guard.start()
    try:
        assert asyncio.run(both())
    finally:
        release()
        guard.cancel()


def test_cancelling_a_task_does_not_cancel_calls_of_others(model):
    scope = Scope()
    scope.cancel()  # before its call is submitted
    session = model.session()
    release = hold_engine(model)
    older = threading.Thread(target=lambda: session.prefill([5, 6, 7]))
    older.start()
    while session._job is None:
        time.sleep(0.001)
    waiting = threading.Timer(0.05, release)
    waiting.start()
    with pytest.raises(ag.CancelledError):
        scope.run(lambda: session.decode(5))
    older.join()
    assert session.tokens == [5, 6, 7]


def test_chat(chat_model):
    messages = [{"role": "user", "content": "Who are you?"}]

    async def chat():
        model = AsyncModel(chat_model)
        whole = await model.chat(messages, max_tokens=10, seed=4)
        chunks = [c async for c in model.chat_stream(messages, max_tokens=10, seed=4)]
        return whole, chunks

    whole, chunks = asyncio.run(chat())
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
    assert text == whole["choices"][0]["message"]["content"]


def test_stopping_an_iterator_stops_the_work(model):
    async def first():
        session = await AsyncModel(model).session(kv_policy="streaming", kv_budget=256)
        pieces = session.generate("Once upon a time", max_tokens=-1, ignore_eos=True)
        piece = await anext(pieces)
        await pieces.aclose()
        return piece

    assert asyncio.run(first())
    assert model.generate("The fox", max_tokens=1).text()
