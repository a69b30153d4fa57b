"""Facts, logs, metrics and traces. This module imports nothing, so that importing `telemetry.facts` stays cheap."""
