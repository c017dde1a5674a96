"""What a queue is: groups, positions, retention, dead letters, faces. The same for every format."""
