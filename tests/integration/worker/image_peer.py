# SPDX-License-Identifier: Apache-2.0
"""The other side of image_decoder_test.cc: writes pictures into a folder, and beside each NAME.png or NAME.jpg its pixels
as Pillow sees them (NAME.rgb: three bytes a pixel). The PNG files are of PngSuite's kinds (http://www.schaik.com/pngsuite).
Where torchvision is installed, its pixels must be the same. Files of other kinds are NAME.damaged."""

import importlib.util
import io
import itertools
import pathlib
import random
import struct
import sys
import zlib

import numpy
from PIL import Image

GREY, COLOURS, PALETTE, GREY_ALPHA, COLOURS_ALPHA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, COLOURS: 3, PALETTE: 1, GREY_ALPHA: 2, COLOURS_ALPHA: 4}
DEPTHS = {GREY: (1, 2, 4, 8, 16), COLOURS: (8, 16), PALETTE: (1, 2, 4, 8), GREY_ALPHA: (8, 16), COLOURS_ALPHA: (8, 16)}
NAMES = {GREY: "grey", COLOURS: "rgb", PALETTE: "palette", GREY_ALPHA: "grey-alpha", COLOURS_ALPHA: "rgba"}
WHOLE = [(0, 0, 1, 1)]
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(name, data=b""):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def packed(row, depth):
    """The bytes of one row of samples."""
    if depth == 16:
        return row.astype(">u2").tobytes()
    bits = numpy.unpackbits(row.astype(numpy.uint8).reshape(-1, 1), axis=1)[:, 8 - depth :]
    return numpy.packbits(bits.reshape(-1)).tobytes()


def paeth(left, up, corner):
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))  # the first of equals


