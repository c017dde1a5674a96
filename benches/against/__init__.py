"""Other queues, each with requirements of its own."""
