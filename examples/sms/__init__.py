"""SMS: batches of messages go to a carrier that is sometimes busy; submissions are logged, failures resubmitted."""

from examples.sms.program import app

__all__ = ["app"]
