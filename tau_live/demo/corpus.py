"""What the demo searches: the docstrings of the Python that runs it.

Modules with a source file are read with ``ast``: nothing is imported, so nothing can have a side
effect, and parsing the whole list takes half a second. Built-in modules have no source and are
imported; all of them are part of the interpreter or import nothing themselves.
"""

import ast
import importlib
import re
import sysconfig
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tau_live.errors import TauLiveError

MIN_ENTRIES = 2000
"""Fewer than this and the interpreter came without its sources; no demo can be made of it."""

SOURCES: Mapping[str, tuple[str, ...]] = {
    "abc": (),
    "argparse": (),
    "ast": (),
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
    "base64": (),
    "bdb": (),
    "bisect": (),
    "bz2": (),
    "calendar": (),
    "cmd": (),
    "code": (),
    "codecs": (),
    "codeop": (),
    "collections": (),
    "collections.abc": ("_collections_abc.py",),
    "colorsys": (),
    "compileall": (),
    "concurrent.futures": (
        "concurrent/futures/_base.py",
        "concurrent/futures/process.py",
        "concurrent/futures/thread.py",
    ),
    "configparser": (),
    "contextlib": (),
    "copy": (),
    "csv": (),
    "dataclasses": (),
    "datetime": ("_pydatetime.py", "datetime.py"),
    "decimal": ("_pydecimal.py",),
    "difflib": (),
    "dis": (),
    "doctest": (),
    "email.charset": (),
    "email.generator": (),
    "email.header": (),
    "email.headerregistry": (),
    "email.message": (),
    "email.parser": ("email/parser.py", "email/feedparser.py"),
    "email.policy": ("email/policy.py", "email/_policybase.py"),
    "email.quoprimime": (),
    "email.utils": ("email/utils.py", "email/_parseaddr.py"),
    "enum": (),
    "filecmp": (),
    "fileinput": (),
    "fnmatch": (),
    "fractions": (),
    "ftplib": (),
    "functools": (),
    "getopt": (),
    "getpass": (),
    "gettext": (),
    "glob": (),
    "graphlib": (),
    "gzip": (),
    "hashlib": (),
    "heapq": (),
    "hmac": (),
    "html": ("html/__init__.py", "html/parser.py"),
    "http.client": (),
    "http.cookiejar": (),
    "http.cookies": (),
    "http.server": (),
    "imaplib": (),
    "importlib": (),
    "importlib.abc": (),
    "importlib.metadata": (),
    "importlib.resources": ("importlib/resources/_common.py", "importlib/resources/abc.py"),
    "importlib.util": (),
    "inspect": (),
    "io": ("_pyio.py",),
    "ipaddress": (),
    "json": ("json/__init__.py", "json/decoder.py", "json/encoder.py"),
    "linecache": (),
    "locale": (),
    "logging": (),
    "logging.config": (),
    "logging.handlers": (),
    "lzma": (),
    "mailbox": (),
    "mimetypes": (),
    "modulefinder": (),
    "multiprocessing": ("multiprocessing/context.py", "multiprocessing/process.py"),
    "multiprocessing.connection": (),
    "multiprocessing.managers": (),
    "multiprocessing.pool": (),
    "multiprocessing.shared_memory": (),
    "netrc": (),
    "numbers": (),
    "operator": (),
    "optparse": (),
    "os": (),
    "os.path": ("posixpath.py", "genericpath.py"),
    "pathlib": ("pathlib.py", "pathlib/__init__.py", "pathlib/_local.py", "pathlib/_abc.py"),
    "pdb": (),
    "pickle": (),
    "pickletools": (),
    "pkgutil": (),
    "platform": (),
    "plistlib": (),
    "poplib": (),
    "pprint": (),
    "profile": (),
    "pstats": (),
    "pyclbr": (),
    "pydoc": (),
    "queue": (),
    "quopri": (),
    "random": (),
    "re": (),
    "reprlib": (),
    "runpy": (),
    "sched": (),
    "secrets": (),
    "selectors": (),
    "shelve": (),
    "shlex": (),
    "shutil": (),
    "smtplib": (),
    "socket": (),
    "socketserver": (),
    "ssl": (),
    "stat": (),
    "statistics": (),
    "string": (),
    "subprocess": (),
    "symtable": (),
    "sysconfig": (),
    "tarfile": (),
    "tempfile": (),
    "textwrap": (),
    "threading": (),
    "timeit": (),
    "tokenize": (),
    "tomllib": ("tomllib/_parser.py",),
    "trace": (),
    "traceback": (),
    "tracemalloc": (),
    "types": (),
    "typing": (),
    "unittest": (
        "unittest/case.py",
        "unittest/async_case.py",
        "unittest/loader.py",
        "unittest/result.py",
        "unittest/runner.py",
        "unittest/suite.py",
    ),
    "unittest.mock": (),
    "urllib.error": (),
    "urllib.parse": (),
    "urllib.request": (),
    "urllib.robotparser": (),
    "uuid": (),
    "venv": (),
    "warnings": (),
    "wave": (),
    "weakref": ("weakref.py", "_weakrefset.py"),
    "webbrowser": (),
    "wsgiref.handlers": (),
    "wsgiref.headers": (),
    "wsgiref.util": (),
    "xml.dom.minidom": (),
    "xml.etree.ElementTree": (),
    "xml.sax.handler": (),
    "xml.sax.saxutils": (),
    "xml.sax.xmlreader": (),
    "xmlrpc.client": (),
    "xmlrpc.server": (),
    "zipfile": ("zipfile.py", "zipfile/__init__.py", "zipfile/_path/__init__.py"),
    "zipimport": (),
    "zoneinfo": ("zoneinfo/__init__.py", "zoneinfo/_zoneinfo.py"),
}
"""Public module -> its source files, of any Python from 3.11 on; none means the obvious one.

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
"""A line that says how a C function is called, or an empty one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One public function, class or method.

    Attributes:
        name: Where it is found, such as ``pathlib.Path.glob`` or, built in, ``str.split``.
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
    for name, docstring in _documented(root):
        entry = _entry(name, docstring)
        if entry is not None:
            by_name.setdefault(name, entry)
    by_text: dict[str, Entry] = {}
    for entry in by_name.values():
        known = by_text.get(entry.text)
        if known is None or len(entry.name) < len(known.name):
            by_text[entry.text] = entry
    if len(by_text) < MIN_ENTRIES:
        raise TauLiveError(
            "the demo needs the sources of Python's standard library, "
            f"found {len(by_text)} docstrings with those below {str(root)!r}"
        )
    return list(by_text.values())


