"""The store's SQL: schema, engines, append, read and feed, as plain functions ``fn(conn, ...)``."""
