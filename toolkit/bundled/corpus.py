"""Writes the training text of the bundled models: Jane Austen's six novels and generated sentences.

    apt-get download r-cran-janeaustenr=1.0.0-1
    dpkg -x r-cran-janeaustenr_1.0.0-1_all.deb unpacked
    python -m toolkit.bundled.corpus --out corpus.jsonl \\
        --novels unpacked/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb

Each line is one JSON object with ``use`` (train, held-out or question), ``source`` (novels or generated) and ``text``;
a question also has its ``answer``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from toolkit.bundled import sentences
from toolkit.errors import ToolkitError

SEED = 20261201
GENERATED_DOCUMENTS = 12_000
HELD_OUT_SHARE = 0.02
# A novel is cut at paragraph ends into documents of at least this many characters.
NOVEL_DOCUMENT_CHARACTERS = 600

STRING_HEADER = b"\x00\x04\x00\x09"  # R's CHARSXP with the flags of an ASCII string, big-endian
R_SERIALIZATION = b"X\n"


def novel_lines(database: Path) -> Iterator[list[str]]:
    """Yield the lines of each novel in an R lazy-load database.

    It is a row of blocks: a length and a zlib stream that holds a serialized vector of strings ("R Internals", section
    1.8). Only ASCII strings are understood.
    """
    data = database.read_bytes()
    offset = 0
    while offset < len(data):
        (length,) = struct.unpack_from(">I", data, offset)
        stream = zlib.decompressobj()
        try:
            block = stream.decompress(data[offset + 4 :])
        except zlib.error as error:
            raise ToolkitError(f"{database} is no R lazy-load database at byte {offset}: {error}") from error
        if len(block) != length or not block.startswith(R_SERIALIZATION):
            raise ToolkitError(
                f"{database} holds no serialized R object at byte {offset}; use the Rdata.rdb of janeaustenr"
            )
        offset = len(data) - len(stream.unused_data)
        lines = []
        at = block.index(STRING_HEADER)
        while block.startswith(STRING_HEADER, at):
            (size,) = struct.unpack_from(">i", block, at + 4)
            lines.append(block[at + 8 : at + 8 + size].decode("ascii"))
            at += 8 + size
        yield lines


def novel_documents(lines: Sequence[str]) -> Iterator[str]:
    """Yield stretches of whole paragraphs, each on one line; title pages and chapter headings are left out."""
    document = ""
    for paragraph in "\n".join(lines).split("\n\n"):
        text = " ".join(paragraph.split())
        if not text.endswith((".", "!", "?", '"', ";", ":", "--", "_", ")")):
            continue
        document += text + "\n"
        if len(document) >= NOVEL_DOCUMENT_CHARACTERS:
            yield document
            document = ""
    if document:
        yield document


def records(database: Path) -> Iterator[dict[str, str]]:
    rng = random.Random(SEED)
    novels = [document for lines in novel_lines(database) for document in novel_documents(lines)]
    for source, texts in (("novels", novels), ("generated", sentences.documents(GENERATED_DOCUMENTS, SEED))):
        for text in texts:
            yield {
                "use": "held-out" if rng.random() < HELD_OUT_SHARE else "train",
                "source": source,
                "text": text,
            }
    for prompt, answer in sentences.questions():
        yield {"use": "question", "source": "generated", "text": prompt, "answer": answer}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write the training text of the bundled models.")
    parser.add_argument("--novels", type=Path, required=True, help="Rdata.rdb of Debian's r-cran-janeaustenr")
    parser.add_argument("--out", type=Path, required=True, help="file to write, one JSON object a line")
    options = parser.parse_args(arguments)
    content = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records(options.novels)).encode()
    options.out.write_bytes(content)
    print(f"{options.out}: {len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}")


if __name__ == "__main__":
    main()
