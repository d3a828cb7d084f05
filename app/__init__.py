"""A trusted curator: private data behind differentially private, adaptively chosen linear and cut queries."""
