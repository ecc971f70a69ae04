"""Layer 9: configuration in, run directory out."""
