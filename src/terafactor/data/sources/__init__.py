"""Sources, one file per kind of data: a ``MatrixSource``, and a ``FORMAT`` by which ``open_source`` finds it."""
