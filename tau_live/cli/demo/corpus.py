"""The corpus of the demo: the docstrings of the Python that runs it.

Modules with a source file are read with ``ast``: nothing is imported, so nothing can have a side
effect, and parsing the whole list takes half a second. Built-in modules have no source and are
imported; all of them are part of the interpreter or import nothing themselves.
"""

import ast
import importlib
import math
import re
import sysconfig
import types
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from heapq import nsmallest
from pathlib import Path

from tau_live.core.errors import TauLiveError

MODULES = """
    abc argparse ast asyncio base64 bdb bisect bz2 calendar cmd code codecs codeop collections
    collections.abc colorsys compileall concurrent.futures configparser contextlib copy csv
    dataclasses datetime decimal difflib dis doctest email.charset email.generator
    email.header email.headerregistry email.message email.parser email.policy email.quoprimime
    email.utils enum filecmp fileinput fnmatch fractions ftplib functools getopt getpass
    gettext glob graphlib gzip hashlib heapq hmac html http.client http.cookiejar http.cookies
    http.server imaplib importlib importlib.abc importlib.metadata importlib.resources
    importlib.util inspect io ipaddress json linecache locale logging logging.config
    logging.handlers lzma mailbox mimetypes modulefinder multiprocessing
    multiprocessing.connection multiprocessing.managers multiprocessing.pool
    multiprocessing.shared_memory netrc numbers operator optparse os os.path pathlib pdb
    pickle pickletools pkgutil platform plistlib poplib pprint profile pstats pyclbr pydoc
    queue quopri random re reprlib runpy sched secrets selectors shelve shlex shutil smtplib
    socket socketserver ssl stat statistics string subprocess symtable sysconfig tarfile
    tempfile textwrap threading timeit tokenize tomllib trace traceback tracemalloc types
    typing unittest unittest.mock urllib.error urllib.parse urllib.request urllib.robotparser
    uuid venv warnings wave weakref webbrowser wsgiref.handlers wsgiref.headers wsgiref.util
    xml.dom.minidom xml.etree.ElementTree xml.sax.handler xml.sax.saxutils xml.sax.xmlreader
    xmlrpc.client xmlrpc.server zipfile zipimport zoneinfo
""".split()  # noqa: SIM905  # a list of names
"""The public modules with sources, of any Python from 3.11 on."""

SOURCES: Mapping[str, tuple[str, ...]] = {
    "asyncio": (
        "asyncio/events.py",
        "asyncio/futures.py",
        "asyncio/locks.py",
        "asyncio/protocols.py",
        "asyncio/queues.py",
        "asyncio/runners.py",
        "asyncio/streams.py",
        "asyncio/subprocess.py",
        "asyncio/taskgroups.py",
        "asyncio/tasks.py",
        "asyncio/threads.py",
        "asyncio/timeouts.py",
        "asyncio/transports.py",
    ),
    "collections.abc": ("_collections_abc.py",),
    "concurrent.futures": (
        "concurrent/futures/_base.py",
        "concurrent/futures/process.py",
        "concurrent/futures/thread.py",
    ),
    "datetime": ("_pydatetime.py", "datetime.py"),
    "decimal": ("_pydecimal.py",),
    "email.parser": ("email/parser.py", "email/feedparser.py"),
    "email.policy": ("email/policy.py", "email/_policybase.py"),
    "email.utils": ("email/utils.py", "email/_parseaddr.py"),
    "html": ("html/__init__.py", "html/parser.py"),
    "importlib.resources": ("importlib/resources/_common.py", "importlib/resources/abc.py"),
    "io": ("_pyio.py",),
    "json": ("json/__init__.py", "json/decoder.py", "json/encoder.py"),
    "multiprocessing": ("multiprocessing/context.py", "multiprocessing/process.py"),
    "os.path": ("posixpath.py", "genericpath.py"),
    "pathlib": ("pathlib.py", "pathlib/__init__.py", "pathlib/_local.py", "pathlib/_abc.py"),
    "tomllib": ("tomllib/_parser.py",),
    "unittest": (
        "unittest/case.py",
        "unittest/async_case.py",
        "unittest/loader.py",
        "unittest/result.py",
        "unittest/runner.py",
        "unittest/suite.py",
    ),
    "weakref": ("weakref.py", "_weakrefset.py"),
    "zipfile": ("zipfile.py", "zipfile/__init__.py", "zipfile/_path/__init__.py"),
    "zoneinfo": ("zoneinfo/__init__.py", "zoneinfo/_zoneinfo.py"),
}
"""Public module -> its source files, where they are not the obvious one.

Files that this Python does not have are left out.
"""

