"""The shapes of well-known secrets, and the keys under which secrets stand.

One alternation finds them all. Each alternative begins with a literal character, so that the search
jumps from candidate to candidate, and holds an empty group: its number names the kind, its place
tells where the secret proper begins (what is before it is kept); at the end it means the whole.
No pattern backtracks over more than a bounded number of characters, so the time is linear in the
length of the text.
"""

import re
from collections.abc import Mapping
from typing import TypeAlias

from tau_live.errors import SettingsError

_WORD = "A-Za-z0-9_"
_QUOTED = r"""\\?"(?P<>)[^"\r\n]++|\\?'(?P<>)[^'\r\n]++"""
_GIVEN = r"""\\?["']?\s{0,4}(?::|=>?)\s{0,4}"""
_BARE = r"""[^\s"'`,;&(){}\[\]<>\\]"""
_PEM = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[^-]++|-(?!----))*+"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
)

TOKENS: Mapping[str, tuple[str, ...]] = {
    "anthropic": (r"sk-ant-[\w-]{16,}+",),
    "openai": (r"sk-[\w-]{20,}+",),
    "github": (r"gh[pousr]_[A-Za-z0-9]{20,}+", r"github_pat_\w{22,}+"),
    "gitlab": (r"gl(?:pat|dt|rt|ptt|cbt|soat|ft)-[\w-]{20,}+",),
    "slack": (
        r"xox[abeoprs]-[A-Za-z0-9-]{10,}+",
        r"xapp-[A-Za-z0-9-]{10,}+",
        r"hooks\.slack\.com/(?:services|workflows)/[\w/]{16,}+",
    ),
    "aws": (r"A(?:KIA|SIA|GPA|IDA|ROA|IPA|NPA|NVA)[A-Z0-9]{16}(?![A-Z0-9])",),
    "google": (
        r"AIza[\w-]{35}",
        r"ya29\.[\w.-]{20,}+",
        r"GOCSPX-[\w-]{20,}+",
    ),
    "stripe": (r"[spr]k_(?:live|test)_[A-Za-z0-9]{10,}+", r"whsec_[A-Za-z0-9+/]{20,}+"),
    "twilio": (r"SK[0-9a-f]{32}(?![0-9a-f])",),
    "sendgrid": (r"SG\.[\w-]{16,64}+\.[\w-]{16,}+",),
    "mailgun": (r"key-[0-9a-f]{32}(?![0-9a-f])",),
    "npm": (r"npm_[A-Za-z0-9]{30,}+",),
    "pypi": (r"pypi-[\w-]{32,}+",),
    "huggingface": (r"hf_[A-Za-z0-9]{30,}+",),
    "groq": (r"gsk_[A-Za-z0-9]{40,}+",),
    "xai": (r"xai-[A-Za-z0-9]{40,}+",),
    "replicate": (r"r8_[A-Za-z0-9]{30,}+",),
    "databricks": (r"dapi[0-9a-h]{32}",),
    "digitalocean": (r"do[opr]_v1_[0-9a-f]{64}",),
    "shopify": (r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",),
    "docker": (r"dckr_[op]at_[\w-]{20,}+",),
    "vault": (r"hv[sbr]\.[\w-]{24,}+",),
    "linear": (r"lin_api_[A-Za-z0-9]{32,}+",),
    "newrelic": (r"NRAK-[A-Z0-9]{27}",),
    "age": (r"AGE-SECRET-KEY-1[A-Z0-9]{58}",),
    "jwt": (r"e(?<![\w-]e)yJ[\w-]{8,}+\.eyJ[\w-]{4,}+(?:\.[\w-]*+)?",),
}
"""Secrets that are told by their own look; none of them stands in the middle of a word."""

PHRASES: Mapping[str, tuple[str, ...]] = {
    "private_key": (_PEM,),
    "url_password": (r"""://[^\s/:@"'<>]{0,256}+:(?P<>)[^\s/"'<>]{1,512}(?=@)""",),
    "azure": (
        rf"AccountKey=(?P<>){_BARE}{{16,}}+",
        rf"SharedAccessKey=(?P<>){_BARE}{{16,}}+",
        r"&sig=(?P<>)[\w%+/=.-]{16,}+",
        r"\?sig=(?P<>)[\w%+/=.-]{16,}+",
    ),
}
"""Secrets that are told by what stands around them, wherever it stands."""

KEYWORDS: Mapping[str, tuple[str, ...]] = {
    "bearer": (r"bearer\s{1,4}(?P<>)(?=[\w.~+/-]{0,64}[0-9])[\w.~+/-]{8,}+=*+",),
    "authorization": (
        rf"authorization{_GIVEN}(?:{_QUOTED}|(?:\w{{1,16}} {{1,2}})?(?P<>){_BARE}{{4,}}+)",
    ),
    "cookie": (r"""cookie\\?["']?\s{0,4}:\s{0,4}\\?["']?(?P<>)[^\r\n"']{3,}+""",),
    "password": tuple(
        rf"{word}{_GIVEN}(?:{_QUOTED}|(?P<>){_BARE}++)"
        for word in ("password", "passwd", "passphrase", "pwd")
    ),
    "secret": tuple(
        rf"{word}{_GIVEN}(?:{_QUOTED}|(?P<>){_BARE}{{6,}}+)"
        for word in (
            "secret",
            "token",
            r"api[_-]?key",
            r"access[_-]?key(?:[_-]?id)?",
            r"private[_-]?key",
            r"secret[_-]?key",
            r"signing[_-]?key",
            "credentials?",
        )
    ),
}
"""Secrets that are told by the word before them, in any case."""

_KEY_WORDS = frozenset(
    {
        *("pwd", "passwd", "auth", "token", "jwt", "bearer", "dsn"),
        *("cookie", "cookies", "setcookie", "sessionkey", "connectionstring"),
    }
)
_KEY_ENDS = (
    "password",
    "passphrase",
    "secret",
    "secrets",
    "token",
    "apikey",
    "accesskey",
    "accesskeyid",
    "secretkey",
    "privatekey",
    "signingkey",
    "encryptionkey",
    "authorization",
    "credential",
    "credentials",
)
_NOT_IN_KEYS = re.compile(r"[^a-z0-9]+")


def is_secret_key(key: str) -> bool:
    """Tell whether a value under this key is a secret, however the key is spelt."""
    name = key[-64:].lower()
    if not name.isalpha():
        name = _NOT_IN_KEYS.sub("", name)
    return name.endswith(_KEY_ENDS) or name in _KEY_WORDS


def alternation(extra: Mapping[str, str]) -> tuple[re.Pattern[str], list[str]]:
    """Return the pattern that finds every secret, and the kind that each of its groups stands for.

    Args:
        extra: More patterns by kind; without groups of their own, and best linear in time.

    Raises:
        SettingsError: One of ``extra`` is not a pattern, has groups, or matches nothing at all.
    """
    for kind, pattern in extra.items():
        _check(kind, pattern)
    parts = [f"(?:{pattern})(?P<>)" for pattern in extra.values()]
    kinds = ["", *extra]
    for first, (tokens, others) in _by_first().items():
        apart = [f"(?<![{_WORD}]{first})(?:{'|'.join(rest for _, rest in tokens)})"]
        rests = [*(apart if tokens else ()), *(rest for _, rest in others)]
        parts.append(f"{first}(?:{'|'.join(rests)})")
        for kind, rest in (*tokens, *others):
            kinds += [kind] * rest.count("(?P<>)")
    return re.compile("|".join(parts).replace("(?P<>)", "()")), kinds


_Rests: TypeAlias = list[tuple[str, str]]
"""Kinds, and how their patterns go on behind a first character."""


def _by_first() -> dict[str, tuple[_Rests, _Rests]]:
    """Return how tokens and others go on behind each character that one of them begins with.

    At one place of a text only patterns that begin with its character can match, so those alone are
    tried there, in their order: a search takes a third of the time.
    """
    found: dict[str, tuple[_Rests, _Rests]] = {}
    for kind, pattern in _each(TOKENS):
        for first, rest in _firsts(pattern):
            found.setdefault(first, ([], []))[0].append((kind, f"{rest}(?P<>)"))
    for kind, pattern in _each(PHRASES):
        whole = pattern if "(?P<>)" in pattern else f"{pattern}(?P<>)"
        for first, rest in _firsts(whole):
            found.setdefault(first, ([], []))[1].append((kind, rest))
    for kind, pattern in _each(KEYWORDS):
        for first in (pattern[0], pattern[0].upper()):
            found.setdefault(first, ([], []))[1].append((kind, f"(?i:{pattern[1:]})"))
    return found


def _each(patterns: Mapping[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(kind, pattern) for kind, alternatives in patterns.items() for pattern in alternatives]


def _firsts(pattern: str) -> list[tuple[str, str]]:
    """Return a pattern's first character and its rest, for each character it may begin with."""
    if pattern[0] != "[":
        end = 2 if pattern[0] == "\\" else 1
        return [(pattern[:end], pattern[end:])]
    end = pattern.index("]")
    return [(first, pattern[end + 1 :]) for first in pattern[1:end]]


def _check(kind: str, pattern: str) -> None:
    if not kind.isidentifier():
        raise SettingsError(f"a kind of secret must be a plain name, got {kind!r}")
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise SettingsError(f"pattern of {kind!r} is malformed: {error}: {pattern!r}") from error
    if compiled.groups or compiled.match(""):
        raise SettingsError(
            f"pattern of {kind!r} must have no groups and match something: {pattern!r}"
        )
