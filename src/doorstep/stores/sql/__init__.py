"""The SQL stores. `schema` declares the tables, `queries` has the methods that both databases share, and `sqlite` and
`postgres` each have their own accept, claim and settle."""
