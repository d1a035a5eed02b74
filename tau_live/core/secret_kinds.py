"""The formats of well-known secrets, and the keys under which secrets are kept.

One alternation finds them all. Each alternative begins with a single character, so that the search
jumps from candidate to candidate, and holds an empty group: its number names the kind, its place
marks where the secret proper begins (the text before it is kept); at the end it means the whole.
No pattern backtracks over more than a bounded number of characters, so the time is linear in the
length of the text. The formats of tokens follow the rules of gitleaks 8.30.1 and detect-secrets
1.5.0, and the vendors' own pages.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from functools import cache
from itertools import chain
from typing import NamedTuple, TypeAlias

_WORD = "A-Za-z0-9"
_NOT_PEM = "(?!-----BEGIN )"  # which has a pattern of its own, and several lines
_QUOTED = rf"""\\?"{_NOT_PEM}(?P<>)[^"\r\n]++|\\?'{_NOT_PEM}(?P<>)[^'\r\n]++"""
_ASSIGNED = r"""\\?["']?[ \t]{0,4}(?::(?![0-9a-f]{12}\])|=>?)\s{0,4}"""  # not our own ``kind:hash``
_CHAR = r"""[^\s"'`,;&(){}\[\]<>\\]"""
_ORDINARY = (
    r"(?!(?:an?|the|your|optional|required|string|str|none|null|true|false)(?![\w-])|\.\."
    r"|[A-Za-z_]{1,64}\.[A-Za-z_]{1,64}\()"
)
"""Excludes words that only describe a value, an ellipsis, and a method call."""
_BARE = rf"{_NOT_PEM}{_ORDINARY}{_CHAR}"
_HAS_DIGIT = rf"(?={_CHAR}{{0,64}}[0-9])"
_NO_ALGORITHM = (
    r"(?!(?i:aes|argon|ascii|base|hs|http|iso|latin|md|oauth|pbkdf|python|rfc|rs|rsa|sha|utf|v|x)"
    r"[-_]?\d{1,4}(?![A-Za-z0-9]))"
)
_RANDOM = (
    rf"(?!https?://)(?![\d.:-]*+[a-z]{{0,2}}(?!{_CHAR})){_NO_ALGORITHM}(?=[!#%^*@~+]{{0,2}}[A-Za-z0-9])"
    rf"(?:{_HAS_DIGIT}(?={_CHAR}{{0,64}}[A-Za-z])|(?=\w{{0,64}}(?-i:[A-Z][a-z][A-Z]))){_CHAR}"
)
"""A character of a word that looks random: no number, size, algorithm or name in camel case."""
_SIGNED = rf"(?=[A-Za-z0-9]{_CHAR}{{0,62}}[!#$%^*@~+]{_CHAR})(?!{_CHAR}*?://){_CHAR}"
_FOUR_WORDS = r"(?=[a-z]{3,16}(?:-[a-z]{3,16}){3})[a-z-]"
_STATED = (
    r"""\\?["']?\s{1,3}(?:(?:is|was|to)\s?:?\s{1,3}|"""
    rf"""(?!["'`]?[A-Za-z]{{1,32}}[-_]?\d{{1,3}}(?!{_CHAR})))["'`]?"""
)
_VALUE_AFTER_NAME = (
    r"""\\?["']\s{0,4},?\s{0,4}\\?["']?value\\?["']?\s{0,4}[:=]\s{0,4}\\?["']?(?P<>)"""
    rf"{_BARE}{{4,}}+"
)
_VALUE_NEXT = rf"""["']?\s{{1,16}}value:\s{{1,4}}["']?(?P<>){_BARE}{{4,}}+"""
_ELEMENT = r"""\s{0,2}>\s{0,4}(?P<>)[^<>\s]{4,}+(?=\s{0,4}</)"""
_OPTION_WORDS = (
    r"(?-i:[A-Z][A-Z_-]*+(?![^\s.,;:!?)\"'`]))|(?:(?:and|any|are|argument|as|at|before|but|by|can|"
    r"command|does|etc|file|flag|for|from|has|if|in|instead|into|is|it|its|may|must|needs|not|of|on|"
    r"once|only|option|options|or|parameter|path|prompt|should|stdin|string|switch|takes|text|than|"
    r"that|the|then|they|this|to|together|unless|value|via|when|where|which|will|with|without|you|"
    r"your)(?![\w-]))"
)
"""What follows an option in prose and not in a command: an ordinary word or a placeholder."""
_PEM = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[^-]++|-(?!----))*+"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
)

