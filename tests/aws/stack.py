"""The parts that events pass through, created on an emulator of AWS without Terraform: table, queues and functions.

The functions run from their packages, in processes that the emulator starts, and its queue calls the delivery function.
The sweeper is called by the tests.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from doorstep.stores.dynamodb.store import DynamoStore
from tests.aws.requests import answer, request
from tests.aws.terraform import PYTHON, REGION, client
from tests.support.patience import PATIENCE_SECONDS
from tests.support.receiver import Receiver

ADMIN_KEY = "an-admin-key-for-tests"
TABLE = "doorstep-events"
_ROLE = "arn:aws:iam::000000000000:role/function"


class Stack:
    def __init__(self, endpoint: str, packages: Path, environ: Mapping[str, str]) -> None:
        self._clients = {one: client(one, endpoint) for one in ("cloudwatch", "lambda", "logs", "sns", "sqs")}
        self._endpoint = endpoint
        self.dead_letters = self._create_queue("doorstep-delivery-dlq")
        redrive = {"deadLetterTargetArn": self.arn_of(self.dead_letters), "maxReceiveCount": "5"}
        # Short, so that a message that is kept comes back soon; the attempts of these tests take milliseconds.
        self.queue = self._create_queue("doorstep-delivery", VisibilityTimeout="2", RedrivePolicy=json.dumps(redrive))
        names = {"EVENTS_TABLE_NAME": TABLE, "DELIVERY_QUEUE_URL": self.queue, "DELIVERY_DLQ_URL": self.dead_letters}
        for function in ("api", "delivery", "sweeper"):
            self._create_function(function, packages / f"{function}.zip", {**names, **environ})

    async def open(self) -> None:
        """Create the table, and let the queue call the delivery function."""
        await DynamoStore(f"dynamodb://{TABLE}?region={REGION}&endpoint_url={self._endpoint}").migrate()
        mapping = self["lambda"].create_event_source_mapping(
            EventSourceArn=self.arn_of(self.queue),
            FunctionName="doorstep-delivery",
            BatchSize=10,
            FunctionResponseTypes=["ReportBatchItemFailures"],
        )
        self._mapping = mapping["UUID"]

    def call_functions(self, enabled: bool) -> None:
        """Whether the queue calls the delivery function."""
        self["lambda"].update_event_source_mapping(UUID=self._mapping, Enabled=enabled)

    def __getitem__(self, service: str) -> Any:
        return self._clients[service]

    def arn_of(self, queue_url: str) -> str:
        found = self["sqs"].get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])
        return str(found["Attributes"]["QueueArn"])

    def _create_queue(self, name: str, **attributes: str) -> str:
        return str(self["sqs"].create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    def _create_function(self, name: str, package: Path, environ: Mapping[str, str]) -> None:
        self["lambda"].create_function(
            FunctionName=f"doorstep-{name}",
            Runtime=f"python{PYTHON}",
            Role=_ROLE,
            Handler=f"doorstep.aws.{name}.handler",
            Code={"ZipFile": package.read_bytes()},
            Environment={"Variables": dict(environ)},
            Timeout=60,
            MemorySize=1_024,
        )

    # -- what a user does ----------------------------------------------------------------------------------

    def invoke(self, function: str, event: Mapping[str, Any]) -> Any:
        done = self["lambda"].invoke(FunctionName=f"doorstep-{function}", Payload=json.dumps(event).encode())
        result = json.loads(done["Payload"].read())
        assert "FunctionError" not in done, result
        return result

    def ask(self, method: str, path: str, body: object = None, key: str = ADMIN_KEY) -> Any:
        result = self.invoke("api", request(method, path, key, body))
        assert result["statusCode"] < 300, result
        return answer(result)

    def create_endpoint(self, event_type: str, receiver: Receiver) -> None:
        self.ask("POST", "/v1/endpoints", {"name": event_type, "url": receiver.url, "event_types": [event_type]})

    def send(self, event_type: str) -> str:
        return str(self.ask("POST", "/v1/events", {"event_type": event_type, "payload": {"n": 1}})["event_id"])

    def status(self, event_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"/v1/events/{event_id}/status")
        return found

    # -- what people look at -------------------------------------------------------------------------------

    def lines(self, function: str) -> list[dict[str, Any]]:
        """The log of a function, without the lines of Lambda itself."""
        group = f"/aws/lambda/doorstep-{function}"
        events = self["logs"].filter_log_events(logGroupName=group)["events"]
        return [json.loads(one["message"]) for one in events if one["message"].startswith("{")]

    def metric(self, name: str) -> list[float]:
        """All values of a metric."""
        lines = [*self.lines("api"), *self.lines("delivery")]
        values = [line[name] for line in lines if line["event"] == "metrics" and name in line]
        return [one for value in values for one in (value if isinstance(value, list) else [value])]

    def query(self, text: str) -> list[dict[str, Any]]:
        """The lines that a query of Logs Insights finds in the log groups of all functions."""
        groups = [f"/aws/lambda/doorstep-{function}" for function in ("api", "delivery")]
        now = int(time.time())
        started = self["logs"].start_query(
            logGroupNames=groups, startTime=now - 3_600, endTime=now + 60, queryString=text
        )
        found = self["logs"].get_query_results(queryId=started["queryId"])
        assert found["status"] == "Complete"
        rows = [{one["field"]: one["value"] for one in row} for row in found["results"]]
        return [json.loads(row["@message"]) for row in rows]

    def messages(self, queue: str) -> int:
        """How many messages are in a queue, waiting or delayed or in flight."""
        names = ["Visible", "NotVisible", "Delayed"]
        wanted = ["ApproximateNumberOfMessages", *(f"ApproximateNumberOfMessages{name}" for name in names[1:])]
        found = self["sqs"].get_queue_attributes(QueueUrl=queue, AttributeNames=wanted)["Attributes"]
        return sum(int(found[name]) for name in wanted)


def until(reached: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + 2 * PATIENCE_SECONDS
    while not reached():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.2)
