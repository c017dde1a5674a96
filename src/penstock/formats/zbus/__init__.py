"""The `zbus` format: the disk queue of zbus, in every layout it ever had and the two it printed."""
