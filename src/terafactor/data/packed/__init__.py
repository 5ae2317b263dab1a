"""The packed store: layout, shards, reader and writer."""
