"""What developers run: the set-up check, the list of requirements, the docs generator."""
