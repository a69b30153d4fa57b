"""The SQL stores. `schema` declares the tables, `queries` contains the methods that both databases share, and `sqlite`
and `postgres` each contain their own accept, claim and settle."""
