"""MappedFileQueues.Stream: bodies only, one producer and one consumer, at home in two mappings."""
