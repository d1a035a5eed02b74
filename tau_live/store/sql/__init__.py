"""The roles of a store, in SQL: the same in every database."""
