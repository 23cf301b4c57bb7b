"""A service that answers, in any ASGI server: PREDICTOR=predictor uvicorn examples.service:app."""

import asyncio
import json
import os
from typing import Any

import numpy as np

from snapsure import Predictor

predictor = Predictor.load(os.environ["PREDICTOR"], trust=True)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """POST {"inputs": [...]}: label, confidence and accepted of each."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    try:
        inputs = np.array(json.loads(body)["inputs"], dtype=np.float32)
        answer = await asyncio.to_thread(predictor, inputs)
        status, said = 200, {name: part.tolist() for name, part in answer._asdict().items()}
    except (KeyError, RecursionError, TypeError, ValueError) as error:  # as snapsure's refusals are
        status, said = 422, {"error": str(error)}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(said).encode()})