def filtered(kind, row, above, step):
    out = bytearray([kind])
    for i, byte in enumerate(row):
        left, corner = (row[i - step], above[i - step]) if i >= step else (0, 0)
        guess = (0, left, above[i], (left + above[i]) // 2, paeth(left, above[i], corner))[kind]
        out.append((byte - guess) % 256)
    return bytes(out)


def png(samples, colours, depth, *, before=b"", passes=WHOLE, filters=(0,), level=6, parts=1):
    """A file of height x width x channels samples; `before` are the chunks before the pixels, PLTE among them."""
    rows = b""
    step = max(1, CHANNELS[colours] * depth // 8)
    kinds = itertools.cycle(filters)
    for x, y, across, down in passes:
        part = samples[y::down, x::across]
        if part.shape[1] == 0:
            continue
        above = bytes(len(packed(part[0].reshape(-1), depth))) if len(part) else b""
        for row in part:
            data = packed(row.reshape(-1), depth)
            rows += filtered(next(kinds), data, above, step)
            above = data
    height, width = samples.shape[:2]
    data = zlib.compress(rows, level)
    size = -(-len(data) // parts)
    header = struct.pack(">IIBBBBB", width, height, depth, colours, 0, 0, 0 if passes is WHOLE else 1)
    body = b"".join(chunk(b"IDAT", data[i : i + size]) for i in range(0, len(data), size))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + body + chunk(b"IEND")


class Corpus:
    def __init__(self, folder):
        self.folder = folder
        self.numbers = numpy.random.RandomState(1)
        self.palette = self.numbers.randint(0, 256, (256, 3)).astype(numpy.uint8)

    def samples(self, colours, depth, size=(13, 11)):
        return self.numbers.randint(0, 2**depth, (*size, CHANNELS[colours])).astype(numpy.uint16)

    def pixels(self, samples, colours, depth):
        """Red, green and blue bytes: the upper eight bits of 16, no gamma, no transparency."""
        if colours == PALETTE:
            return self.palette[samples[:, :, 0]]
        eight = samples >> 8 if depth == 16 else samples * (255 // (2**depth - 1))
        eight = eight.astype(numpy.uint8)
        return eight[:, :, :3] if colours in (COLOURS, COLOURS_ALPHA) else eight[:, :, [0, 0, 0]]

    def add(self, name, colours, depth, *, size=(13, 11), before=(), after_palette=(), **options):
        samples = self.samples(colours, depth, size)
        palette = [chunk(b"PLTE", self.palette[: 2**depth].tobytes())] if colours == PALETTE else []
        file = png(samples, colours, depth, before=b"".join([*before, *palette, *after_palette]), **options)
        expected = self.pixels(samples, colours, depth)
        if (colours, depth) != (GREY, 16):  # Pillow cuts those off at 255 instead
            assert numpy.array_equal(pillow(file), expected), name
        self.write(f"{name}.png", file, expected)

    def write(self, name, file, expected):
        if name.endswith((".jpg", ".png")) and importlib.util.find_spec("torchvision"):
            assert numpy.array_equal(torchvisions(file), expected), name
        path = self.folder / name
        path.write_bytes(file)
        path.with_suffix(".rgb").write_bytes(expected.tobytes())


def pillow(file):
    return numpy.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


def torchvisions(file):
    import torch
    from torchvision.io import ImageReadMode, decode_image
    from torchvision.transforms.v2.functional import to_dtype

    image = decode_image(torch.frombuffer(bytearray(file), dtype=torch.uint8), ImageReadMode.RGB)
    return to_dtype(image, torch.uint8, scale=True).permute(1, 2, 0).numpy()


def ancillary(colours, depth):
    """Chunks on which the pixels must not depend, by name."""
    gammas = {f"gamma-{gamma}": [chunk(b"gAMA", struct.pack(">I", gamma))] for gamma in (35000, 45455, 100000, 250000)}
    whites = struct.pack(">8I", 31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000)
    significant = 3 if colours == PALETTE else CHANNELS[colours]
    return gammas | {
        "chromaticities": [*gammas["gamma-35000"], chunk(b"cHRM", whites)],
        "srgb": [*gammas["gamma-45455"], chunk(b"sRGB", b"\0")],
        "profile": [chunk(b"iCCP", b"no profile\0\0" + zlib.compress(bytes(200)))],
        "significant-bits": [chunk(b"sBIT", bytes([min(depth, 5)] * significant))],
        "texts": [chunk(b"tEXt", b"Title\0a title"), chunk(b"zTXt", b"Comment\0\0" + zlib.compress(b"much" * 1000))],
        "sizes": [chunk(b"pHYs", struct.pack(">IIB", 1, 4, 0)), chunk(b"tIME", struct.pack(">HBBBBB", 2000, 1, 1, 0, 0, 0))],
    }


def background(colours):
    """A colour that a viewer may show through transparency."""
    if colours == PALETTE:
        return chunk(b"bKGD", b"\1")
    values = [1] if colours in (GREY, GREY_ALPHA) else [1, 1, 1]
    return chunk(b"bKGD", struct.pack(f">{len(values)}H", *values))


def write_pngs(corpus):
    for colours, name in NAMES.items():
        for depth in DEPTHS[colours]:
            kind = f"{name}-{depth}"
            corpus.add(kind, colours, depth)
            corpus.add(f"{kind}-interlaced", colours, depth, passes=ADAM7)
            for more, chunks in ancillary(colours, depth).items():
                corpus.add(f"{kind}-{more}", colours, depth, before=chunks)
            gamma = chunk(b"gAMA", struct.pack(">I", 100000))
            corpus.add(f"{kind}-background", colours, depth, before=[gamma], after_palette=[background(colours)])
    for side in (*range(1, 10), 32, 40):
        corpus.add(f"side-{side}", PALETTE, 4, size=(side, side))
        corpus.add(f"side-{side}-interlaced", PALETTE, 4, size=(side, side), passes=ADAM7)
    for kind in range(5):
        corpus.add(f"filter-{kind}", COLOURS, 8, filters=[kind])
        corpus.add(f"filter-{kind}-grey", GREY, 8, filters=[kind])
    corpus.add("filters", COLOURS, 16, filters=range(5))
    corpus.add("filters-interlaced", GREY_ALPHA, 16, filters=range(5), passes=ADAM7)
    for level in (0, 1, 9):
        corpus.add(f"compression-{level}", COLOURS, 8, level=level)
    for parts in (2, 4, 1000):
        corpus.add(f"parts-{parts}", COLOURS, 16, parts=parts)
    transparent = {GREY: struct.pack(">H", 1), COLOURS: struct.pack(">HHH", 1, 2, 3), PALETTE: bytes([0, 128])}
    for colours, values in transparent.items():
        for depth in DEPTHS[colours]:
            chunks = [chunk(b"tRNS", values)]
            corpus.add(f"transparent-{NAMES[colours]}-{depth}", colours, depth, after_palette=chunks)
            chunks.append(background(colours))
            corpus.add(f"transparent-{NAMES[colours]}-{depth}-background", colours, depth, after_palette=chunks)
    corpus.add("suggested-palette", COLOURS, 8, before=[chunk(b"PLTE", bytes(30)), chunk(b"hIST", bytes(20))])


def write_damaged_pngs(folder):
    """As PngSuite's x*.png: not one may be taken for an image."""
    samples = numpy.zeros((4, 4, 1), numpy.uint16)
    good = png(samples, GREY, 8)
    data = good.index(b"IDAT")

    def with_header(**fields):
        values = {"width": 4, "height": 4, "depth": 8, "colours": 0, "compression": 0, "filters": 0, "interlaced": 0} | fields
        return good[:8] + chunk(b"IHDR", struct.pack(">IIBBBBB", *values.values())) + good[33:]

    damaged = {
        **{f"colours-{kind}": with_header(colours=kind) for kind in (1, 5, 9)},
        **{f"depth-{depth}": with_header(depth=depth) for depth in (0, 3, 99)},
        "no-width": with_header(width=0),
        "compression": with_header(compression=1),
        "interlace": with_header(interlaced=9),
        "no-palette": with_header(colours=PALETTE),
        "header-sum": good[:29] + bytes(4) + good[33:],
        "data-sum": good[: good.index(b"IEND") - 8] + bytes(4) + good[good.index(b"IEND") - 4 :],
        "no-data": good[: data - 4] + chunk(b"IEND"),
        "newlines": good.replace(b"\r\n", b"\n"),
        "too-few-rows": with_header(height=9),
    }
    for name, file in damaged.items():
        (folder / f"{name}.damaged").write_bytes(file)


def write_jpegs(corpus):
    """Smooth and sharp parts; a CMYK image with and without the marker by which Adobe's programs are told."""
    numbers = random.Random(1)
    blocks = numpy.array([[[numbers.randrange(256) for _ in range(4)] for _ in range(7)] for _ in range(5)], numpy.uint8)
    picture = blocks.repeat(9, axis=0).repeat(9, axis=1)
    kinds = {
        "grey": ("L", {}),
        "rgb": ("RGB", {"subsampling": 0}),
        "rgb-halved": ("RGB", {"subsampling": 1}),
        "rgb-quartered": ("RGB", {"subsampling": 2}),
        "rgb-progressive": ("RGB", {"progressive": True}),
        "rgb-kept": ("RGB", {"keep_rgb": True}),
        "rgb-rotated": ("RGB", {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"}),
        "cmyk": ("CMYK", {}),
    }
    for name, (mode, options) in kinds.items():
        height, width = picture.shape[:2]
        file = io.BytesIO()
        Image.frombytes(mode, (width, height), picture[:, :, : len(mode)].tobytes()).save(file, "JPEG", quality=92, **options)
        data = file.getvalue()
        corpus.write(f"{name}.jpg", data, pillow(data))
        if mode == "CMYK":
            marker = data.index(b"\xff\xee")
            size = int.from_bytes(data[marker + 2 : marker + 4], "big")
            data = data[:marker] + data[marker + 2 + size :]
            corpus.write(f"{name}-unmarked.jpg", data, pillow(data))


def saved(mode, pixels, kind, **options):
    file = io.BytesIO()
    Image.fromarray(pixels, mode).save(file, kind, **options)
    return file.getvalue()


def write_netpbm(corpus):
    """PPM and PGM: from Pillow, and with other largest samples, as text, and with comments."""
    rgb = corpus.samples(COLOURS, 8)[:, :, :3].astype(numpy.uint8)
    grey = rgb[:, :, 0]
    height, width = grey.shape
    files = {"pillow.ppm": saved("RGB", rgb, "PPM"), "pillow-grey.pgm": saved("L", grey, "PPM")}
    for most in (1, 3, 100, 254, 255, 300, 1023, 65535):
        samples = corpus.numbers.randint(0, most + 1, (height, width, 3))
        data = samples.astype(">u2" if most > 255 else ">u1")
        text = b"\n".join(b" ".join(b"%d" % value for value in row.reshape(-1)) for row in samples)
        files[f"binary-{most}.ppm"] = b"P6 %d %d\n# a comment\n%d\n" % (width, height, most) + data.tobytes()
        files[f"text-{most}.ppm"] = b"P3\n#c\n%d %d #d\n%d\n" % (width, height, most) + text
        if most < 256:  # Pillow cuts a grey image with more off at 255
            files[f"binary-{most}-grey.pgm"] = b"P5 %d %d %d " % (width, height, most) + data[:, :, 0].tobytes()
            grey_text = b" ".join(b"%d" % value for value in samples[:, :, 0].reshape(-1))
            files[f"text-{most}-grey.pgm"] = b"P2 %d %d %d " % (width, height, most) + grey_text
    for name, file in files.items():
        corpus.write(f"netpbm-{name}", file, pillow(file))


def bitmap(width, height, bits, rows, *, header=40, palette=b"", masks=b"", compression=0, colours=0):
    if header == 12:
        fields = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        fields = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, compression, len(rows), 0, 0, colours, 0)
        fields += masks[: header - 40] + bytes(header - 40 - len(masks[: header - 40]))
        fields += masks if header == 40 else b""
    offset = 14 + len(fields) + len(palette)
    return struct.pack("<2sIHHI", b"BM", offset + len(rows), 0, 0, offset) + fields + palette + rows


def write_bitmaps(corpus):
    """BMP of all depths, from the top and from the bottom, with masks and with headers of several lengths."""
    numbers = corpus.numbers
    files = {f"pillow-{mode}": saved(mode, numbers.randint(0, 256, shape).astype(numpy.uint8), "BMP")
             for mode, shape in {"L": (9, 7), "RGB": (9, 7, 3), "RGBA": (9, 7, 4)}.items()}
    one = Image.fromarray(numbers.randint(0, 256, (9, 7)).astype(numpy.uint8), "L").convert("1")
    files["pillow-1"] = (data := io.BytesIO(), one.save(data, "BMP"))[0].getvalue()
    width, height = 7, 5
    for bits in (1, 4, 8, 16, 24, 32):
        rows = numbers.bytes((width * bits + 31) // 32 * 4 * height)
        palette = numbers.bytes(4 << bits) if bits <= 8 else b""
        files[f"{bits}"] = bitmap(width, height, bits, rows, palette=palette)
        files[f"{bits}-down"] = bitmap(width, -height, bits, rows, palette=palette)
        if bits not in (16, 32):  # which OS/2 has not
            old = b"".join(palette[i : i + 3] for i in range(0, len(palette), 4))
            files[f"{bits}-old"] = bitmap(width, height, bits, rows, header=12, palette=old)
    masked = {
        "565": (16, (0xF800, 0x7E0, 0x1F)),
        "555": (16, (0x7C00, 0x3E0, 0x1F)),
        "bgrx": (32, (0xFF0000, 0xFF00, 0xFF)),
        "rgba": (32, (0xFF, 0xFF00, 0xFF0000, 0xFF000000)),
    }
    for name, (bits, masks) in masked.items():
        rows = numbers.bytes((width * bits + 31) // 32 * 4 * height)
        packed_masks = struct.pack(f"<{len(masks)}I", *masks)
        for header in (40, 56, 108, 124) if len(masks) == 3 else (56, 108, 124):
            files[f"{name}-{header}"] = bitmap(width, height, bits, rows, header=header, masks=packed_masks, compression=3)
    for name, file in files.items():
        corpus.write(f"bitmap-{name}.bmp", file, pillow(file))
    few = bitmap(width, height, 8, bytes(8 * height), palette=numbers.bytes(4 * 10), colours=10)
    corpus.write("bitmap-few-colours.bmp", few, pillow(few))


def write_other_kinds(folder):
    """What Pillow reads and the decoder refuses, under whatever name it is found."""
    pixels = numpy.zeros((8, 8, 3), numpy.uint8)
    files = {kind: saved("RGB", pixels, kind) for kind in ("GIF", "TIFF", "WEBP")}
    files["PBM"] = (data := io.BytesIO(), Image.new("1", (8, 8)).save(data, "PPM"))[0].getvalue()
    files["RLE"] = bitmap(8, 1, 8, b"\x08\0\0\1", palette=bytes(1024), compression=1)
    for kind, file in files.items():
        (folder / f"{kind}.damaged").write_bytes(file)


if __name__ == "__main__":
    FOLDER = pathlib.Path(sys.argv[1])
    CORPUS = Corpus(FOLDER)
    write_pngs(CORPUS)
    write_jpegs(CORPUS)
    write_damaged_pngs(FOLDER)
    write_netpbm(CORPUS)
    write_bitmaps(CORPUS)
    write_other_kinds(FOLDER)
