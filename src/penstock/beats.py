"""What belongs to Beats alone: the settings of its disk queue as options of `Queue`.

    from penstock.beats import Settings

The names are those that a Beat's own configuration has.
"""

from penstock.engine.beats_settings import Settings

__all__ = ["Settings"]
