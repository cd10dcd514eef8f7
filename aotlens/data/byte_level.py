"""The byte alphabet of byte-level BPE, and bytes shown as text without losing any.

GPT-2's tokenizer writes each of the 256 bytes as one printable character, so that its vocabulary is plain
text: the 188 bytes that are printable Latin-1 and no space stand for themselves, the other 68 are written as
U+0100, U+0101, … in order (a space is "Ġ", a newline "Ċ").
"""

from __future__ import annotations


def byte_of_character() -> dict[str, int]:
    """Map each of the 256 characters of the byte alphabet to the byte that it stands for."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + rank): byte for rank, byte in enumerate(others)})
    return table


def escape_invalid_utf8(data: bytes) -> str:
    """Decode UTF-8; each byte that belongs to no whole character becomes an escape such as ``<0xE2>``."""
    pieces: list[str] = []
    while data:
        try:
            pieces.append(data.decode("utf-8"))
            break
        except UnicodeDecodeError as error:
            pieces.append(data[: error.start].decode("utf-8"))
            pieces.extend(f"<0x{byte:02X}>" for byte in data[error.start : error.end])
            data = data[error.end :]
    return "".join(pieces)


def require_utf8(text: str, *, what: str = "text") -> None:
    """Raise ValueError, with the position and the remedy, if ``text`` holds a lone surrogate."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} holds a lone surrogate, U+{ord(text[error.start]):04X} at character {error.start}: half "
            "of a character, which has no UTF-8 form. Remove it, or repair the text with "
            "text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')."
        ) from None
