"""Changing what a format keeps about a queue, where groups have taken it over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.engine.queue import Queue


def change(queue: Queue, values: dict[str, Any]) -> None:
    """Changes the format's settings; a group that still has the old default gets the new one."""
    names = queue.groups()
    before = {name: queue.store.format.group_defaults(name) for name in names}
    queue.store.format.set_meta(**values)
    for name in names:
        after = queue.store.format.group_defaults(name)
        changed = {option: new for option, new in after.items() if new != before[name].get(option)}
        group = queue.look(name) if changed else None
        if group is None:
            continue
        taken = {
            option: new
            for option, new in changed.items()
            if getattr(group.options, option) == before[name].get(option)
        }
        if taken:
            queue.group(name, create=False).configure(**taken)
