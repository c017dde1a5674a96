"""The disk queue of Elastic Beats, versions 0 to 3: read, written, rescued."""
