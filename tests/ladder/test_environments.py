"""Every format in every surroundings: what a queue promises does not depend on who opens it, where.

One neighbour lives on the plain machine, the other in a container, under another user, in a fork,
frozen, or rung out of its calls by signals. Afterwards everything that either put is there.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import signal
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.ladder import means
from tests.ladder.actor import Actor, Failed, Hangs
from tests.ladder.means import MEMORY, NotRun

pytestmark = pytest.mark.crash
FORMATS: dict[str, dict[str, Any]] = {
    "penstock": {"format": "penstock", "segment_bytes": 65536},
    "zbus": {"format": "zbus", "segment_bytes": 65536},
    "beats": {"format": "beats", "segment_bytes": 65536},
    "vqs": {"format": "vqs", "max_bytes": 4 << 20},
    "mfq": {"format": "mfq", "segment_bytes": 65536},
}
NOBODY = 65534
BOOT = "/proc/sys/kernel/random/boot_id"


class Scene:
    """A queue of one format, and the actors on it."""

    def __init__(self, folder: Path, format: str, stack: ExitStack) -> None:
        self.folder, self.format, self.stack = folder, format, stack
        self.path = folder / ("q.bin" if format == "vqs" else "q")
        self.options = FORMATS[format] | {"durability": "interval"}

    @property
    def sidecar(self) -> Path:
        beside = Path(f"{self.path}.penstock")
        return beside if self.format == "vqs" else self.path / ".penstock"

    def actor(self, *wrapper: str, setup: str = "") -> Actor:
        return self.stack.enter_context(Actor(*wrapper, setup=setup))

    def opener(self, *wrapper: str, setup: str = "", **options: Any) -> Actor:
        actor = self.actor(*wrapper, setup=setup)
        actor.open(path=str(self.path), **(self.options | options))
        return actor

    def check(self, *wanted: tuple[str, int]) -> None:
        """All messages of each sender, in its order, and nothing damaged."""
        last = self.opener()
        assert last.verify() == []
        there = last.scan()
        for name, count in wanted:
            mine = [body for body in there if body.startswith(f"{name}-")]
            # Some formats keep nothing that every group is done with: at most three messages here.
            is_done_with = self.format in ("vqs", "beats") and count - len(mine) <= 3
            first = count - len(mine) if is_done_with else 0
            assert mine == [f"{name}-{number:06d}" for number in range(first, count)], (
                f"{name}: {len(mine)} of {count}"
            )


def beside(scene: Scene, *wrapper: str, setup: str = "") -> None:
    """One writes here, and while it does the other comes, writes and goes there."""
    here = scene.opener()
    here.put(name="here", first=0, count=100)
    put = 100
    for turn in range(3):
        here.tell("put", name="here", first=put, count=800)
        there = scene.opener(*wrapper, setup=setup)
        there.put(name=f"there{turn}", first=0, count=50)
        put += here.answer()
        there.put(name=f"there{turn}", first=50, count=50)
        there.close()
    here.close()
    scene.check(("here", put), *((f"there{turn}", 100) for turn in range(3)))


def other_boot_id(scene: Scene) -> None:
    means.need_namespaces("-m")
    boot = scene.folder / "boot_id"
    boot.write_text("11111111-2222-4333-8444-555555555555\n")
    beside(scene, "unshare", "-m", setup=f"mount --bind {boot} {BOOT}")


def hidden_proc(scene: Scene) -> None:
    """As systemd's ProcSubset=pid leaves it."""
    means.need_namespaces("-m")
    beside(scene, "unshare", "-m", setup="mount -t proc -o subset=pid proc /proc")


def other_mounts(scene: Scene) -> None:
    """The same folder under another path."""
    means.need_namespaces("-m")
    beside(scene, "unshare", "-m", setup="mount -t tmpfs none /mnt")