def words_of(text: str) -> list[str]:
    """Return a text's words in lower case; names fall apart at dots, underscores and capitals."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_", " ", text)
    return re.findall(r"[a-z0-9]+", apart.lower())


def _documented(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each public name with its docstring."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a newer Python may warn of what it parses or imports
        for module, files in SOURCES.items():
            for path in _source_files(root, module, files):
                yield from _from_source(module, path)
        for module, origins in BUILT_IN.items():
            yield from _from_import(module, origins)


def _source_files(root: Path, module: str, files: tuple[str, ...]) -> list[Path]:
    stem = module.replace(".", "/")
    candidates = files or (f"{stem}.py", f"{stem}/__init__.py")
    return [root / name for name in candidates if (root / name).is_file()]


def _from_source(module: str, path: Path) -> Iterator[tuple[str, str]]:
    tree = ast.parse(path.read_text("utf-8"))
    for name, docstring in _definitions(tree.body):
        yield f"{module}.{name}", docstring


def _definitions(body: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield the public definitions of a module or a class, methods of public classes included."""
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name.startswith("_"):
            continue
        docstring = ast.get_docstring(node)
        if docstring:
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
    """Tell whether this is a function or class written in C, errors left out."""
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
        lines = lines[1:]  # docstrings of C functions may begin with how they are called
    text = "\n".join(lines).strip()
    summary = " ".join(re.split(r"\n\s*\n", text, maxsplit=1)[0].split())
    if len(words_of(summary)) < 2:
        return None
    return Entry(name=name, summary=summary, text=" ".join(text.split())[:600])
