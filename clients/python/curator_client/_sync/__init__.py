# Made of _async/__init__.py by make_sync.py: change that.

"""The client that blocks, made of :mod:`curator_client._async`."""
