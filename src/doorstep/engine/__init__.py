"""The path of an event:

    accept ─▶ claim ─▶ deliver ─▶ (policy.classification) ─▶ settle
                ▲                                              │
                └───────────── due again ──────────────────────┘

Each step is a module. `deliver.py` also ties all steps after `accept` together; read it from top to bottom.
`directory.py` holds the endpoints, `buffer.py` the claims of this worker, and `circuits.py` the circuit breakers.
`facts.py` builds the log facts and trace spans of each step.
"""
