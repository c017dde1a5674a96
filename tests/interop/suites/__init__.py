"""Other projects' own tests, run against penstock in place of their brokers."""
