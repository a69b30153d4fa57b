"""What the DynamoDB store does not offer, and what to use instead."""

from __future__ import annotations

from doorstep.errors import NotOffered
from doorstep.stores.store import Features, Part

_INSTEAD = {
    Part.STATISTICS: "use the CloudWatch metrics of Doorstep",
    Part.ALERTS: "use CloudWatch alarms",
    Part.OUTBOX: "the outbox needs the sender's own SQL database",
    Part.PIPELINES: "pipelines need the sender's own SQL database",
    Part.BULK: "act on up to 1,000 deliveries at a time by their ids",
    Part.BATCHES: "read the deliveries of the batch endpoint",
    Part.ATTEMPTS: "read the attempts of one delivery, or search the log with Logs Insights",
    Part.SEARCH: "search by correlation id, event type or user",
}
"""One sentence for each part that is missing. What is not listed here is offered."""

FEATURES = Features(many_machines=True, notices_posts=False, lacks=frozenset(_INSTEAD))


def not_offered(part: Part) -> NotOffered:
    return NotOffered(f"{part} are not offered on DynamoDB; {_INSTEAD[part]}")
