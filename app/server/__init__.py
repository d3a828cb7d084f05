"""The server process: connections with limits, worker processes. Knows the application as any caller would."""
