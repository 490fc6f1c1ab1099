# SPDX-License-Identifier: Apache-2.0
"""Two texts at a time with asyncio: they take turns."""

import asyncio

import libantigravity as ag
from libantigravity.aio import AsyncModel


async def tell(model, prompt):
    return "".join([piece async for piece in model.generate(prompt, max_tokens=20)])


async def main():
    model = AsyncModel(ag.Model())
    texts = await asyncio.gather(tell(model, "Once upon a time"), tell(model, "The old king"))
    print("two texts:", texts)


asyncio.run(main())
