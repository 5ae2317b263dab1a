"""Sources: one file per kind of data, each a subclass of ``MatrixSource`` and an entry in the table of formats."""
