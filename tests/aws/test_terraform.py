"""The Terraform module: applied to an emulator of AWS, and compared with what the code and the profile expect.

The emulator is no proof that AWS behaves the same. Differences that matter here: it reads no metrics from logs, publishes
none for queues, and its answer about alarms leaves out most of their fields in the format that the provider reads.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from doorstep.encryption import new_secret_key
from doorstep.stores.dynamodb.tables import INDEXES, PARTITION_KEY, SORT_KEY, TTL_ATTRIBUTE, key_schema
from doorstep.telemetry.embedded_metrics import METRICS
from tests.aws.packages import built
from tests.aws.stack import until
from tests.aws.terraform import MODULE, Terraform, client
from tests.support import ministack
from tests.support.receiver import receiving

ADMIN_KEY = "an-admin-key-for-tests"


class Applied(NamedTuple):
    terraform: Terraform
    outputs: dict[str, Any]
    endpoint: str

    def client(self, service: str) -> Any:
        return client(service, self.endpoint)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """A request to the HTTP API, whose name leads to the emulator."""
        headers = {"Host": urlsplit(self.outputs["api_url"]).netloc, "X-API-Key": ADMIN_KEY}
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"{self.endpoint}{path}", data, headers, method=method)
        with urllib.request.urlopen(asked) as answered:
            return json.load(answered)


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Applied]:
    folder = tmp_path_factory.mktemp("terraform")
    for endpoint in ministack.serving(folder):
        given = {
            "packages": str(built()),
            "admin_key": ADMIN_KEY,
            "secret_key": new_secret_key(),
            "app": "",
            "retry_delays": [1, 1, 1],
            "settings": {"DOORSTEP_ALLOW_ADDRESSES": "127.0.0.0/8"},
        }
        terraform = Terraform(folder, endpoint, given)
        terraform.validate()
        yield Applied(terraform, terraform.apply(), endpoint)


@pytest.mark.skipif(shutil.which("terraform") is None, reason="THE TERRAFORM MODULE WAS NOT CHECKED: NO TERRAFORM HERE")
def test_the_module_is_formatted() -> None:
    done = subprocess.run(
        ["terraform", "fmt", "-check", "-diff", str(MODULE)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.full
def test_the_table_has_the_keys_and_indexes_that_the_store_declares(applied: Applied) -> None:
    dynamodb, name = applied.client("dynamodb"), applied.outputs["table_name"]
    table = dynamodb.describe_table(TableName=name)["Table"]
    assert table["KeySchema"] == key_schema(PARTITION_KEY, SORT_KEY)
    assert {index["IndexName"]: index["KeySchema"] for index in table["GlobalSecondaryIndexes"]} == {
        index.name: key_schema(index.partition_key, index.sort_key) for index in INDEXES
    }
    assert {index["Projection"]["ProjectionType"] for index in table["GlobalSecondaryIndexes"]} == {"KEYS_ONLY"}
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    ttl = dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    assert (ttl["TimeToLiveStatus"], ttl["AttributeName"]) == ("ENABLED", TTL_ATTRIBUTE)
    backups = dynamodb.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
    assert backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"


@pytest.mark.full
def test_a_message_stays_hidden_longer_than_its_function_runs_and_is_set_aside_after_five_receives(
    applied: Applied,
) -> None:
    sqs, functions = applied.client("sqs"), applied.client("lambda")
    queue = sqs.get_queue_attributes(QueueUrl=applied.outputs["delivery_queue_url"], AttributeNames=["All"])[
        "Attributes"
    ]
    function = functions.get_function_configuration(FunctionName=applied.outputs["function_names"]["delivery"])
    assert int(queue["VisibilityTimeout"]) > function["Timeout"] > 5  # 5 s: the longest attempt
    redrive = json.loads(queue["RedrivePolicy"])
    assert int(redrive["maxReceiveCount"]) == 5
    assert redrive["deadLetterTargetArn"].endswith(applied.outputs["dead_letter_queue_url"].rsplit("/", 1)[1])
    (mapping,) = functions.list_event_source_mappings()["EventSourceMappings"]
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["FunctionArn"].endswith(":live")


@pytest.mark.full
def test_the_dashboard_has_the_seven_widgets_and_only_metrics_that_exist(applied: Applied) -> None:
    body = json.loads(applied.client("cloudwatch").get_dashboard(DashboardName="doorstep")["DashboardBody"])
    widgets = [widget["properties"] for widget in body["widgets"]]
    assert [(widget["title"], widget["view"]) for widget in widgets] == [
        ("Events by status", "pie"),
        ("Events per minute", "timeSeries"),
        ("Success rate", "gauge"),
        ("Retry attempts", "bar"),
        ("Time to delivery", "timeSeries"),
        ("Failed per minute, 24 hours", "timeSeries"),
        ("Queue depth", "timeSeries"),
    ]
    assert all(widget["period"] <= 300 for widget in widgets)
    assert [one[-1]["stat"] for one in widgets[4]["metrics"]] == ["p50", "p95", "p99"]
    assert [one[-1]["label"] for one in widgets[1]["metrics"]] == ["created", "delivered", "failed"]
    assert (widgets[5]["start"], widgets[5]["period"]) == ("-PT24H", 60)
    for widget in widgets:
        for namespace, name, *dimensions in (one for one in widget["metrics"] if isinstance(one[0], str)):
            if namespace == "AWS/SQS":
                assert dimensions[:2] == ["QueueName", "doorstep-delivery"]
            else:
                assert (namespace, dimensions[:2]) == ("Doorstep", ["service", "triggers"])
                assert name in METRICS


ALARMS = {
    "doorstep-failed": ("Doorstep", "FailedPercent", "Average", 5.0, 300),
    "doorstep-message-age": ("AWS/SQS", "ApproximateAgeOfOldestMessage", "Maximum", 3_600.0, 60),
    "doorstep-dead-letter-queue": ("AWS/SQS", "ApproximateNumberOfMessagesVisible", "Maximum", 0.0, 60),
    "doorstep-status-latency": ("Doorstep", "StatusQueryLatency", "p95", 50.0, 60),
}


@pytest.mark.full
def test_the_four_alarms_are_those_of_the_profile_and_go_to_the_topic(applied: Applied) -> None:
    alarms = {one["AlarmName"]: one for one in applied.client("cloudwatch").describe_alarms()["MetricAlarms"]}
    stored = {
        name: (
            one["Namespace"],
            one["MetricName"],
            one.get("ExtendedStatistic") or one["Statistic"],
            one["Threshold"],
            one["Period"],
        )
        for name, one in alarms.items()
    }
    assert stored == ALARMS
    for one in alarms.values():
        assert one["ComparisonOperator"] == "GreaterThanThreshold"
        assert one["AlarmActions"] == one["OKActions"] == [applied.outputs["alarm_topic_arn"]]
        assert one["TreatMissingData"] == "notBreaching"
    dimensions = {name: {one["Name"]: one["Value"] for one in alarm["Dimensions"]} for name, alarm in alarms.items()}
    assert dimensions["doorstep-dead-letter-queue"] == {"QueueName": "doorstep-delivery-dlq"}
    assert dimensions["doorstep-failed"] == dimensions["doorstep-status-latency"] == {"service": "triggers"}


@pytest.mark.full
def test_no_role_may_do_more_than_its_function_needs(applied: Applied) -> None:
    iam = applied.client("iam")
    for name in ("api", "delivery", "sweeper"):
        policy = iam.get_role_policy(RoleName=f"doorstep-{name}", PolicyName="doorstep")["PolicyDocument"]
        document = json.loads(policy) if isinstance(policy, str) else policy
        for statement in document["Statement"]:
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            assert not any("*" in action for action in actions), statement
            assert statement["Resource"] != "*" or statement["Sid"] == "Traces", statement
            receives = "sqs:ReceiveMessage" in actions
            assert not receives or name == "delivery"


@pytest.mark.full
def test_a_second_plan_changes_nothing_but_what_the_emulator_does_not_report(applied: Applied) -> None:
    # The emulator stores every field of an alarm (a test above reads them), but leaves most of them out of the XML form of
    # its answer, which this provider reads.
    alarms = [f"module.doorstep.aws_cloudwatch_metric_alarm.{name}" for name in (
        "dead_letter_queue", "failed", "message_age", "status_latency",
    )]  # fmt: skip
    assert applied.terraform.changes() == {alarm: ["update"] for alarm in alarms}


@pytest.mark.full
def test_an_event_that_is_sent_to_the_http_api_is_delivered(applied: Applied) -> None:
    with receiving() as receiver:
        applied.ask("POST", "/v1/endpoints", {"name": "crm", "url": receiver.url, "event_types": ["lead.*"]})
        event_id = applied.ask("POST", "/v1/events", {"event_type": "lead.created", "payload": {"n": 1}})["event_id"]
        status = f"/v1/events/{event_id}/status"
        until(lambda: applied.ask("GET", status)["status"] == "delivered", "the event is delivered")
        assert len(receiver.received) == 1


@pytest.mark.full
def test_an_alarm_notifies_the_topic_above_its_threshold_and_not_at_it(applied: Applied) -> None:
    """The test publishes the metrics: the emulator reads none from logs and has none of queues."""
    cloudwatch, sqs, sns = applied.client("cloudwatch"), applied.client("sqs"), applied.client("sns")
    queue = sqs.create_queue(QueueName="heard")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=applied.outputs["alarm_topic_arn"], Protocol="sqs", Endpoint=arn)

    def publish(above: float) -> None:
        for namespace, metric, _, threshold, _ in ALARMS.values():
            values = [{"MetricName": metric, "Value": threshold + above}]
            cloudwatch.put_metric_data(Namespace=namespace, MetricData=values)

    def states() -> dict[str, str]:
        return {one["AlarmName"]: one["StateValue"] for one in cloudwatch.describe_alarms()["MetricAlarms"]}

    publish(above=0)
    until(lambda: set(states().values()) == {"OK"}, "no alarm is raised at its threshold")
    publish(above=1)
    until(lambda: set(states().values()) == {"ALARM"}, "every alarm is raised above its threshold")
    heard: set[tuple[str, str]] = set()
    wanted = {(name, "ALARM") for name in ALARMS}
    until(lambda: heard.update(notifications(sqs, queue)) or wanted <= heard, "the topic is notified of each")


def notifications(sqs: Any, queue: str) -> Iterator[tuple[str, str]]:
    """The alarms and their states in the messages of a queue that subscribes to the topic."""
    for message in sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", []):
        alarm = json.loads(json.loads(message["Body"])["Message"])
        yield alarm["AlarmName"], alarm["NewStateValue"]
