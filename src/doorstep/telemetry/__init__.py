"""What Doorstep says about itself: facts, and from them logs, metrics and traces.

`facts` is what the engine emits, `logs` words them and `log_writer` writes them; `metrics` and `otel_metrics` word the
store's figures for Prometheus and OpenTelemetry; `tracing` makes spans; `scrubbing` keeps what was sent out of it all.
Facts are at the bottom of everything and light, metrics stand on the path and load libraries: so this imports none.
"""
