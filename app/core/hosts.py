"""Names and addresses by which browsers address a server: which are this machine's own, which have the right form."""

from __future__ import annotations

import re
from ipaddress import ip_address

#: Names of this machine that mean the same on every machine, as browsers write them.
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
#: The hosts that stand for every address that the machine has, to listen on.
WILDCARDS = ("0.0.0.0", "::", "")

_NAME = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*", re.ASCII | re.I
)
_HOST = re.compile(r"(?P<name>[\w.-]+|\[[0-9a-fA-F:.]+\])(:\d{1,5})?", re.ASCII)


def named(header: str) -> str | None:
    """Return the name of a Host header, in lower case and without its port; None where it has no form that a host can
    have."""
    match = _HOST.fullmatch(header)
    return match.group("name").lower() if match else None


def is_address(name: str) -> bool:
    """Return whether a host is an address, IPv4 or [IPv6], rather than a name that somebody may let point anywhere."""
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether what listens on a host can be reached from this machine only."""
    bare = host.strip("[]")
    return bare == "localhost" or (is_address(bare) and ip_address(bare).is_loopback)


def checked_name(name: str) -> str:
    """Return a name as a Host header may have it. Raises ValueError, with the right form, for what no header
    can have."""
    if is_address(name):
        bare = name.strip("[]")
        return f"[{bare}]" if ":" in bare else bare
    if _NAME.fullmatch(name):
        return name.lower()
    inside = re.search(r"^(?:[a-z]+://)?(?:\*\.)?([a-z0-9_.-]+|\[[0-9a-f:.]+\])(?:[:/].*)?$", name, re.ASCII | re.I)
    guess = inside.group(1) if inside else ""
    example = guess if _NAME.fullmatch(guess) or is_address(guess) else "lens.example.org"
    raise ValueError(
        f"expected the name alone by which browsers address the server, with no scheme, port, path or *, such as "
        f"{example}; got {name!r}. Give each name with an option of its own."
    )
