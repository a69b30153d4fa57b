"""The domain model: immutable values and their rules, without any I/O.

There is one module per concept. `event` and `delivery` hold the tables of allowed transitions. `claim` and `attempt`
hold the values of a delivery in progress: an attempt for a `Claim` gives a `Reply`, which is classified as an
`Outcome`, which leads to a `Settlement`.
"""
