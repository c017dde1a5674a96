"""Our own format, version 1: what the other four teach, in one."""
