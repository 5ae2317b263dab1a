"""Rating tables: ids, conversion from other types, train/test splits."""
