"""Spans as collectors read them: checked with OpenTelemetry's own decoder."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from doorstep.telemetry.otlp import Attributes, Requests, SpanKind, encode_span, template

TRACE, SPAN, PARENT, PREVIOUS = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, 0x00F067AA0BA902B7, 5
EVENT, DELIVERY = UUID(int=0x0198A4F26C1E7B528A0D5F1B7B6C9D10), UUID(int=7)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
attribute_lists = st.lists(st.tuples(texts, texts | st.integers(0, 2**63 - 1)), max_size=8).map(tuple)


def message(attributes: Attributes = (), correlation_id: str = "order-17", **more: Any) -> bytes:
    """An encoded attempt span, linked to the previous attempt if `linked` is given."""
    parent, linked = more.pop("parent", True), more.pop("linked", False)
    form = template("doorstep.attempt", SpanKind.CLIENT, attributes, parent=parent, linked=linked)
    ids = TRACE, SPAN, PARENT if parent else 0
    return encode_span(
        form, *ids, 1_000, 1_250, EVENT, DELIVERY, correlation_id, linked_id=PREVIOUS if linked else 0, **more
    )


def decoded(*messages: bytes) -> ExportTraceServiceRequest:
    return ExportTraceServiceRequest.FromString(Requests({"service.name": "doorstep"}, "1.2.3").request(messages))


def only(content: bytes) -> Span:
    (span,) = decoded(content).resource_spans[0].scope_spans[0].spans
    return span


def attributes_of(span: Span) -> list[tuple[str, object]]:
    return [(pair.key, getattr(pair.value, pair.value.WhichOneof("value"))) for pair in span.attributes]


def test_a_request_says_whose_spans_it_holds() -> None:
    (resource,) = decoded(message(), message()).resource_spans
    assert [(pair.key, pair.value.string_value) for pair in resource.resource.attributes] == [
        ("service.name", "doorstep")
    ]
    (scope,) = resource.scope_spans
    assert (scope.scope.name, scope.scope.version, len(scope.spans)) == ("doorstep", "1.2.3", 2)


def test_a_span_has_its_ids_name_kind_and_times() -> None:
    read = only(message())
    ids = (read.trace_id, read.span_id, read.parent_span_id)
    assert tuple(int.from_bytes(one, "big") for one in ids) == (TRACE, SPAN, PARENT)
    assert [len(one) for one in ids] == [16, 8, 8]
    assert (read.name, read.kind, read.flags) == ("doorstep.attempt", read.SPAN_KIND_CLIENT, 1)
    assert (read.start_time_unix_nano, read.end_time_unix_nano) == (1_000_000, 1_250_000)
    assert not read.links and read.status.code == read.status.STATUS_CODE_UNSET
    assert only(message(parent=False)).parent_span_id == b""


def test_a_retry_is_linked_and_a_failure_has_its_status() -> None:
    read = only(message(linked=True, error="100 % of it failed."))
    ((trace, span),) = [(link.trace_id, link.span_id) for link in read.links]
    assert (int.from_bytes(trace, "big"), int.from_bytes(span, "big")) == (TRACE, PREVIOUS)
    assert (read.status.code, read.status.message) == (read.status.STATUS_CODE_ERROR, "100 % of it failed.")


def test_a_clock_that_went_back_makes_no_span_of_negative_length() -> None:
    form = template("doorstep.accept", SpanKind.PRODUCER, (), parent=False, linked=False)
    read = only(encode_span(form, TRACE, SPAN, 0, 2_000, 1_000, EVENT, None, ""))
    assert read.start_time_unix_nano == read.end_time_unix_nano
    assert dict(attributes_of(read)) == {"doorstep.event_id": str(EVENT), "doorstep.correlation_id": ""}


@given(attribute_lists, texts, texts)
def test_whatever_a_span_holds_is_read_back_unchanged(attributes: Attributes, correlation_id: str, state: str) -> None:
    read = only(message(attributes, correlation_id, state=state, linked=True))
    ids = {"doorstep.event_id": str(EVENT), "doorstep.delivery_id": str(DELIVERY)}
    assert attributes_of(read) == [*attributes, *ids.items(), ("doorstep.correlation_id", correlation_id)]
    assert read.trace_state == state
