"""unpack_kernel.py VMLINUZ VMLINUX: the kernel inside a compressed x86 image, which is what an
emulated processor starts fastest."""

from __future__ import annotations

import lzma
import struct
import sys
from pathlib import Path

# Of the boot protocol's header.
SECTORS_OF_SETUP = 0x1F1
PAYLOAD = 0x248
SECTOR = 512


def unpack(image: bytes) -> bytes:
    """The ELF file that the image unpacks to."""
    setup = ((image[SECTORS_OF_SETUP] or 4) + 1) * SECTOR
    offset, length = struct.unpack_from("<II", image, PAYLOAD)
    payload = image[setup + offset : setup + offset + length]
    # The stream is followed by its length, which only a decompressor object ignores.
    kernel = lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(payload)
    if kernel[:4] != b"\x7fELF":
        raise SystemExit("this kernel is no ELF file compressed by xz")
    return kernel


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(unpack(Path(sys.argv[1]).read_bytes()))
