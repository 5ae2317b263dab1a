"""The packed store: layout, shards, reader, writer."""
