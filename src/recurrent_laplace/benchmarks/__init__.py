"""How fast, and against what."""
