"""Text without secrets, as agents meet it: real prose, real code, ids, hashes, images, numbers."""

import base64
import importlib.metadata
import json
import pydoc_data.topics
import random
import sysconfig
import uuid
from collections.abc import Iterator
from hashlib import md5, sha1, sha256
from itertools import chain, islice
from pathlib import Path

CHUNK = 400
"""Characters of one piece of prose or code: about a message."""


def benign(count: int, rng: random.Random) -> list[str]:
    """Return so many texts, of every source about as many."""
    each = count // len(SOURCES)
    return [text for source in SOURCES for text in islice(source(rng), each)]


def _chunks(texts: Iterator[str], rng: random.Random) -> Iterator[str]:
    for text in texts:
        places = range(0, max(1, len(text) - CHUNK), CHUNK)
        for place in rng.sample(places, min(len(places), 8)):
            yield text[place : place + CHUNK]


def _prose(rng: random.Random) -> Iterator[str]:
    """Return texts of Python's reference manual and of installed packages' descriptions."""
    manual = [str(text) for text in pydoc_data.topics.topics.values()]
    descriptions = [
        distribution.read_text("METADATA") or ""
        for distribution in importlib.metadata.distributions()
    ]
    texts = [*manual, *descriptions]
    rng.shuffle(texts)
    yield from _chunks(iter(texts), rng)


def _code(rng: random.Random) -> Iterator[str]:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    files += sorted(Path(sysconfig.get_path("stdlib")).glob("[a-s]*/*.py"))
    rng.shuffle(files)
    yield from _chunks((file.read_text("utf-8", "replace") for file in files), rng)


def _ids(rng: random.Random) -> Iterator[str]:
    while True:
        seed = rng.randbytes(16)
        yield from (
            str(uuid.UUID(bytes=seed, version=4)),
            f"run {uuid.UUID(bytes=seed).hex} of session-{rng.randrange(10**9)}",
            f"chatcmpl-{base64.urlsafe_b64encode(seed).decode().rstrip('=')}",
            f"call_{base64.b64encode(seed).decode().replace('/', 'x')[:24]}",
            f"live-{uuid.uuid5(uuid.NAMESPACE_URL, seed.hex())}:attempt-1:decision-3",
            f"msg_01{seed.hex()} toolu_{seed.hex()[:24]}",
        )


def _hashes(rng: random.Random) -> Iterator[str]:
    while True:
        seed = rng.randbytes(8)
        yield from (
            sha256(seed).hexdigest(),
            f"commit {sha1(seed, usedforsecurity=False).hexdigest()} on main",
            f'"etag": "{md5(seed, usedforsecurity=False).hexdigest()}"',
            f"sha512-{base64.b64encode(sha256(seed).digest() * 2).decode()}",
            f"{sha256(seed).hexdigest()}  package-{rng.randrange(99)}.{rng.randrange(9)}.tar.gz",
        )


def _images(rng: random.Random) -> Iterator[str]:
    while True:
        noise = b"\x89PNG\r\n\x1a\n" + rng.randbytes(rng.randrange(200, 4000))
        yield f"data:image/png;base64,{base64.b64encode(noise).decode()}"
        yield base64.encodebytes(noise).decode()


def _records(rng: random.Random) -> Iterator[str]:
    """Return answers of models and tools: numbers, counts of tokens, settings, addresses."""
    while True:
        yield from (
            json.dumps({"usage": {"input_tokens": rng.randrange(9999), "max_tokens": 4096}}),
            json.dumps([round(rng.gauss(0, 1), 6) for _ in range(20)]),
            json.dumps({"model": "gpt-4o-mini-2024-07-18", "seed": rng.randrange(2**31)}),
            f"2026-01-{rng.randrange(1, 29):02}T10:00:00Z INFO worker-3 took {rng.random():.3f}s",
            "max_tokens=512 tokenizer=cl100k keyword=none top_p: 0.9 stop_token: 2",
            f"https://example.com:8443/docs/{rng.randrange(999)}?page=2&sort=-date%2Cname#top",
            f"mailto:ada.{rng.randrange(99)}@example.com, user@host:/var/lib/data/{rng.random()}",
            f"INSERT INTO items VALUES ({rng.randrange(999)}, 'it''s', NULL, X'{rng.randbytes(24).hex()}');",  # noqa: E501
            "task-list sk-learn risk-free desk-work mask-image key-value pwd-less ask-me-anything",
            json.dumps({"role": "user", "content": json.dumps({"q": 'what\'s a "token"?\n\n'})}),
        )


SOURCES = (_prose, _code, _ids, _hashes, _images, _records)


def lists_of(rng: random.Random) -> Iterator[list[str]]:
    """Yield strings that follow each other in a value, as arguments, columns and options do."""
    words = sorted({word for text in chain([*_manual()]) for word in text.split() if len(word) > 3})
    while True:
        yield [rng.choice(words) for _ in range(8)]
        yield ["username", "password", "email", "gpt-4o-mini-2024-07-18", "sk-fast-model", "o3"]
        yield [str(uuid.UUID(bytes=rng.randbytes(16))), sha256(rng.randbytes(4)).hexdigest()]


def _manual() -> list[str]:
    return [str(text) for text in pydoc_data.topics.topics.values()]
