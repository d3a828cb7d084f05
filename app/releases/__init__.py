"""Releases for workloads that are known beforehand: what is made, without further cost, of what was measured.

Pure: no input or output, and no randomness but of a generator that is handed in.
"""
