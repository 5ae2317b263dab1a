"""Arithmetic on arrays and scalars: NumPy, BLAS and Numba. No classes, no files, no scikit-learn."""