TOKENS: Mapping[str, tuple[str, ...]] = {
    "anthropic": (r"sk-ant-[\w-]{16,}+",),
    "langfuse": (r"[sp]k-lf-[0-9a-f-]{36}",),
    "openai": (r"sk-[\w-]{20,}+",),
    "github": (r"gh[pousr]_[A-Za-z0-9]{20,}+", r"github_pat_\w{22,}+"),
    "gitlab": (
        r"gl(?:pat|dt|rt|rtr|ptt|cbt|soat|ft|ffct|imt|agent|oas)-[\w-]{20,}+",
        r"GR1348941[\w-]{20,}+",
    ),
    "slack": (
        r"xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,}+",
        r"xapp-[A-Za-z0-9-]{10,}+",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/[\w/]{16,}+",
    ),
    "aws": (
        r"A(?:KIA|SIA|GPA|IDA|ROA|IPA|NPA|NVA|BIA|CCA)[A-Z0-9]{16}(?![A-Z0-9])",
        r"ABSK[A-Za-z0-9+/]{100,}+=*+",
        r"bedrock-api-key-[A-Za-z0-9+/=]{20,}+",
    ),
    "google": (
        r"AIza[\w-]{35}",
        r"ya29\.[\w.-]{20,}+",
        r"GOCSPX-[\w-]{20,}+",
        r"1//0[\w-]{24,}+",
    ),
    "stripe": (r"[spr]k_(?:live|test|prod)_[A-Za-z0-9]{10,}+", r"whsec_[A-Za-z0-9+/]{20,}+"),
    "twilio": (r"SK[0-9a-f]{32}(?![0-9a-f])",),
    "sendgrid": (r"SG\.[\w-]{16,64}+\.[\w-]{16,}+",),
    "mailgun": (r"key-[0-9a-f]{32}(?![0-9a-f])",),
    "npm": (r"npm_[A-Za-z0-9]{30,}+",),
    "pypi": (r"pypi-[\w-]{32,}+",),
    "huggingface": (r"hf_[A-Za-z0-9]{30,}+", r"api_org_[A-Za-z0-9]{30,}+"),
    "groq": (r"gsk_[A-Za-z0-9]{40,}+",),
    "xai": (r"xai-[A-Za-z0-9]{40,}+",),
    "replicate": (r"r8_[A-Za-z0-9]{30,}+",),
    "databricks": (r"dapi[0-9a-h]{32}",),
    "digitalocean": (r"do[opr]_v1_[0-9a-f]{64}",),
    "shopify": (r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",),
    "docker": (r"dckr_[op]at_[\w-]{20,}+",),
    "vault": (r"hv[sbr]\.[\w-]{24,}+",),
    "linear": (r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}+",),
    "newrelic": (r"NRAK-[A-Z0-9]{27}", r"NRII-[\w-]{32}"),
    "age": (r"AGE-SECRET-KEY-1[A-Z0-9]{58}",),
    "jwt": (r"eyJ[\w-]{8,512}+\.eyJ[\w-]{4,}+(?:\.[\w-]*+)?",),
    "discord": (*(rf"{first}[\w-]{{23,27}}\.[\w-]{{6}}\.[\w-]{{27,}}+" for first in "MNO"),),
    "notion": (r"ntn_[A-Za-z0-9]{40,}+", r"secret_[A-Za-z0-9]{43}(?![A-Za-z0-9])"),
    "supabase": (r"sbp_(?:oauth_)?[0-9a-f]{40}", r"sb_secret_[\w-]{20,}+"),
    "atlassian": (r"AT(?:ATT|CTT|BB)[A-Za-z0-9]{1,4}[\w=-]{28,}+",),
    "token": (  # of vendors that need no kind of their own
        r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{8,}+",
        r"tvly-(?:dev-|prod-)?[A-Za-z0-9_-]{20,}+",
        r"pplx-[A-Za-z0-9]{32,}+",
        r"pcsk_\w{32,}+",
        r"fw_[A-Za-z0-9]{20,}+",
        r"nvapi-[\w-]{32,}+",
        r"sk_[0-9a-f]{32,}+",
        r"csk-[A-Za-z0-9]{32,}+",
        r"jina_[A-Za-z0-9]{32,}+",
        r"tgp_v1_[\w-]{32,}+",
        r"pa-[\w-]{40,}+",
        r"fc-[0-9a-f]{32}",
        r"e2b_[0-9a-f]{32,}+",
        r"LTAI[A-Za-z0-9]{20}(?![A-Za-z0-9])",
        r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}",
        r"AKCp[A-Za-z0-9]{60,}+",
        r"cmVmd[A-Za-z0-9]{59}(?![A-Za-z0-9])",
        r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{40,}+",
        r"dt0c01\.[A-Z0-9]{24}\.[A-Z0-9]{64}",
        r"fo1_[\w-]{43}",
        r"fm[12][ar]?_[A-Za-z0-9+/]{80,}+=*+",
        r"gl(?:c|sa)_[A-Za-z0-9+/_]{32,}+=*+",
        r"HRKU-[\w-]{36,}+",
        r"pscale_(?:pw|tkn|oauth)_[\w=.-]{32,}+",
        r"PMAK-[0-9a-fA-F]{24}-[0-9a-fA-F]{34}",
        r"pul-[0-9a-f]{40}",
        r"pnu_[A-Za-z0-9]{36}",
        r"rubygems_[0-9a-f]{48}",
        r"sntry[us]_[\w+/=]{40,}+",
        r"sq[uap]_[0-9a-f]{40}",
        r"sha256~[\w-]{43}",
        r"rnd_[A-Za-z0-9]{28,}+",
        r"nfp_[A-Za-z0-9]{36,}+",
        r"v1\.0-[0-9a-f]{24}-[0-9a-f]{146}",
        r"ops_eyJ[A-Za-z0-9+/_-]{100,}+=*+",
        r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}",
        r"CLOJARS_[0-9a-z]{60}",
        r"API-[A-Z0-9]{26}(?![A-Z0-9])",
        r"tk-us-[\w-]{48}",
        r"sgp_(?:[0-9a-fA-F]{16}_|local_)?[0-9a-fA-F]{40}",
        r"ico-[A-Za-z0-9]{32}(?![A-Za-z0-9])",
        r"xkeysib-[0-9a-f]{64}-[A-Za-z0-9]{16}",
        r"shippo_(?:live|test)_[0-9a-fA-F]{40}",
        *(rf"sq0{kind}-[\w-]{{22,}}+" for kind in ("atp", "csp", "idp")),
        r"EAAA[\w-]{56,}+",
        r"EAA[MC][A-Za-z0-9]{100,}+",
        r"tfp_[\w.=-]{40,}+",
        r"figd_[\w-]{36,}+",
        r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}+",
        r"ph[xs]_[A-Za-z0-9]{40,}+",
        r"EZ[AT]K[A-Za-z0-9]{54}",
        r"FLWSECK(?:_TEST)?-[A-Za-z0-9]{12,}+(?:-X)?",
        r"duffel_(?:test|live)_[\w=-]{40,}+",
        r"fio-u-[\w=-]{60,}+",
        r"rdme_[0-9a-z]{70}",
        r"p8e-[A-Za-z0-9]{32}",
        r"dnkey-[\w=-]{26}-[\w=-]{52}",
    ),
}
"""Secrets recognised by their own format; but for ``GLUED``, only at the start of a word."""

