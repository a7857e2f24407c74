#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the unique symbols (STB_GNU_UNIQUE) of an ELF64 relocatable object ordinary global ones, in place.

    no_unique_symbols.py OBJECT

objcopy's --keep-global-symbols leaves unique ones as they are, and the dynamic linker would join those of Protobuf with the
ones that LibTorch has of another version. Format: System V ABI, "Symbol Table"; binding 10 is GNU's.
"""

import struct
import sys

SYMTAB = 2
UNIQUE, GLOBAL = 10, 1
SYMBOL_BYTES = 24


def main(path):
    with open(path, "r+b") as file:
        header = file.read(64)
        if header[:6] != b"\x7fELF\x02\x01":
            sys.exit(f"{path} is no 64-bit little-endian ELF file")
        offset, entry_bytes, count = struct.unpack_from("<Q", header, 40)[0], *struct.unpack_from("<HH", header, 58)
        file.seek(offset)
        sections = file.read(entry_bytes * count)
        for i in range(count):
            kind = struct.unpack_from("<I", sections, i * entry_bytes + 4)[0]
            if kind != SYMTAB:
                continue
            begin, size = struct.unpack_from("<QQ", sections, i * entry_bytes + 24)
            file.seek(begin)
            table = bytearray(file.read(size))
            for info in range(4, size, SYMBOL_BYTES):
                if table[info] >> 4 == UNIQUE:
                    table[info] = GLOBAL << 4 | table[info] & 15
            file.seek(begin)
            file.write(table)


if __name__ == "__main__":
    main(sys.argv[1])