BUILT_IN: Mapping[str, tuple[str, ...]] = {
    "array": ("array",),
    "binascii": ("binascii",),
    "builtins": ("builtins",),
    "cmath": ("cmath",),
    "collections": ("_collections", "collections"),
    "functools": ("_functools", "functools"),
    "gc": ("gc",),
    "itertools": ("itertools",),
    "math": ("math",),
    "os": ("posix",),
    "sys": ("sys",),
    "time": ("time",),
    "unicodedata": ("unicodedata",),
    "zlib": ("zlib",),
}
"""Public module -> where its parts written in C are; the first module that exists is read."""

_SIGNATURE = re.compile(r"[\w.]*\(.*\)( *(->|=) *.*)?$|$")
"""Matches a line with the signature of a C function, or an empty one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One public function, class or method.

    Attributes:
        name: Its full name, such as ``pathlib.Path.glob`` or, built in, ``str.split``.
        summary: The first paragraph of its docstring, on one line.
        text: The whole docstring, on one line, cut at 600 characters.
    """

    name: str
    summary: str
    text: str


def standard_library(root: Path | None = None) -> list[Entry]:
    """Return every documented public object of the listed modules, in a fixed order.

    Where several share a whole docstring, the one with the shortest name stands for all of them.

    Args:
        root: The folder of the library's sources; None is that of this Python.

    Raises:
        TauLiveError: This Python came without the sources of its standard library.
    """
    root = root or Path(sysconfig.get_path("stdlib"))
    by_name: dict[str, Entry] = {}
    for name, docstring in _docstrings(root):
        entry = _entry(name, docstring)
        if entry is not None:
            by_name.setdefault(name, entry)
    by_text: dict[str, Entry] = {}
    for entry in by_name.values():
        known = by_text.get(entry.text)
        if known is None or len(entry.name) < len(known.name):
            by_text[entry.text] = entry
    # With fewer, the interpreter came without its sources, and there is no demo.
    if len(by_text) < 2000:
        raise TauLiveError(
            "the demo needs the sources of Python's standard library, "
            f"found {len(by_text)} docstrings with those below {str(root)!r}"
        )
    return list(by_text.values())


def words_of(text: str) -> list[str]:
    """Return a text's words in lower case; names fall apart at dots, underscores and capitals."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_", " ", text)
    return re.findall(r"[a-z0-9]+", apart.lower())


def _docstrings(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each public name with its docstring."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a newer Python may warn of what it parses or imports
        for module in MODULES:
            stem = module.replace(".", "/")
            for file in SOURCES.get(module, (f"{stem}.py", f"{stem}/__init__.py")):
                if (root / file).is_file():
                    tree = ast.parse((root / file).read_text("utf-8"))
                    for name, docstring in _definitions(tree.body):
                        yield f"{module}.{name}", docstring
        for module, origins in BUILT_IN.items():
            yield from _from_import(module, origins)


def _definitions(body: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield the public definitions of a module or a class, methods of public classes included."""
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name.startswith("_"):
            continue
        if docstring := ast.get_docstring(node):
            yield node.name, docstring
        if isinstance(node, ast.ClassDef):
            for name, text in _definitions(node.body):
                yield f"{node.name}.{name}", text


