"""Long tests: processes that are killed, again and again."""
