"""The path of an event, one module for each step:

    accept ─▶ fan_out ─▶ claim ─▶ attempt ─▶ (policy.classification) ─▶ settle
                           ▲                                              │
                           └───────────── due again ──────────────────────┘

`deliver.py` ties claim, attempt and settle together; read it from top to bottom. `directory.py` holds the endpoints,
`buffer.py` holds the claims of this worker, and `circuits.py` holds the circuit breakers. `reclaim.py` settles the
attempts of lost workers. `facts.py` builds the log facts and trace spans of each step.
"""
