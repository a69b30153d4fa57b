"""What the OpenAPI document says of texts and numbers: how long, how large.

The rules themselves stand where they are enforced, for every way in alike (path/enrol.py, path/accept.py). Here they
are only told; the fuzz tests fail when what is told and what is enforced differ, in either direction.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from pydantic import Field
from pydantic.fields import FieldInfo

from doorstep.policy.retry import BUILT_IN

TYPE_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.:/\-]{0,127}$"
_TYPES_PATTERN = r"^([A-Za-z0-9_][A-Za-z0-9_.:/\-]{0,127}\*?|\*)$"
KEY_RULES = {"minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"}
"""Of an idempotency key."""


def told(**rules: Any) -> FieldInfo:
    """A field of which the document tells these rules."""
    field: FieldInfo = Field(json_schema_extra=rules)
    return field


def _between(low: float, high: float) -> FieldInfo:
    return told(minimum=low, maximum=high)


# -- endpoints ---------------------------------------------------------------------------------------------------

Name = Annotated[str, told(minLength=1, maxLength=200)]
EventTypes = Annotated[list[Annotated[str, told(pattern=_TYPES_PATTERN)]], told(minItems=1)]
BY_EVENT_TYPE = {"propertyNames": {"pattern": _TYPES_PATTERN}}
"""Of an object whose keys are event types, or patterns of them."""
PolicyName = Annotated[str, told(enum=sorted(BUILT_IN))]
PolicyTitle = Annotated[str, told(maxLength=200)]
Headers = Annotated[
    dict[str, str],
    told(
        propertyNames={"pattern": r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$"},
        additionalProperties={"type": "string", "pattern": "^[ -~]{0,4000}$"},
    ),
]
Code = Annotated[str, told(pattern="^[ -~]{1,100}$")]
CodeMap = Annotated[dict[str, Code], told(propertyNames={"pattern": "^[ -~]{1,100}$"})]
Delays = Annotated[list[Annotated[float, _between(0, 2_592_000)]], Field(max_length=100)]
Jitter = Annotated[float, _between(0, 1)]
DeadlineSeconds = Annotated[float, _between(0, 31_622_400)]
TimeoutSeconds = Annotated[float, told(minimum=0.1)]
ConcurrencyMax = Annotated[int, _between(1, 10_000)]
Rate = Annotated[float, _between(0.001, 100_000)]
FailuresMax = Annotated[int, _between(1, 1_000_000)]
OpenSeconds = Annotated[float, _between(1, 86_400)]
DisableAfterSeconds = Annotated[float, _between(60, 31_536_000)]
OverlapSeconds = Annotated[float, _between(0, 2_592_000)]

# -- alert rules -------------------------------------------------------------------------------------------------

Threshold = Annotated[float, _between(0, 1_000_000_000)]
WindowSeconds = Annotated[float, _between(60, 86_400)]
DeliveriesMin = Annotated[int, _between(1, 1_000_000)]
CooldownSeconds = Annotated[float, _between(60, 2_592_000)]

# -- bulk operations ---------------------------------------------------------------------------------------------

BulkRate = Annotated[float, _between(0.01, 100_000)]

# -- events, which msgspec describes -----------------------------------------------------------------------------

EventType = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": TYPE_PATTERN})]
IdempotencyKey = Annotated[str, msgspec.Meta(extra_json_schema=KEY_RULES)]
EndpointIds = Annotated[tuple[UUID, ...], msgspec.Meta(extra_json_schema={"minItems": 1})]
Moment = Annotated[datetime, msgspec.Meta(extra_json_schema={"format": "date-time"})]
RawObject = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object", "additionalProperties": True})]
