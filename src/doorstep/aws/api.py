"""The API function: the HTTP API and the console behind API Gateway, a function URL or a load balancer."""

from __future__ import annotations

import os
import re
import time
from typing import Any

from mangum import Mangum
from mangum.types import ASGI, Receive, Scope, Send

from doorstep.api.application import create_application
from doorstep.aws.function import Function
from doorstep.telemetry.embedded_metrics import EmbeddedMetrics

_STATUS_PATH = re.compile(r"/v1/events/[^/]+/status")


class ApiFunction:
    """Answers one request a call."""

    def __init__(self) -> None:
        self._function = Function()
        application = StatusQueries(create_application(self._function.doorstep), self._function.metrics)
        self._adapter = Mangum(application, lifespan="off")

    def __call__(self, event: dict[str, Any], context: Any) -> dict[str, Any]:
        try:
            return self._adapter(event, context)  # it runs the event loop of the function
        finally:
            self._function.finish()


class StatusQueries:
    """Counts and measures the queries of events' statuses."""

    def __init__(self, application: ASGI, metrics: EmbeddedMetrics) -> None:
        self._application = application
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        await self._application(scope, receive, send)
        if scope["type"] == "http" and scope["method"] == "GET" and _STATUS_PATH.fullmatch(scope["path"]):
            self._metrics.status_query(time.perf_counter() - began)


if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:  # AWS gives a starting process more processor time than a call
    handler = ApiFunction()
