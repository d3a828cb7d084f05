"""The client of a trusted curator: questions to private data under differential privacy, and proofs of its log."""
