"""Where things are kept: tables and repositories, the vault of private arrays, the readers of uploaded
files.
"""
