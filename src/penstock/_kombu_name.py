"""Gives kombu the short name `penstock://`.

kombu has no plug-ins for transports, but it loads those for serializers when it is first used:
`HOOK` is one that serializes nothing, and loading it is what matters.
"""

from kombu.transport import TRANSPORT_ALIASES

TRANSPORT_ALIASES.setdefault("penstock", "penstock.kombu:Transport")
HOOK = (None, None, "application/x-penstock")
