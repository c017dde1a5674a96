"""`Path`, as the standard library has it, for what every opening of a queue loads.

`pathlib` loads the regular expressions, the parser of URLs and the addresses of the internet: a
quarter of the work from `import penstock` to a queue that is open. What an opening asks of a path
is to join names, to take them apart and to look at files. A `Path` of this module answers that by
its text. For anything else it makes the path of the standard library and asks that one. So it is
one, from outside: equal to it, hashed and pickled as it is, and an instance of its class.
"""

# Checkers and readers see the standard library's: nothing here has a type, or a docstring, of its
# own. What is asked for instead of `os` is what this module stands in for.
# ruff: noqa: ANN001, ANN002, ANN201, ANN202, ANN204, D102, PTH109, PTH116, PTH118, PTH208

from __future__ import annotations

import errno
import os
import stat

from penstock.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path as Path
else:
    NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)
    ROOTS = ("/", "//")

    def _plain(text):
        """Without what does not change where the path leads, as `pathlib` writes it."""
        root = ""
        if text.startswith("/"):
            root = "//" if text.startswith("//") and not text.startswith("///") else "/"
        return root + "/".join([name for name in text.split("/") if name not in ("", ".")]) or "."

    def _of(text):
        """The path with this text, which is plain already."""
        made = object.__new__(Path)
        made._text = text
        return made

    class Path:
        """A path that is its text, until more is asked of it."""

        __slots__ = ("_text",)

        def __init__(self, *parts):
            self._text = _plain(os.path.join("", *map(os.fspath, parts)))

        def _standard(self):
            import pathlib

            return pathlib.Path(self._text)

        def __getattr__(self, name):
            return getattr(self._standard(), name)

        @property
        def __class__(self):
            import pathlib

            return pathlib.PosixPath

        def __fspath__(self):
            return self._text

        __str__ = __fspath__

        def __bytes__(self):
            return os.fsencode(self._text)

        def __repr__(self):
            return f"PosixPath({self._text!r})"

        def __reduce__(self):
            return type(self._standard()), (self._text,)

        def __hash__(self):
            return hash(self._standard())

        def __eq__(self, other):
            if type(other) is Path:
                return self._text == other._text
            return self._standard() == other if hasattr(other, "__fspath__") else NotImplemented

        def __lt__(self, other):
            return self._standard() < other

        def __le__(self, other):
            return self._standard() <= other

        def __gt__(self, other):
            return self._standard() > other

        def __ge__(self, other):
            return self._standard() >= other

        def __truediv__(self, other):
            try:
                name = os.fspath(other)
            except TypeError:
                return NotImplemented
            if "/" in name or name in ("", ".") or self._text in (".", *ROOTS):
                return Path(self, name)
            return _of(f"{self._text}/{name}")

        def __rtruediv__(self, other):
            return Path(other, self)

        def joinpath(self, *others):
            return Path(self, *others)

        @property
        def name(self):
            return "" if self._text == "." else self._text.rpartition("/")[2]

        @property
        def stem(self):
            name = self.name
            if name.endswith("."):  # Pythons differ about these.
                return self._standard().stem
            before, _, ending = name.rpartition(".")
            return before or name if ending else name

        @property
        def parent(self):
            above, slash, _ = self._text.rpartition("/")
            if not slash:
                return _of(".")
            return _of(above if above not in ("", "/") else above + "/")

        def is_absolute(self):
            return self._text.startswith("/")

        def absolute(self):
            return self if self.is_absolute() else Path(os.getcwd(), self)

        def expanduser(self):
            return self._standard().expanduser() if self._text.startswith("~") else self

        def stat(self, *, follow_symlinks=True):
            return os.stat(self._text, follow_symlinks=follow_symlinks)

        def _kind(self, follow_symlinks=True):
            """What is there, by its mode; 0: nothing."""
            try:
                return os.stat(self._text, follow_symlinks=follow_symlinks).st_mode
            except OSError as error:
                if error.errno in NOTHING_THERE:
                    return 0
                raise
            except ValueError:
                return 0

        def exists(self):
            return self._kind() != 0

        def is_dir(self):
            return stat.S_ISDIR(self._kind())

        def is_file(self):
            return stat.S_ISREG(self._kind())

        def is_symlink(self):
            return stat.S_ISLNK(self._kind(follow_symlinks=False))

        def iterdir(self):
            for name in os.listdir(self._text):
                yield self / name
