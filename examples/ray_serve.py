# SPDX-License-Identifier: Apache-2.0
"""Replicas of `antigravity serve` by Ray Serve, each conversation with the replica that has read its beginning.

    pip install "ray[serve]"
    serve run ray_serve:build program=antigravity arguments="-m /srv/models/Qwen3-0.6B --memory 2G" replicas=2

A conversation is known by `prompt_cache_key` in the body, else by a session's header, else by the key; requests with none of
these go anywhere. docs/guide/scale-out.md tells more."""
import asyncio
import json
import os
import shlex
import subprocess
import tempfile

import aiohttp
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from ray import serve
from ray.serve.config import RequestRouterConfig

# First to last: one that a client may be told to send, those of Claude Code and Codex, the key.
HEADERS = ["x-session-id", "x-claude-code-session-id", "session-id", "authorization", "x-api-key"]
PASSED = ["authorization", "x-api-key", "content-type", "accept", "anthropic-version", "anthropic-beta"]
STICKY = RequestRouterConfig(request_router_class="ray.serve.experimental.consistent_hash_router.ConsistentHashRouter")


def conversation_of(headers, body):
    """What the request's conversation is known by; None: nothing."""
    try:
        named = json.loads(body).get("prompt_cache_key") if body else None
    except (ValueError, AttributeError):
        named = None  # no JSON, or no object: the server says so
    if isinstance(named, str) and named:
        return named
    return next((headers[h] for h in HEADERS if headers.get(h)), None)


@serve.deployment(request_router_config=STICKY, max_ongoing_requests=256, health_check_period_s=10)
class Replica:
    """One `antigravity serve`, on a Unix socket that nobody else may use."""

    def __init__(self, program, arguments):
        self.folder = tempfile.TemporaryDirectory(prefix="antigravity-")
        path = os.path.join(self.folder.name, "socket")
        # Where Ray kills a replica, its server ends, too.
        command = ["setpriv", "--pdeathsig", "TERM", program, "serve", "--unix", path, *shlex.split(arguments)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.process.stderr:
            said.append(line)
            if "listening on" in line:
                break
        else:
            raise RuntimeError("antigravity serve ended: " + "".join(said[-5:]))
        # From now on its messages are those of the replica.
        self.reader = asyncio.get_running_loop().run_in_executor(None, self.pass_on)
        self.path = path
        self.client = None
        self.name = serve.get_replica_context().replica_id.unique_id

    def pass_on(self):
        for line in self.process.stderr:
            print(line, end="", flush=True)

    def session(self):
        if self.client is None:
            self.client = aiohttp.ClientSession(connector=aiohttp.UnixConnector(self.path, limit=0),
                                                timeout=aiohttp.ClientTimeout(total=None))
        return self.client

    async def answer(self, method, target, headers, body):
        """First the status and the headers, then the body in pieces. Who stops asking cancels the request."""
        async with self.session().request(method, "http://localhost" + target, headers=headers, data=body) as reply:
            kept = {k: v for k, v in reply.headers.items() if k.lower() in ("content-type", "retry-after", "cache-control")}
            yield reply.status, {**kept, "x-served-by": self.name}
            async for piece in reply.content.iter_any():
                yield piece

    async def check_health(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"antigravity serve ended with {self.process.returncode}")

    async def __del__(self):
        if self.client is not None:
            await self.client.close()
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


web = FastAPI()


@serve.deployment(max_ongoing_requests=1024)
@serve.ingress(web)
class Front:
    def __init__(self, replicas):
        self.replicas = replicas

    @web.api_route("/{path:path}", methods=["GET", "POST"])
    async def forward(self, request: Request):
        body = await request.body()
        headers = {h: request.headers[h] for h in PASSED if h in request.headers}
        target = request.url.path + ("?" + request.url.query if request.url.query else "")
        options = {"stream": True}
        conversation = conversation_of(request.headers, body)
        if conversation:
            options["session_id"] = conversation
        pieces = self.replicas.options(**options).answer.remote(request.method, target, headers, body)
        status, kept = await anext(pieces)
        return StreamingResponse(pieces, status, kept)


def build(args):
    replicas = Replica.options(num_replicas=int(args.get("replicas", 2)))
    return Front.bind(replicas.bind(args.get("program", "antigravity"), args.get("arguments", "")))
