"""The store in one SQLite file: `store` puts it together, `writer` keeps it safe, the verbs have a module each."""