def same_pid(scene: Scene) -> None:
    """Two containers, the same pid and the same addresses in both."""
    means.need_namespaces("--pid", "--fork", "--mount-proc")
    means.need_programs("setarch")
    wrapper = ("unshare", "--pid", "--fork", "--mount-proc", "setarch", "-R")
    one, two = (scene.opener(*wrapper) for _ in range(2))
    assert one.pid == two.pid
    for turn in range(8):
        for name, actor in (("one", one), ("two", two)):
            actor.tell("put", name=name, first=turn * 20, count=20, size=3000)
        assert one.answer() == two.answer() == 20
    one.close()
    two.close()
    scene.check(("one", 160), ("two", 160))


def other_time(scene: Scene, shift: str) -> None:
    """Boot time differs, the boot id does not: a lease holds all the same."""
    means.need_namespaces("-T", "--boottime", shift)
    here = scene.opener()
    here.put(name="once", first=0, count=1)
    assert here.get(visibility_s=3600.0, ack=False) == ["once-000000"]
    there = scene.opener("unshare", "-T", "--boottime", shift)
    assert there.get(timeout=0.3) == []
    assert here.ack() == 1
    assert there.get() == []


def root_and_owner(scene: Scene) -> None:
    """One run by root among many of the owner's."""
    means.need_root()
    scene.folder.chmod(0o777)
    owner, root = scene.actor(), scene.opener
    owner.become(user=NOBODY)
    owner.open(path=str(scene.path), **scene.options)
    owner.put(name="owner", first=0, count=40, size=500)
    assert owner.get(group="g") == ["owner-000000"]
    owner.close()
    once = root()
    once.put(name="root", first=0, count=300, size=500)
    assert once.get(group="g") == ["owner-000001"]
    assert len(once.get(group="h")) == 1
    once.close()
    owner.open(path=str(scene.path), **scene.options)
    owner.put(name="owner", first=40, count=300, size=500)
    assert owner.get(group="g") == ["owner-000002"]
    assert len(owner.get(group="h")) == 1
    owner.close()
    scene.check(("owner", 340), ("root", 300))


def other_umask(scene: Scene, umask: int) -> None:
    """Rights do not depend on it: the owner can go on, others see nothing."""
    means.need_root()
    scene.folder.chmod(0o777)
    for turn in range(2):
        owner = scene.actor()
        owner.become(user=NOBODY, umask=umask)
        owner.open(path=str(scene.path), **scene.options)
        owner.put(name=f"turn{turn}", first=0, count=60, size=3000)
        assert owner.get() == [f"turn0-{turn:06d}"]
        owner.close()
    made = [scene.path, *scene.path.rglob("*"), *scene.folder.glob("*.penstock/**/*")]
    for path in made:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert not mode & 0o022, f"{path} can be written by others: {mode:o}"
        assert mode & 0o600 == 0o600, f"{path} can't be used by its owner: {mode:o}"


def forked(scene: Scene) -> None:
    """A bound put over a fork, whose child is killed in it, harms nobody."""
    here = scene.opener(durability="process")
    here.put(name="here", first=0, count=10)
    here.put_in_a_child_that_dies(tries=25)
    here.put(name="here", first=10, count=10)
    other = scene.opener()
    other.put(name="other", first=0, count=10)
    other.close()
    here.close()
    scene.check(("here", 20), ("other", 10))


def forked_while_opening(scene: Scene) -> None:
    """A child that was forked while another thread opened the queue keeps nothing of its parent."""
    first = scene.opener()
    first.put(name="job", first=0, count=1)
    first.close()
    lock = os.open(scene.sidecar / "lock", os.O_RDWR)
    held = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    fcntl.fcntl(lock, fcntl.F_OFD_SETLKW, held)  # Someone else is opening it, slowly.
    parent = scene.actor()
    parent.open_in_a_thread(path=str(scene.path), **scene.options)
    child = parent.fork_a_child()
    try:
        os.close(lock)
        parent.join()
        assert parent.get(visibility_s=3600.0, ack=False) == ["job-000000"]
        parent.process.kill()
        parent.process.wait()
        assert scene.opener().get(timeout=5.0) == ["job-000000"]
    finally:
        os.kill(child, signal.SIGKILL)


