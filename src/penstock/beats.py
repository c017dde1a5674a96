"""What belongs to Beats alone: the settings of its disk queue as options of `Queue`.

from penstock.beats import Settings
"""

from penstock.formats.beats.settings import Settings

__all__ = ["Settings"]
