"""What the service takes: time, memory, and what becomes of it when it is killed."""
