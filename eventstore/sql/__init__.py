"""The store's SQL: schema, engines, append, read and feed, as functions ``fn(conn, ...)``."""
