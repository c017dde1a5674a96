"""`.penstock/`, the folder of our own files in a queue: its tree, its layouts, its only writer."""
