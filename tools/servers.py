"""Fetches servers that the benchmarks compare with, as Debian has them, into `build/debian`.

    python -m tools.servers redis nats rabbitmq

Nothing is installed: the packages are unpacked, and `benches/against/servers.py` runs the programs
where they are. Needs `apt-get` and `dpkg-deb`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

UNPACKED = Path(__file__).resolve().parent.parent / "build" / "debian"
ERLANG = (
    "asn1 base crypto eldap ftp inets mnesia os-mon parsetools public-key runtime-tools snmp ssl "
    "syntax-tools tftp tools xmerl"
)
PACKAGES = {
    "redis": ("redis-server", "redis-tools", "liblzf1", "libjemalloc2"),
    "nats": ("nats-server",),
    "rabbitmq": ("rabbitmq-server", *(f"erlang-{name}" for name in ERLANG.split())),
}


def fetch(name: str) -> None:
    """Unpacks a server's packages, once."""
    done = UNPACKED / f".{name}"
    if done.exists():
        return
    packed = UNPACKED / "packages" / name
    packed.mkdir(parents=True, exist_ok=True)
    # Without its own user, who may not write here.
    as_we_are = ["-o", f"APT::Sandbox::User={os.environ.get('USER') or 'root'}"]
    subprocess.run(
        ["apt-get", "-qq", *as_we_are, "download", *PACKAGES[name]], cwd=packed, check=True
    )
    for package in packed.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, UNPACKED], check=True)
    if name == "rabbitmq":
        move_erlang(UNPACKED / "usr" / "lib" / "erlang")
    done.touch()


def move_erlang(root: Path) -> None:
    """Its start script has the place where Debian would have installed it."""
    script = root / "bin" / "erl"
    moved = re.sub(
        r"ROOTDIR=.?/usr/lib/erlang.?$", f"ROOTDIR={root}", script.read_text(), flags=re.M
    )
    script.write_text(re.sub(r"BINDIR=.?/usr/lib/erlang/", "BINDIR=$ROOTDIR/", moved))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.servers", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*PACKAGES, []], help="none: all of them")
    for name in parser.parse_args(arguments).names or PACKAGES:
        fetch(name)
        print(f"{name}: in {UNPACKED}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