def _from_import(module: str, origins: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for origin in origins:
        try:
            members = vars(importlib.import_module(origin))
        except ImportError:  # optional parts of the interpreter, and the names of other Pythons
            continue
        prefix = "" if module == "builtins" else f"{module}."
        for name, value in sorted(members.items()):
            if _is_native(value) and not name.startswith("_"):
                yield from _members(prefix + name, value)
        return


def _is_native(value: object) -> bool:
    """Return whether a value is a function or class written in C, and no error."""
    if isinstance(value, type):
        return not issubclass(value, BaseException)
    return isinstance(value, types.BuiltinFunctionType)


def _members(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value.__doc__, str):
        yield name, value.__doc__
    if isinstance(value, type):
        for member, method in sorted(vars(value).items()):
            docstring = getattr(method, "__doc__", None)
            if callable(method) and not member.startswith("_") and isinstance(docstring, str):
                yield f"{name}.{member}", docstring


def _entry(name: str, docstring: str) -> Entry | None:
    """Return the entry for a docstring, or None if nothing is left of it."""
    lines = docstring.strip().splitlines()
    while lines and _SIGNATURE.match(lines[0].strip()):
        lines = lines[1:]  # docstrings of C functions may begin with their signature
    text = "\n".join(lines).strip()
    summary = " ".join(re.split(r"\n\s*\n", text, maxsplit=1)[0].split())
    if len(words_of(summary)) < 2:
        return None
    return Entry(name=name, summary=summary, text=" ".join(text.split())[:600])


class Spelling:
    """The words of all names and summaries, by their letters and by the entries that have them."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._names = [
            [" ".join(words_of(name)) for name in (entry.name, entry.name.rpartition(".")[2])]
            for entry in entries
        ]
        self._holders: dict[str, list[int]] = defaultdict(list)
        self._sizes: list[int] = []
        for number, entry in enumerate(entries):
            words = dict.fromkeys(words_of(f"{entry.name} {entry.summary}"))
            self._sizes.append(len(words))
            for word in words:
                self._holders[word].append(number)
        self._weights = {
            word: math.log(1 + len(entries) / len(held)) for word, held in self._holders.items()
        }
        self._heaviest = max(self._weights.values(), default=1.0)
        self._by_pair: dict[str, list[str]] = defaultdict(list)
        self._by_letter: dict[str, list[str]] = defaultdict(list)
        for word in self._holders:
            self._by_letter[word[0]].append(word)
            for pair in pairs_of(word):
                self._by_pair[pair].append(word)
        self._pair_counts = {word: len(pairs_of(word)) for word in self._holders}

    def meant_by(self, word: str) -> dict[str, float]:
        """Return the known words that ``word`` may stand for, with a similarity in ``[0, 1]``."""
        if word in self._holders:
            return {word: 1.0}
        pairs = pairs_of(word)
        shared = Counter(other for pair in pairs for other in self._by_pair.get(pair, ()))
        similar = {
            other: likeness
            for other, count in shared.items()
            # From here on a word may stand for another.
            if (likeness := 2 * count / (len(pairs) + self._pair_counts[other])) >= 0.5
        }
        for other in self._longer(word):
            similar[other] = max(similar.get(other, 0.0), 0.4 + 0.6 * len(word) / len(other))
        return similar

    def _longer(self, word: str) -> list[str]:
        """Return the known words that are ``word`` with letters put in after the first."""
        if len(word) < 2:
            return []
        letters = re.compile(word[0] + "".join(f"[^{letter}]*{letter}" for letter in word[1:]))
        return [
            other
            for other in self._by_letter.get(word[0], ())
            if len(other) > len(word) and letters.match(other)
        ]

    def rank(self, text: str) -> list[tuple[float, int]]:
        """Return ``(score, number)`` of the best entries, best first, scores in ``[0, 1]``."""
        words = words_of(text)
        if not words:
            return []
        totals: dict[int, float] = defaultdict(float)
        possible = 0.0
        for word in dict.fromkeys(words):
            gains, most = self._gains(word)
            possible += most
            for number, gain in gains.items():
                totals[number] += gain
        covered = [
            (total / possible - 0.002 * self._sizes[number], number)
            for number, total in totals.items()
        ]
        # Only the best 24 are compared with the question letter by letter.
        return self._rescore(" ".join(words), _best_first(covered, 24))

    def _gains(self, word: str) -> tuple[dict[int, float], float]:
        """Return what each entry gains by containing a likely spelling, and the most it could."""
        meant = self.meant_by(word)
        gains: dict[int, float] = {}
        for other, likeness in meant.items():
            gain = likeness * likeness * self._weights[other]
            for number in self._holders[other]:
                gains[number] = max(gains.get(number, 0.0), gain)
        return gains, max((self._weights[other] for other in meant), default=self._heaviest)

    def _rescore(self, question: str, best: list[tuple[float, int]]) -> list[tuple[float, int]]:
        """Mix how much of the question an entry covers with how like its name the question is."""
        matcher = SequenceMatcher(b=question, autojunk=False)
        scored = []
        for share, number in best:
            likeness = 0.0
            for name in self._names[number]:
                matcher.set_seq1(name)
                likeness = max(likeness, matcher.ratio())
            scored.append((max(0.0, min(1.0, 0.72 * share + 0.28 * likeness)), number))
        return _best_first(scored, len(scored))


def pairs_of(word: str) -> set[str]:
    """Return the pairs of neighbouring letters of a word, its ends included."""
    framed = f"^{word}$"
    return {framed[i : i + 2] for i in range(len(framed) - 1)}


def _best_first(scored: list[tuple[float, int]], most: int) -> list[tuple[float, int]]:
    return nsmallest(most, scored, key=lambda pair: (-pair[0], pair[1]))
