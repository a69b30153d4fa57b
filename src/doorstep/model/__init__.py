"""The nouns: immutable values and their rules, without any I/O.

One module a noun: `event` and `delivery` carry the tables of allowed transitions, `claim`, `outcome` and
`settlement` are the three values a delivery passes through on its way, in that order.
"""
