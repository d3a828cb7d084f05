"""Proofs: what a service's log and transcripts show to anybody who holds them. Pure: bytes in, verdict out."""
