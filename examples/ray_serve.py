# SPDX-License-Identifier: Apache-2.0
"""Runs replicas of `antigravity serve` with Ray Serve: each turn goes to the replica that has cached the earlier ones.

    pip install "ray[serve]"
    serve run ray_serve:build program=antigravity arguments="-m /srv/models/Qwen3-0.6B --memory 2G" replicas=2

`prompt_cache_key` in the body identifies a conversation, else a session header, else the key. Requests without any of these
go to any replica. See docs/guide/scale-out.md."""
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

# In order of priority: a header that clients may be configured to send, those of Claude Code and Codex, the key.
HEADERS = ["x-session-id", "x-claude-code-session-id", "session-id", "authorization", "x-api-key"]
PASSED = ["authorization", "x-api-key", "content-type", "accept", "anthropic-version", "anthropic-beta"]
STICKY = RequestRouterConfig(request_router_class="ray.serve.experimental.consistent_hash_router.ConsistentHashRouter")


def conversation_of(headers, body):
    """Returns the value that identifies the request's conversation; None if there is none."""
    try:
        named = json.loads(body).get("prompt_cache_key") if body else None
    except (ValueError, AttributeError):
        named = None  # not a JSON object: the server reports it
    if isinstance(named, str) and named:
        return named
    return next((headers[h] for h in HEADERS if headers.get(h)), None)


@serve.deployment(request_router_config=STICKY, max_ongoing_requests=256, health_check_period_s=10)
class Replica:
    """One `antigravity serve`, on a private Unix socket."""

    def __init__(self, program, arguments):
        self.folder = tempfile.TemporaryDirectory(prefix="antigravity-")
        path = os.path.join(self.folder.name, "socket")
        # If Ray kills a replica, its server ends too.
        command = ["setpriv", "--pdeathsig", "TERM", program, "serve", "--unix", path, *shlex.split(arguments)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.process.stderr:
            said.append(line)
            if "listening on" in line:
                break
        else:
            raise RuntimeError("antigravity serve ended: " + "".join(said[-5:]))
        # Later messages are passed on as the replica's.
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
        """Yields status and headers, then the body in pieces. A caller that stops reading cancels the request."""
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
