"""The VQS file: one ring with its settings in a header, and the three layouts that came later."""
