"""The privacy kernel: what mechanisms cost, how noise is scaled and drawn, what a data set has left.

Pure: no file, network or clock is touched, nothing of the rest of the application is imported. Private
randomness is the one input from outside, taken from OpenDP or the operating system's generator.
"""
