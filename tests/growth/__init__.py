"""How time grows with what is stored."""
