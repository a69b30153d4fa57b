"""One harness for all faults of real processes: observers record what they saw, and a nemesis injects the faults.

    ledger ──HTTP──▶ doorstep serve, doorstep worker … ──HTTP──▶ receivers
       │                  ▲          │                              │
   ledger log          nemesis    database                     arrival log
       └──────────────┬───┴──────────┴──────────────┬───────────────┘
                   evidence ───────▶ checker ───────▶ verdict

The ledger, Doorstep and the receivers are separate processes. The installation starts them, and restarts Doorstep and
the receivers when they die, as an init system would. The checker is a pure function of the logs and the final state,
which is read directly from the database.
"""
