"""What the bytes mean: one package per format, and what all formats share."""
