"""SQL: a statement becomes questions, and the answers to them become columns. Nothing here is asked or read."""
