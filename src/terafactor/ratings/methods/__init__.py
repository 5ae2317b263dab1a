"""Ways to learn from ratings."""