def executed(scene: Scene) -> None:
    """Who becomes another program gives back what it held."""
    here = scene.opener()
    here.put(name="job", first=0, count=2)
    assert here.get(visibility_s=3600.0, ack=False) == ["job-000000"]
    here.exec()
    other = scene.opener()
    taken = other.get(count=2, timeout=10.0)
    if len(taken) < 2:
        taken += other.get(timeout=10.0)
    assert sorted(taken) == ["job-000000", "job-000001"]
    other.put(name="other", first=0, count=10)
    other.close()
    scene.check(("other", 10))


def rung_by_signals(scene: Scene) -> None:
    """An exception at any instant of any call leaves no lock behind."""
    here = scene.opener(durability="process")
    found = here.interrupted(rounds=400, seed=7)
    assert found["rings"] > 20, "the alarm never rang inside a call"
    other = scene.opener()
    other.put(name="other", first=0, count=10, size=3000)
    other.close()
    here.put(name="here", first=0, count=10)
    here.close()
    scene.check(("other", 10), ("here", 10))


def frozen(scene: Scene) -> None:
    """Beside a frozen holder of the lock everyone can be ended, and goes on when it thaws."""
    holder = scene.opener(durability="process")
    other = scene.opener()
    holder.put_for_ever()
    held = lock_word(scene)
    for _ in range(3000):
        os.kill(holder.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, holder.process.pid, os.WSTOPPED | os.WNOWAIT)
        if held():
            break
        os.kill(holder.pid, signal.SIGCONT)
    else:
        pytest.skip("it was never frozen with the lock in hand")
    for call in ("put", "close"):
        known = {"name": "other", "first": 0, "count": 1} if call == "put" else {}
        other.tell(call, **known)
        with pytest.raises(Hangs):
            other.answer(0.3)
        end(other)
    os.kill(holder.pid, signal.SIGCONT)
    scene.opener().put(name="after", first=0, count=1)


def end(actor: Actor) -> None:
    """One Ctrl-C ends whatever it waits in."""
    for _ in range(10):
        os.kill(actor.pid, signal.SIGINT)
        try:
            actor.answer(1.0)
        except Hangs:
            continue
        except Failed:
            pass
        return
    raise Hangs("ten times Ctrl-C, and it still waits")


def lock_word(scene: Scene) -> Callable[[], int]:
    control = scene.sidecar / "control"
    return lambda: int.from_bytes(control.read_bytes()[16:20], "little")


ENVIRONMENTS: dict[str, Callable[[Scene], None]] = {
    "other boot id": other_boot_id,
    "hidden proc": hidden_proc,
    "other mounts": other_mounts,
    "same pid": same_pid,
    "later boot time": lambda scene: other_time(scene, "100000"),
    "earlier boot time": lambda scene: other_time(scene, "-300"),
    "root and owner": root_and_owner,
    "umask 000": lambda scene: other_umask(scene, 0),
    "umask 777": lambda scene: other_umask(scene, 0o777),
    "fork": forked,
    "fork while opening": forked_while_opening,
    "exec": executed,
    "signals": rung_by_signals,
    "frozen": frozen,
}
BY_CHANCE = {"signals", "frozen"}
"""What they show depends on the instant that is hit: a busy machine hits too few."""


def cells() -> list[Any]:
    found = []
    for environment, format in itertools.product(ENVIRONMENTS, FORMATS):
        marks: list[pytest.MarkDecorator] = []
        if environment in BY_CHANCE:
            marks.append(pytest.mark.slow)
        name = f"{environment.replace(' ', '-')}-{format}"
        found.append(pytest.param(environment, format, marks=marks, id=name))
    return found


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


@pytest.fixture
def folder() -> Iterator[Path]:
    path = MEMORY / f"penstock-environments-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize(("environment", "format"), cells())
def test_a_queue_keeps_its_promises_in_every_environment(
    folder: Path, stack: ExitStack, environment: str, format: str
) -> None:
    try:
        ENVIRONMENTS[environment](Scene(folder, format, stack))
    except NotRun as missing:
        pytest.skip(str(missing))
