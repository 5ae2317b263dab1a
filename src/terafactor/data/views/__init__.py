"""Sources made from other sources: some rows of one, or several joined."""
