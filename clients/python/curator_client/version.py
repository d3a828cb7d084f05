"""The version of this distribution and of the service, `curator-server`: it stands nowhere else."""

__version__ = "0.2.0"
