"""Data spaces, and the linear queries that can be asked of them. Pure: no I/O, no randomness."""
