"""The SQL stores: `schema` has the tables, `cold` the verbs they share, `sqlite` and `postgres` the hot ones."""
