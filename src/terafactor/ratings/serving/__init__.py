"""What a fitted model of ratings answers."""
