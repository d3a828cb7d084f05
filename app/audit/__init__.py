"""Transcripts: canonical records, the hash chain over them, and replay. Pure: bytes in, verdict out."""
