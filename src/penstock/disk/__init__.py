"""Where the bytes are: file effects, names, locks, the control block."""
