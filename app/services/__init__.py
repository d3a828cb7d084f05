"""Use cases, one transaction each, and the ports they need. Knows no HTTP and no SQL."""
