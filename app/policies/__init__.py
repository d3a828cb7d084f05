"""What sessions pay for, and with how much noise, from public things alone."""
