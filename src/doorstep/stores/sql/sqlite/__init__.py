"""The SQLite store, which keeps everything in one file. `store` assembles it, and `writer` runs all writes and makes
commits safe. `accept`, `claim` and `settle` contain the SQL statements for those steps."""
