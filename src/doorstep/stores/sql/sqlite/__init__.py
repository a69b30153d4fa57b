"""The store in one SQLite file. `store` assembles it, and `writer` runs all writes and keeps commits safe. `accept`,
`claim` and `settle` contain the statements for those steps."""