GLUED: Mapping[str, tuple[str, ...]] = {
    "anthropic": (r"sk-ant-(?:api|admin|sid|oat)\d\d-[\w-]{16,}+",),
    "github": (r"gh[pousr]_[A-Za-z0-9]{36}(?![A-Za-z0-9])", r"github_pat_\w{36,}+"),
    "gitlab": (r"glpat-[\w-]{20,}+",),
    "slack": (r"xox[abeoprs]-\d{8,}+-[A-Za-z0-9-]{10,}+",),
    "google": (r"AIza[\w-]{35}(?![\w-])",),
    "stripe": (r"[spr]k_live_[A-Za-z0-9]{24,}+", r"whsec_[A-Za-z0-9+/]{32,}+"),
    "sendgrid": (r"SG\.[\w-]{22}\.[\w-]{43}(?![\w-])",),
    "npm": (r"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])",),
    "pypi": (r"pypi-AgE[\w-]{40,}+",),
    "digitalocean": (r"do[opr]_v1_[0-9a-f]{64}",),
    "shopify": (r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",),
    "docker": (r"dckr_[op]at_[\w-]{20,}+",),
    "jwt": (r"eyJhbGci[\w-]{8,512}+\.eyJ[\w-]{4,}+(?:\.[\w-]*+)?",),
}
"""Tokens of a format so certain that a letter may stand before them, as where one is glued to a
word."""

PHRASES: Mapping[str, tuple[str, ...]] = {
    "private_key": (_PEM,),
    "url_password": (
        r"""://[^\s/:@"'<>]{0,256}+:(?P<>)[^\s/"'<>]{1,512}(?=@)""",
        r"""://(?P<>)(?=[a-z_-]{0,64}[0-9A-Z])[\w~-]{20,}+(?=@)""",
    ),
    "webhook": (
        r"/webhooks/(?P<>)\d{16,20}/[\w-]{40,}+",
        r"webhook\.office\.com/webhookb2/(?P<>)[\w@/-]{32,}+",
    ),
    "signature": (
        r"[&?]sig=(?P<>)[\w%+/=.-]{16,}+",
        rf"[&?]key=(?P<>){_HAS_DIGIT}[\w-]{{24,}}+",
        r"[sS]ignature=(?P<>)[\w%+/=~.-]{16,}+",
    ),
    "telegram": (r":(?<=\d{6}:)(?P<>)A[\w-]{34}(?![\w-])",),
    "azure_app": (r"Q~(?<=[\w.~-]{3}\d..)[\w.~-]{31,}+",),
    "terraform": (r"\.(?<=[A-Za-z0-9]{14}\.)atlasv1\.[\w=-]{50,}+",),
    "password": (  # of a line of .pgpass, at a port of PostgreSQL or of a pool before it
        (
            r""":(?<=[\w*.-]:)(?:54[3-9]\d|64\d\d|6543|25060|\*):(?!(?:[0-9A-Fa-f]{1,4}:){2}"""
            r"""[0-9A-Fa-f]{1,4}(?!\w))[\w*.-]{1,63}:[\w*.@+-]{1,63}:"""  # no address of IPv6
            r"""(?P<>)(?:\\[:\\]|[^\s:"'`,;()<>\\]){3,256}+(?!:)"""
        ),
    ),
    "mailchimp": (r"-us(?<=[0-9a-f]{32}-us)\d{1,2}(?!\w)",),
}
"""Secrets recognised by the text around them."""

_KEYS = "|".join(
    f"{name}{key}"
    for name in (
        *("api", "access", "auth", "account", "client", "private", "service", "secret"),
        *("signing", "encryption", "license", "licence"),
    )
    for key in ("[_-]key(?:[_-]?id)?", "key(?:id)?")
)
_PASSWORD = (
    rf"(?:{_ASSIGNED}(?:{_QUOTED}|(?P<>){_BARE}++)|{_VALUE_AFTER_NAME}|{_VALUE_NEXT}|{_ELEMENT}"
    rf"|{_STATED}(?P<>)(?:{_RANDOM}{{5,}}+|{_SIGNED}{{6,}}+|{_FOUR_WORDS}{{12,}}+)"
    r"""|\s{1,4}(?:'(?P<>)[^\s']{6,}+(?=')|"(?P<>)[^\s"]{6,}+(?=")))"""
)
_SECRET = (
    rf"(?:{_ASSIGNED}(?:{_QUOTED}|(?P<>){_BARE}{{6,}}+)|{_VALUE_AFTER_NAME}|{_VALUE_NEXT}|{_ELEMENT}"
    rf"|{_STATED}(?P<>){_RANDOM}{{16,}}+)"
)


_OPTION_VALUE = rf"(?!{_OPTION_WORDS})(?:{_QUOTED}|(?P<>)(?![-%$<|]){_CHAR}{{4,}}+)"


def _option(option: str) -> str:
    """Return the pattern of what follows a command's name where ``option`` takes a password."""
    return rf"""\s(?:[^\r\n|;]{{0,200}}?(?<=\s)){option}["']?(?P<>)[^\s"'|;]{{3,}}+"""


_ARGUMENT = r"""\s{1,4}[^\s|;&<>]{1,256}"""
_HTPASSWD = "|".join(
    rf"""(?=[^\r\n|;]{{0,64}}?\s-\w{{0,8}}(?-i:b)){goes_to_file}(?:\s{{1,4}}-\w{{1,8}}"""
    rf"""(?:\s{{1,4}}\d{{1,6}}(?=\s))?){{1,6}}+{arguments}\s{{1,4}}["']?(?P<>)"""
    rf"""(?!{_OPTION_WORDS}|pass(?:word|wd)?(?!\w))[^\s"'|;&<>]{{3,}}+"""
    for goes_to_file, arguments in (
        (r"(?=[^\r\n|;]{0,64}?\s-\w{0,8}(?-i:n))", _ARGUMENT),
        (r"(?![^\r\n|;]{0,64}?\s-\w{0,8}(?-i:n))", 2 * _ARGUMENT),
    )
)
"""With ``-n`` there is no file before the user."""


KEYWORDS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "bearer": (("bearer", r"\s{1,4}(?P<>)(?=[\w.~+/-]{0,64}[0-9])[\w.~+/-]{8,}+=*+"),),
    "basic": (
        ("basic", r"\s{1,4}(?P<>)[A-Za-z0-9+/_-]{8,}+={0,2}"),
        ("auth(?!or)", r"""\\?["']?\s{0,4}[:=]\s{0,4}\\?["']?(?P<>)[A-Za-z0-9+/_-]{8,}+={0,2}"""),
    ),
    "authorization": (
        (
            "authorization",
            rf"{_ASSIGNED}(?:{_QUOTED}|(?:\w{{1,16}} {{1,2}})?+(?P<>){_BARE}{{4,}}+)",
        ),
    ),
    "cookie": (
        ("cookie", r"""\\?["']?\s{0,4}:\s{0,4}\\?["']?(?P<>)(?=[^\s"'=]{1,128}=)[^\r\n"']{3,}+"""),
        ("phpsessid=", rf"(?P<>){_BARE}{{8,}}+"),
        ("jsessionid=", rf"(?P<>){_BARE}{{8,}}+"),
    ),
    "password": (
        ("password|passwd|passphrase|passcode|pwd", _PASSWORD),
        ("_auth=", rf"(?P<>){_BARE}{{6,}}+"),
        (r"pw(?<![A-Za-z]pw)", rf"{_ASSIGNED}(?P<>){_RANDOM}{{6,}}+"),
        (r"pass(?<![A-Za-z]pass)", rf"{_ASSIGNED}(?P<>){_RANDOM}{{6,}}+"),
        ("login ", r"\s{0,8}(?!and\b|or\b)\S{1,128}\s{1,8}password\s{1,8}(?P<>)\S{4,}+"),
        (
            "identified by",
            r"""\s{1,4}["'](?P<>)(?=\w{0,64}[^\w"']|\D{0,64}\d|.{8})[^"'\r\n]{1,256}+""",
        ),
    ),
    "secret": (
        (
            f"secret|token|credentials|credential|{_KEYS}",
            _SECRET,
        ),
        (
            "api key|access key|secret key|private key|license key",
            rf"(?:{_STATED}|{_ASSIGNED}\\?[\"']?)(?P<>){_RANDOM}{{10,}}+",
        ),
    ),
    "command": (
        (
            r"-(?<![\w-]-)-",
            (
                r"(?:[a-z0-9]{1,16}-){0,3}"
                r"(?:passw(?:or)?d|passphrase|pass|pw|pwd|token|secret|credentials?"
                r"|(?:api|access|secret|private|auth|account|client|encryption|signing)-?key)"
                rf"(?:\s{{1,4}}|=){_OPTION_VALUE}"
            ),
        ),
        ("-password|-storepass|-keypass|-passwd", rf"\s{{1,4}}{_OPTION_VALUE}"),
        (
            "curl",
            (
                r"""\s[^\r\n|;]{0,200}?(?<=\s)(?:-\w{0,6}u|--user|--proxy-user)[ =]{0,4}["']?"""
                r"""(?:[^\s:"']{0,128}:(?P<>)[^\s"']{2,}+|(?P<>)[^\s:"']{16,}+)"""
            ),
        ),
        (
            "http |https ",
            (
                r"""[^\r\n|;]{0,200}?(?<=\s)(?:-a|--auth)[ =]{1,4}["']?"""
                r"""[^\s:"']{0,128}:(?P<>)[^\s"']{2,}+"""
            ),
        ),
        ("mysql[a-z]{0,10}|mariadb[a-z-]{0,10}", _option(r"-p(?![\s-]|[\d:]+(?!\S))")),
        ("htp(?:asswd)", _HTPASSWD),
        ("sshpass", r"""\s{1,4}-p\s{0,4}["']?(?P<>)[^\s"']{3,}+"""),
        (
            (
                "mongo[a-z]{0,8}|docker login|podman login|skopeo login|az login|oc login"
                "|twine upload|cqlsh"
            ),
            _option(r"-p\s{1,4}(?!\d{2,5}(?!\S))"),
        ),
        ("redis-cli", _option(r"-a\s{1,4}")),
        ("ldap[a-z]{3,8}", _option(r"-w\s{1,4}")),
        ("sqlcmd|unzip|zip|mosquitto_[a-z]{3}", _option(r"-P\s{1,4}")),
        ("ssh-keygen", _option(r"-[NP]\s{1,4}")),
        ("smbclient", _option(r"-U\s{0,4}[^\s%]{1,64}%")),
        ("vault login|wandb login", rf"\s{{1,4}}(?:token=)?(?P<>){_RANDOM}{{16,}}+"),
        (
            "echo",
            (
                r"""(?: -n)?\s{1,4}["']?(?:(?P<>)[^\s"'|]{4,128}(?=["']?\s{0,4}\|\s{0,4}(?:sudo\s"""
                r"""[^\r\n|]{0,40}?-\w{0,8}S|[^\r\n|]{1,120}--password-stdin|passwd|cryptsetup|kinit(?![\w-])))"""
                r"""|[\w.-]{1,64}:(?P<>)[^\s"'|]{4,128}"""
                r"""(?=["']?\s{0,4}\|\s{0,4}(?:sudo )?chpasswd))"""
            ),
        ),
    ),
}
"""Secrets recognised by the word before them, in any case: that word, and what follows it."""


