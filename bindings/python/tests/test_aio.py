# SPDX-License-Identifier: Apache-2.0
"""asyncio forms."""

import asyncio

import pytest
from conftest import ids_of

from libantigravity.aio import AsyncModel


def test_texts_equal_those_of_the_model(model):
    async def tell():
        pieces = [p async for p in AsyncModel(model).generate("The fox", max_tokens=20, temperature=0)]
        return "".join(pieces)

    assert asyncio.run(tell()) == model.generate("The fox", max_tokens=20, temperature=0).text()


def test_loop_runs_while_the_model_computes(model):
    async def both():
        session = AsyncModel(model).session(max_seq_len=2048)
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        task = asyncio.create_task(tick())
        await session.prefill(ids_of(2000))
        task.cancel()
        return ticks

    assert asyncio.run(both()) > 3


def test_cancelling_a_task_cancels_its_work(model):
    async def cancel():
        session = AsyncModel(model).session(kv_policy="streaming", kv_budget=1024)
        task = asyncio.create_task(session.prefill(ids_of(200000, 4000)))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await session.decode(5)
        return session.session.position

    assert asyncio.run(cancel()) < 200000


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
        session = AsyncModel(model).session(kv_policy="streaming", kv_budget=256)
        pieces = session.generate("Once upon a time", max_tokens=-1, ignore_eos=True)
        piece = await anext(pieces)
        await pieces.aclose()
        return piece

    assert asyncio.run(first())
    assert model.generate("The fox", max_tokens=1).text()
