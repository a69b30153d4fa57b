"""One harness for every real fault: witnesses who write down what they saw, and a nemesis who breaks things.

    ledger ──HTTP──▶ doorstep serve, doorstep worker … ──HTTP──▶ receivers
       │                  ▲          │                              │
   ledger log          nemesis    database                     arrival log
       └──────────────┬───┴──────────┴──────────────┬───────────────┘
                   evidence ───────▶ checker ───────▶ verdict

All of them are processes of their own, started by the installation and kept alive as an init system would. The
checker is a pure function of the logs and of the final state, which is read straight from the database.
"""
