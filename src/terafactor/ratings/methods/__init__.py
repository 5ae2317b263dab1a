"""Learning algorithms for ratings: per-item statistics (the default), and the masked algorithm of the paper."""
