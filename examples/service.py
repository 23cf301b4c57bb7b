"""A service that answers, in any ASGI server: PREDICTOR=predictor uvicorn examples.service:app.

It needs no framework. Bodies are limited in size and time, and parsed outside the event loop, so
that no client makes the others wait.
"""

import asyncio
import json
import os
from typing import Any

import numpy as np

from snapsure import Predictor

BYTES = int(os.environ.get("MOST_BYTES", 8 << 20))  # of a body
SECONDS = float(os.environ.get("MOST_SECONDS", 10))  # for a body to arrive

predictor = Predictor.load(os.environ["PREDICTOR"], trust=True)


class Refused(Exception):
    """A status and a sentence for the client."""


async def app(scope: Any, receive: Any, send: Any) -> None:
    """POST {"inputs": [...]}: label, confidence and accepted of each."""
    if scope["type"] != "http":
        return
    try:
        async with asyncio.timeout(SECONDS):
            body = await read_body(receive)
        status, content = 200, await asyncio.to_thread(answer, body)
    except TimeoutError:
        status, content = 408, {"error": f"the body must arrive within {SECONDS:g} seconds"}
    except Refused as refusal:
        status, content = refusal.args[0], {"error": refusal.args[1]}
    except (KeyError, RecursionError, TypeError, ValueError, OverflowError) as error:
        status, content = 400, {"error": str(error)}  # snapsure's refusals are ValueErrors
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(content).encode()})


async def read_body(receive: Any) -> bytes:
    """Read the body, unless it is too long."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the body must arrive whole")
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
        if size > BYTES:
            raise Refused(413, f"the body must have at most {BYTES} bytes")
    return b"".join(parts)


def answer(body: bytes) -> dict[str, Any]:
    """Answer a body; it runs in a thread."""
    inputs = np.array(json.loads(body)["inputs"], dtype=np.float32)
    return {name: part.tolist() for name, part in predictor(inputs)._asdict().items()}
