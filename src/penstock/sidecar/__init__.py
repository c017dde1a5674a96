"""`.penstock/`, the folder of our own files in a queue: its tree, its structs, its only writer."""
