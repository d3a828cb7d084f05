"""Policies: the measurements that sessions pay for, and their noise, from public facts alone."""
