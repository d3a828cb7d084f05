"""The client to be awaited, written by hand. ``make_sync.py`` makes :mod:`curator_client._sync` of it."""
