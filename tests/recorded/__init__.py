"""What leaves the service, played with told noise, clock and names: the same bytes from any code that does the same.

`python -m tests.recorded FOLDER` writes it; run with two states of the code the folders are compared with `diff -r`.
"""