CARD = re.compile(
    r"[2-6](?<![A-Za-z0-9.+].)(?:\d{3}(?:[ -]?\d{4}){3}|(?<=3)[47]\d{2}[ -]?\d{6}[ -]?\d{5})"
    r"(?![\w-]|\.\d)"
)
"""A possible card number; a pattern of its own, as texts have more digits than anything else."""


def is_card(text: str) -> bool:
    """Return whether digits have the check digit of a card (ISO/IEC 7812-1, annex B)."""
    digits = [int(digit) for digit in reversed(text) if digit.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[1::2]]
    return len(set(digits)) > 1 and (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _is_basic(text: str) -> bool:
    """Return whether letters encode a name and a password, as in HTTP's basic scheme."""
    letters = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        decoded = b64decode(letters + "=" * (-len(letters) % 4))
    except binascii.Error:
        return False
    return decoded.isascii() and decoded.decode().isprintable() and b":" in decoded


CHECKS: Mapping[str, Callable[[str], bool]] = {"basic": _is_basic}
"""Checks by kind that a pattern cannot express."""

BEFORE: Mapping[str, int] = {"azure_app": 4, "terraform": 14, "mailchimp": 32}
"""How many characters of a secret stand before the part that is searched for, by kind."""

_GOES_ON = r"(?=[\w+/=.~-]{10})"
"""The least length of a token behind the character that it is found by."""

_SINGLE = re.compile(r"(?:\[[^\]]*\]|\\[.?]|[\w=/:~&@ -])(?![{?*+])")
_BY_RARITY = "~=_/:-?&.@ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789zqxjkvbwygpfmcudlhrsnioate "
"""The characters that a pattern can be found by, those rarest in texts and code first."""

_KEY_WORDS = frozenset(
    {
        *("pwd", "passwd", "auth", "token", "jwt", "bearer", "dsn"),
        *("cookie", "cookies", "setcookie", "sessionkey", "connectionstring"),
        *("cvv", "cvc", "cardnumber", "xamzsignature", "xgoogsignature"),
    }
)
_KEY_ENDS = (
    "password",
    "passphrase",
    "passcode",
    *(f"{place}pass" for place in ("db", "smtp", "mail", "ftp", "user", "root", "admin", "key")),
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
    "authkey",
    "accountkey",
    "clientkey",
    "servicekey",
    "licensekey",
    "authorization",
    "credential",
    "credentials",
)
_NOT_IN_KEYS = re.compile(r"[^a-z0-9]+")


def is_secret_key(key: str) -> bool:
    """Return whether a value under this key is a secret, however the key is spelt."""
    name = key[-64:].lower()
    if not name.isalpha():
        name = _NOT_IN_KEYS.sub("", name)
    return name.endswith(_KEY_ENDS) or name in _KEY_WORDS


class Kind(NamedTuple):
    """The kind of secret that one alternative of the pattern finds.

    Attributes:
        name: The kind of secret.
        before: How many characters of it stand before what the pattern finds.
        after: The pattern of what has to follow a keyword; ``None`` for other kinds.
    """

    name: str
    before: int = 0
    after: str | None = None


@cache
def known_kinds() -> tuple[re.Pattern[str], list[Kind]]:
    """Return the pattern that finds every secret, and the kind of each of its groups."""
    parts: list[str] = []
    kinds = [Kind("")]
    for anchor, (tokens, others) in _by_anchor().items():
        alike = [
            f"(?<={before})(?:{'|'.join(rest for _, rest in rests)})"
            for before, rests in tokens.items()
        ]
        apart = [f"{_GOES_ON}(?:{'|'.join(alike)})"] if alike else []
        rests = [*apart, *(rest for _, rest in others)]
        for kind, rest in (*chain(*tokens.values()), *others):
            kinds += [kind] * rest.count("(?P<>)")
        parts.append(f"{anchor}(?:{'|'.join(rests)})")
    return re.compile("|".join(parts).replace("(?P<>)", "()")), kinds


@cache
def following(after: str) -> re.Pattern[str]:
    """Return the pattern of what follows a keyword, compiled when such a word is first met."""
    return re.compile(after.replace("(?P<>)", "()"), re.IGNORECASE)


_Rests: TypeAlias = list[tuple[Kind, str]]
"""Kinds, each with its pattern relative to one character."""


def _by_anchor() -> dict[str, tuple[dict[str, _Rests], _Rests]]:
    """Return the patterns of tokens and of other kinds, by the character that they are found by.

    Tokens are grouped by what stands before that character, which rules out most text already.
    The search stops only at such a character, so each pattern is found by the rarest of those that
    it begins with: half the time of a search by the first.
    """
    anchors: dict[str, tuple[dict[str, _Rests], _Rests]] = {}
    bounded = [(token, f"(?<![{_WORD}])") for token in _each(TOKENS)]
    for (kind, pattern), bound in [*bounded, *((glued, "") for glued in _each(GLUED))]:
        place, start, rest = _anchor(pattern)
        behind = f"(?<={bound}{''.join(start[: place + 1])})"
        whole = f"{behind}{''.join(start[place + 1 :])}{rest}(?P<>)"
        before = "".join(start[max(0, place - 1) : place + 1])
        alike = anchors.setdefault(start[place], ({}, []))[0].setdefault(before, [])
        alike.append((Kind(kind, place), whole))
    for kind, pattern in _each(PHRASES):
        place, start, rest = _anchor(pattern)
        behind = f"(?<={''.join(start[: place + 1])})" if place else ""
        whole = f"{behind}{''.join(start[place + 1 :])}{rest}"
        whole += "" if "(?P<>)" in pattern else "(?P<>)"
        known = Kind(kind, place + BEFORE.get(kind, 0))
        anchors.setdefault(start[place], ({}, []))[1].append((known, whole))
    for kind, pairs in KEYWORDS.items():
        for words, after in pairs:
            for word in words.split("|"):
                place, start, rest = _anchor(word)
                behind = f"(?<={''.join(start)})" if place else ""
                whole = f"(?i:{''.join(start[place + 1 :])}{behind}{rest})(?P<>)"
                for letter in dict.fromkeys((start[place], start[place].upper())):
                    anchors.setdefault(letter, ({}, []))[1].append(
                        (Kind(kind, place, after), whole)
                    )
    return anchors


def _anchor(pattern: str) -> tuple[int, list[str], str]:
    """Return the index of the rarest character in the start of a pattern, that start, and the rest.

    The start is a list of single characters and classes.
    """
    start, end = [], 0
    while (match := _SINGLE.match(pattern, end)) is not None:
        start.append(match[0])
        end = match.end()
    literals = [place for place, single in enumerate(start) if single[-1] in _BY_RARITY]
    return min(literals, key=lambda n: _BY_RARITY.index(start[n][-1])), start, pattern[end:]


def _each(patterns: Mapping[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(kind, pattern) for kind, alternatives in patterns.items() for pattern in alternatives]
