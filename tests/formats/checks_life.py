"""Conformance: opening, closing, dying, forking, travelling, and what a crash leaves."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import ClosedError, CorruptError, ManualClock, NoQueueError, PenstockError, Queue
from penstock.formats.contract import Format
from penstock.formats.past import Past
from penstock.formats.values import End
from penstock.records import replace
from tests.formats.checks import (
    Checks,
    alarm,
    filler,
    put_and_die,
    put_and_wait,
    put_from_handle,
    take_and_ack,
    take_and_wait,
)
from tests.reading import bodies_of
from tests.waiting import LONG_S, often_switching, words_of


class Life(Checks):
    def test_reopening_keeps_everything(self, path: Path) -> None:
        with self.make(path) as queue:
            self.hold(queue)
            put = self.fill(queue, 10)
            first, second, *_ = queue.get_many(3)
            second.ack()
            identity, tail = queue.store.identity, queue.offsets().tail
        with self.reopen(path) as again:
            assert (again.store.format.name, again.store.layout) == (
                self.format,
                queue.store.layout,
            )
            assert again.store.identity == identity
            # Where offsets have gaps, an opening may begin a new segment.
            assert again.offsets().tail == tail or self.can(again).gaps
            assert bodies_of(again.scan()) == put
            assert bodies_of(again.get_many(20)) == [put[0], *put[2:]]
            assert again.stats()["dropped"] == []
            with pytest.raises(PenstockError):
                first.ack()

    def test_what_is_put_lies_above_the_head_whatever_recovery_says(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nobody would read it below the head, and some formats delete what lies there."""
        with self.make(path) as queue:
            self.hold(queue)
            store_format = type(queue.store.format)
        recover = store_format.recover

        def too_far(format: Format, end: End, past: Past) -> End:
            found = recover(format, end, past)
            return replace(found, head=found.tail + 1000)

        with monkeypatch.context() as patch:
            patch.setattr(store_format, "recover", too_far)
            with self.reopen(path) as queue:
                assert queue.offsets().head <= queue.offsets().tail
                put = self.fill(queue, 3)
                assert bodies_of(queue.scan()) == put
        with self.reopen(path) as queue:
            assert bodies_of(queue.scan()) == put

    def test_reopening_many_times_keeps_order(self, path: Path) -> None:
        put = []
        for turn in range(12):
            with self.make(path, durability="process") as queue:
                self.hold(queue)
                put += self.fill(queue, 3, 3 * turn)
        with self.reopen(path) as queue:
            assert bodies_of(queue.scan()) == put
            assert queue.verify().is_ok

    def test_nothing_there_is_an_error_that_says_so(self, path: Path) -> None:
        with pytest.raises(NoQueueError, match="no queue"):
            Queue(path, create=False)
        assert not path.exists()

    def test_a_queue_made_again_is_another_one(self, path: Path) -> None:
        with self.make(path) as queue:
            self.fill(queue, 1)
            before = queue.store.identity
        for part in [path, *path.parent.glob(f"{path.name}.*")]:
            shutil.rmtree(part) if part.is_dir() else part.unlink()
        with self.make(path) as queue:
            assert queue.store.identity != before
            assert list(queue.scan()) == []

    def test_a_closed_queue_says_so(self, queue: Queue) -> None:
        self.fill(queue, 1)
        group = queue.group()
        queue.close()
        queue.close()
        uses: list[Callable[[], object]] = [
            lambda: queue.put(b"x"),
            lambda: queue.put_many([b"x"]),
            lambda: queue.sync(),
            lambda: queue.get(0),
            lambda: group.get(0),
            lambda: list(queue.scan()),
        ]
        for use in uses:
            with pytest.raises(ClosedError):
                use()

    def test_closing_ends_a_blocked_get(self, path: Path) -> None:
        queue = self.make(path)
        ended: list[BaseException | None] = []

        def block() -> None:
            try:
                queue.get()
            except BaseException as error:
                ended.append(error)

        thread = threading.Thread(target=block)
        group = queue.group()
        thread.start()
        while not words_of(queue.store.need_shared())["waiters"]:
            assert thread.is_alive()
        queue.close()
        thread.join(LONG_S)
        assert isinstance(ended[0], ClosedError)
        assert list(group) == []

    def test_threads_that_put_at_once_fill_segment_after_segment(self, path: Path) -> None:
        options = {"durability": "process", "max_bytes": 0}
        with self.make(path, **options) as queue, self.make(path, **options) as other:
            self.hold(queue)
            if not self.has_segments:
                queue.store.format.resize(1 << 20)
            failed: list[BaseException] = []

            def work(opening: Queue, start: int) -> None:
                try:
                    for number in range(start, start + 80):
                        opening.put(filler(number, 500))
                except BaseException as error:
                    failed.append(error)

            openings = [queue, queue, other]
            threads = [
                threading.Thread(target=work, args=(opening, 100 * n))
                for n, opening in enumerate(openings)
            ]
            with often_switching():
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            assert failed == []
            put = {100 * n + number for n in range(len(openings)) for number in range(80)}
            assert {int(message.body[:6]) for message in queue.scan()} == put
            assert queue.verify().is_ok

    def test_ctrl_c_ends_a_blocked_get(self, path: Path) -> None:
        with self.make(path) as queue:
            with pytest.raises(KeyboardInterrupt), alarm(0.05):
                queue.get()
            queue.put(b"still here")
            assert queue.get(0).body == b"still here"

    def test_a_loop_acks_what_it_finished_and_nacks_what_it_did_not(self, queue: Queue) -> None:
        put = self.fill(queue, 3)
        seen = []

        def work() -> None:
            for message in queue.group():
                seen.append(message.body)
                if len(seen) == 2:
                    raise ValueError("enough")

        with pytest.raises(ValueError, match="enough"):
            work()
        assert seen == put[:2]
        left = queue.get_many(9)
        assert bodies_of(left) == put[1:]
        assert [message.receives for message in left] == [2, 1]

    # ── other processes ────────────────────────────────────────────────────────────────────

    def test_what_a_dead_process_put_is_there(self, path: Path) -> None:
        with self.other_process(put_and_die, path, 50, {"durability": "process"}) as other:
            put = other.hear()
            other.end()
        with self.reopen(path) as queue:
            assert bodies_of(queue.scan()) == put
            put += self.fill(queue, 5, 50)
            assert bodies_of(queue.get_many(99)) == put
            assert queue.verify().is_ok

    def test_a_killed_neighbour_disturbs_nobody(self, path: Path) -> None:
        with self.make(path, durability="process") as queue:
            self.hold(queue)
            with self.other_process(put_and_wait, path, 20, 0) as other:
                put = other.hear()
                other.kill()
            put += self.fill(queue, 5, 20)
            assert bodies_of(queue.get_many(99)) == put
            assert queue.verify().is_ok

    def test_two_processes_put_and_get(self, path: Path) -> None:
        with self.make(path, durability="process") as queue:
            self.hold(queue)
            with self.other_process(take_and_ack, path, 300) as other:
                put = self.fill(queue, 300)
                assert other.hear() == put
                assert other.end() == 0
            assert queue.get_many(9) == []

    def test_a_dead_consumer_gives_its_leases_back(self, path: Path) -> None:
        with self.make(path, durability="process") as queue:
            self.hold(queue)
            put = self.fill(queue, 4)
            with self.other_process(take_and_wait, path, 3) as other:
                assert other.hear() == put[:3]
                assert bodies_of(queue.get_many(9)) == put[3:]
                other.kill()
                found = queue.get_many(9, 20)
            assert bodies_of(found) == put[:3]
            assert [message.receives for message in found] == [2, 2, 2]

    def test_a_forked_child_has_an_opening_of_its_own(self, path: Path) -> None:
        with self.make(path, durability="process") as queue:
            self.hold(queue)
            put = self.fill(queue, 1)
            held = queue.get(0)
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    queue.put(b"from the child")
                    code = 0 if queue.get(0).body == b"from the child" else 2
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            held.ack()
            assert bodies_of(queue.scan()) == [*put, b"from the child"]
            assert bodies_of(queue.get_many(9, 20)) == [b"from the child"]

    def test_a_handle_travels_as_its_path(self, path: Path) -> None:
        with self.make(path, durability="process") as queue:
            self.hold(queue)
            self.fill(queue, 1)
            with self.other_process(put_from_handle, queue) as other:
                assert other.hear() == self.format
                assert other.end() == 0
            assert bodies_of(queue.scan())[1] == b"from the other side"
            with pickle.loads(pickle.dumps(queue)) as handle:
                assert handle.path == path

    # ── what a crash leaves ────────────────────────────────────────────────────────────────

    def crashed(self, path: Path) -> tuple[list[bytes], Path, int, int]:
        """A queue whose writer died: bodies, the newest file, where its last frame begins and
        where the frames end."""
        with self.other_process(put_and_die, path, 10, {"durability": "process"}) as other:
            put = other.hear()
            other.end()
        with self.reopen(path, read_only=True) as reader:
            *_, last = reader.scan()
            end = reader.offsets()
            info = reader.store.segments()[-1]
            segment = reader.store.format.open_segment(info, writable=False)
            return put, info.path, segment.position(last.offset or 0), segment.position(end.tail)

    def test_a_reader_stays_while_a_writer_dies_and_another_one_comes(self, path: Path) -> None:
        with self.make(path) as queue:
            put = self.fill(queue, 3)
        self.reopen(path).store.drop()  # It died before it had put anything.
        with self.reopen(path, read_only=True) as reader:
            assert bodies_of(reader.scan()) == put
            with self.reopen(path) as queue:
                assert bodies_of(reader.scan()) == put
                put += self.fill(queue, 3, 3)
                assert bodies_of(reader.scan()) == put
            assert bodies_of(reader.scan()) == put

    def test_garbage_behind_the_end_is_no_message(self, path: Path, clock: ManualClock) -> None:
        put, file, _, end = self.crashed(path)
        with file.open("r+b") as stream:
            stream.seek(end)
            stream.write(b"\x31" * 300)
        with self.reopen(path, clock=clock) as queue:
            assert bodies_of(queue.scan()) == put
            put += self.fill(queue, 30, 10)
        clock.restart()
        with self.reopen(path, clock=clock) as again:
            assert bodies_of(again.scan()) == put
            assert again.verify().is_ok

    def test_a_last_frame_that_never_reached_the_disk_is_not_wrong_and_not_hidden(
        self, path: Path, clock: ManualClock
    ) -> None:
        put, file, start, end = self.crashed(path)
        with file.open("r+b") as stream:
            stream.seek((start + end) // 2)
            stream.write(bytes(end - (start + end) // 2))
        with self.reopen(path, clock=clock) as queue:
            found = []
            with (
                pytest.raises(CorruptError)
                if queue.offsets().tail == end
                else contextlib.nullcontext()
            ):
                found.extend(bodies_of(queue.scan()))
            assert queue.store.dropped or not queue.verify().is_ok or found == put
            scan = queue.scan(tolerant=True)
            assert bodies_of(scan) in (put[:-1], put)
            self.fill(queue, 1, 99)
        with self.reopen(path, clock=clock) as again:
            kept = bodies_of(again.scan(tolerant=True))
            assert kept[: len(put) - 1] == put[:-1]
            assert kept[-1] == b"message 000099"
