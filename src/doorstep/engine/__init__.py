"""The path of an event, one step a module:

    accept ─▶ fan_out ─▶ claim ─▶ attempt ─▶ (policy.classification) ─▶ settle
                           ▲                                              │
                           └───────────── due again ──────────────────────┘

`deliver.py` ties claim, attempt and settle together and reads top to bottom. `directory.py` is what the steps
know about endpoints, `buffer.py` the claims that a worker holds at the moment, `reclaim.py` what happens when one is lost.
"""
