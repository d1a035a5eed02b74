"""Secrets drawn at random in the formats of those who issue them, and the ways to hide them."""

import base64
import json
import random
import string
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import quote
from uuid import UUID

LOWER_HEX = "0123456789abcdef"
WORD = string.ascii_letters + string.digits
URL_SAFE = WORD + "-_"
BASE32 = string.ascii_uppercase + "234567"
UPPER = string.ascii_uppercase + string.digits

Draw = Callable[[random.Random], "Secret"]


class Secret(NamedTuple):
    """A secret as it stands in a text.

    Attributes:
        kind: Its kind.
        text: Its text, with the words that mark it as a secret (``password=``).
        core: The part that must not be left.
    """

    kind: str
    text: str
    core: str


def _drawn(rng: random.Random, letters: str, length: int) -> str:
    return "".join(rng.choices(letters, k=length))


def _token(kind: str, prefix: str, letters: str, length: int, end: str = "") -> Draw:
    def draw(rng: random.Random) -> Secret:
        text = prefix + _drawn(rng, letters, length) + end
        return Secret(kind, text, text)

    return draw


def _phrase(kind: str, pattern: str, letters: str, length: int) -> Draw:
    def draw(rng: random.Random) -> Secret:
        core = _drawn(rng, letters, length)
        return Secret(kind, pattern.format(core), core)

    return draw


def _jwt(rng: random.Random) -> Secret:
    parts = (
        {"alg": "HS256", "typ": "JWT"},
        {"sub": str(rng.random()), "iat": rng.randrange(2**31)},
    )
    encoded = [
        base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=").decode() for p in parts
    ]
    text = ".".join([*encoded, _drawn(rng, URL_SAFE, 43)])
    return Secret("jwt", text, text)


def _private_key(rng: random.Random) -> Secret:
    kind = rng.choice(["RSA ", "EC ", "OPENSSH ", ""])
    lines = [_drawn(rng, WORD + "+/", 64) for _ in range(8)]
    core = "\n".join(lines)
    return Secret("private_key", f"-----BEGIN {kind}PRIVATE KEY-----\n{core}\n-----END {kind}PRIVATE KEY-----", core)  # fmt: skip # noqa: E501


def _sendgrid(rng: random.Random) -> Secret:
    text = f"S{'G'}.{_drawn(rng, URL_SAFE, 22)}.{_drawn(rng, URL_SAFE, 43)}"
    return Secret("sendgrid", text, text)


def _slack(rng: random.Random) -> Secret:
    numbers = "-".join(_drawn(rng, string.digits, 12) for _ in range(2))
    text = f"xo{'x'}{rng.choice('bpar')}-{numbers}-{_drawn(rng, WORD, 24)}"
    return Secret("slack", text, text)


def _langfuse(rng: random.Random) -> Secret:
    text = f"{'sk'}-lf-{UUID(bytes=rng.randbytes(16), version=4)}"
    return Secret("langfuse", text, text)


def _discord(rng: random.Random) -> Secret:
    text = f"{'M'}T{_drawn(rng, WORD, 24)}.G{_drawn(rng, WORD, 5)}.{_drawn(rng, URL_SAFE, 38)}"
    return Secret("discord", text, text)


def _service_account(rng: random.Random) -> Secret:
    core = "\n".join(_drawn(rng, WORD + "+/", 64) for _ in range(24))
    pem = f"-----BEGIN {'PRIVATE'} KEY-----\n{core}\n-----END {'PRIVATE'} KEY-----\n"
    account = {"type": "service_account", "private_key_id": "0a1b2c", "private_key": pem}
    return Secret("google account", json.dumps(account), core.replace("\n", "\\n"))


def _card(rng: random.Random) -> Secret:
    digits = rng.choice("45") + "".join(rng.choice("123456789") for _ in range(14))
    doubled = [sum(divmod(int(d) * (2 - n % 2), 10)) for n, d in enumerate(digits)]
    digits += str(-sum(doubled) % 10)
    gap = rng.choice(["", " ", "-"])
    text = gap.join(digits[n : n + 4] for n in range(0, 16, 4))
    return Secret("card", text, text)


def _docker_auth(rng: random.Random) -> Secret:
    core = base64.b64encode(f"ada:{_drawn(rng, WORD, 16)}".encode()).decode()
    return Secret("docker auth", f'{{"auths": {{"reg.io": {{"auth": "{core}"}}}}}}', core)


def _pgp_key(rng: random.Random) -> Secret:
    core = "\n".join(_drawn(rng, WORD + "+/", 64) for _ in range(8))
    kind = "PGP " + "PRIVATE KEY BLOCK"
    text = f"-----BEGIN {kind}-----\n\n{core}\n=aB3d\n-----END {kind}-----"
    return Secret("PGP key", text, core)


KINDS: Mapping[str, Draw] = {
    "anthropic": _token("anthropic", "sk-" + "ant-api03-", URL_SAFE, 93, "AA"),
    "openai": _token("openai", "sk-" + "proj-", WORD, 48),
    "github": _token("github", "gh" + "p_", WORD, 36),
    "github fine-grained": _token("github fine-grained", "github" + "_pat_", WORD, 82),
    "gitlab": _token("gitlab", "gl" + "pat-", WORD, 20),
    "slack": _slack,
    "slack hook": _phrase(
        "slack hook", "https://hooks.slack" + ".com/services/T0AB12CD3/B0AB12CD3/{}", WORD, 24
    ),
    "aws": _token("aws", "AK" + "IA", BASE32, 16),
    "aws secret": _phrase("aws secret", "aws_secret_access_key = {}", WORD + "+/", 40),
    "google": _token("google", "AI" + "za", URL_SAFE, 35),
    "google oauth": _token("google oauth", "GOC" + "SPX-", WORD, 28),
    "stripe": _token("stripe", "sk" + "_live_", WORD, 24),
    "stripe hook": _token("stripe hook", "wh" + "sec_", WORD, 32),
    "twilio": _token("twilio", "S" + "K", LOWER_HEX, 32),
    "sendgrid": _sendgrid,
    "mailgun": _token("mailgun", "ke" + "y-", LOWER_HEX, 32),
    "npm": _token("npm", "np" + "m_", WORD, 36),
    "pypi": _token("pypi", "py" + "pi-AgEIcHlwaS5vcmc", URL_SAFE, 120),
    "huggingface": _token("huggingface", "h" + "f_", string.ascii_letters, 34),
    "groq": _token("groq", "gs" + "k_", WORD, 52),
    "xai": _token("xai", "xa" + "i-", WORD, 80),
    "replicate": _token("replicate", "r" + "8_", WORD, 37),
    "databricks": _token("databricks", "dap" + "i", LOWER_HEX, 32),
    "digitalocean": _token("digitalocean", "do" + "p_v1_", LOWER_HEX, 64),
    "shopify": _token("shopify", "shp" + "at_", LOWER_HEX, 32),
    "docker": _token("docker", "dckr" + "_pat_", URL_SAFE, 27),
    "vault": _token("vault", "hv" + "s.", URL_SAFE, 90),
    "linear": _token("linear", "lin" + "_api_", WORD, 40),
    "newrelic": _token("newrelic", "NRA" + "K-", UPPER, 27),
    "age": _token("age", "AGE-SECRET" + "-KEY-1", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "jwt": _jwt,
    "private key": _private_key,
    "password in a URL": _phrase(
        "password in a URL", "postgresql://app:{}@db.example.com/x", WORD, 16
    ),
    "azure": _phrase("azure", "AccountName=x;AccountKey={}==;EndpointSuffix=core", WORD + "+/", 86),
    "bearer": _phrase("bearer", "Bearer {}", WORD, 40),
    "authorization": _phrase("authorization", "Authorization: Basic {}", WORD, 28),
    "cookie": _phrase("cookie", "Cookie: sid={}", WORD, 32),
    "password": _phrase("password", "DB_PASSWORD={}", WORD + "!#%+-", 16),
    "api key": _phrase("api key", "api_key: {}", WORD, 32),
    "telegram": _phrase("telegram", "8123456789:A{}", URL_SAFE, 34),
    "discord": _discord,
    "discord hook": _phrase(
        "discord hook", "https://discord" + ".com/api/webhooks/1098765432109876543/{}", URL_SAFE, 68
    ),
    "langsmith": _phrase("langsmith", "lsv2" + "_pt_{}_0a1b2c3d4e", LOWER_HEX, 32),
    "tavily": _token("tavily", "tv" + "ly-dev-", WORD, 32),
    "perplexity": _token("perplexity", "pp" + "lx-", WORD, 48),
    "pinecone": _token("pinecone", "pc" + "sk_", WORD, 63),
    "notion": _token("notion", "nt" + "n_12345678901", WORD, 35),
    "notion secret": _token("notion secret", "sec" + "ret_", WORD, 43),
    "supabase": _token("supabase", "sb" + "p_", LOWER_HEX, 40),
    "supabase secret": _token("supabase secret", "sb" + "_secret_", URL_SAFE, 31),
    "fireworks": _token("fireworks", "f" + "w_", WORD, 24),
    "google refresh": _token("google refresh", "1/" + "/0", URL_SAFE, 60),
    "google account": _service_account,
    "card": _card,
    "openrouter": _token("openrouter", "sk-" + "or-v1-", LOWER_HEX, 64),
    "nvidia": _token("nvidia", "nv" + "api-", URL_SAFE, 64),
    "langfuse": _langfuse,
    "elevenlabs": _token("elevenlabs", "s" + "k_", LOWER_HEX, 48),
    "azure app": _phrase("azure app", "aB1" + "8Q~{}", URL_SAFE, 34),
    "alibaba": _token("alibaba", "LT" + "AI", WORD, 20),
    "bedrock": _token("bedrock", "AB" + "SK", WORD + "+/", 128),
    "airtable": _phrase("airtable", "pat" + "Ab3dE5gH7jK9mN.{}", LOWER_HEX, 64),
    "atlassian": _token("atlassian", "ATA" + "TT3", URL_SAFE, 186),
    "artifactory": _token("artifactory", "AK" + "Cp", WORD, 69),
    "doppler": _token("doppler", "dp" + ".pt.", WORD, 43),
    "dynatrace": _phrase("dynatrace", "dt0" + "c01.AB3DE5GH7JK9MN1PQ3ST5VW7.{}", UPPER, 64),
    "fly": _token("fly", "fo" + "1_", URL_SAFE, 43),
    "grafana": _phrase("grafana", "gl" + "sa_{}_0a1b2c3d", WORD, 32),
    "heroku": _token("heroku", "HRK" + "U-AA", URL_SAFE, 58),
    "mailchimp": _token("mailchimp", "", LOWER_HEX, 32, "-us" + "12"),
    "planetscale": _token("planetscale", "pscale" + "_pw_", URL_SAFE, 43),
    "postman": _phrase("postman", "PM" + "AK-0123456789abcdef01234567-{}", LOWER_HEX, 34),
    "pulumi": _token("pulumi", "pu" + "l-", LOWER_HEX, 40),
    "rubygems": _token("rubygems", "ruby" + "gems_", LOWER_HEX, 48),
    "sentry": _token("sentry", "sntr" + "yu_", LOWER_HEX, 64),
    "shippo": _token("shippo", "ship" + "po_live_", LOWER_HEX, 40),
    "sonar": _token("sonar", "sq" + "p_", LOWER_HEX, 40),
    "square": _token("square", "sq0" + "atp-", URL_SAFE, 22),
    "typeform": _token("typeform", "tf" + "p_", URL_SAFE, 59),
    "brevo": _phrase("brevo", "xkey" + "sib-{}-aB3dE5gH7jK9mN1p", LOWER_HEX, 64),
    "1password": _token("1password", "ops" + "_eyJ", WORD, 260),
    "terraform": _phrase("terraform", "aB3dE5gH7jK9mN" + ".atlasv1.{}", URL_SAFE, 64),
    "teams hook": _phrase(
        "teams hook",
        "https://acme.webhook" + ".office.com/webhookb2/0a1b2c3d@0a1b/IncomingWebhook/{}/0a1b2c3d",
        LOWER_HEX,
        32,
    ),
    "signed S3 URL": _phrase(
        "signed S3 URL",
        "https://b.s3.amazonaws.com/k?X-Amz-Expires=60&X-Amz-Signature={}",
        LOWER_HEX,
        64,
    ),
    "signed GCS URL": _phrase(
        "signed GCS URL", "https://storage.googleapis.com/b/k?X-Goog-Signature={}", LOWER_HEX, 128
    ),
    "signed CDN URL": _phrase(
        "signed CDN URL",
        "https://d1.cloudfront.net/k?Expires=1&Signature={}&Key-Pair-Id=K1",
        URL_SAFE,
        120,
    ),
    "token in a URL": _phrase("token in a URL", "https://{}@git.example.com/a/b.git", WORD, 40),
    "--password": _phrase("--password", "psql -h db --password {} -c 'select 1'", WORD, 16),
    "--token": _phrase("--token", "deploy --token {} --now", WORD, 24),
    "--api-key": _phrase("--api-key", "llm --api-key {} ask", WORD, 24),
    "curl -u": _phrase("curl -u", "curl -sS -u admin:{} https://api.example.com/v1", WORD, 16),
    "mysql -p": _phrase("mysql -p", "mysql -u root -p{} shop", WORD, 16),
    "sshpass": _phrase("sshpass", "sshpass -p {} ssh root@example.com", WORD, 16),
    "redis-cli": _phrase("redis-cli", "redis-cli -h cache -a {} ping", WORD, 16),
    "docker login": _phrase("docker login", "docker login -u ada -p {} reg.example.com", WORD, 16),
    "password of sudo": _phrase("password of sudo", "echo {} | sudo -S id", WORD, 16),
    "password, a word": _phrase("password, a word", "log in as ada, password {}", WORD, 16),
    "password, said": _phrase("password, said", "the password is {}", WORD + "!#%", 16),
    "key, said": _phrase("key, said", "your API key is {}", WORD, 32),
    "netrc": _phrase("netrc", "machine api.example.com login ada password {}", WORD, 16),
    "docker auth": _docker_auth,
    "SQL": _phrase("SQL", "create user ada identified by '{}'", WORD, 16),
    "XML": _phrase("XML", "<user>ada</user><password>{}</password>", WORD, 16),
    "env of a pod": _phrase("env of a pod", "- name: DB_PASSWORD\n  value: {}", WORD, 16),
    "npmrc": _phrase("npmrc", "//registry.npmjs.org/:_authToken={}", WORD, 36),
    "PGP key": _pgp_key,
}
"""The function that draws each kind."""


class Planted(NamedTuple):
    """A secret hidden in a value, and the pieces of which none may be left.

    Attributes:
        value: Text or plain data.
        traces: The texts that give the secret away if they are kept.
    """

    value: object
    traces: tuple[str, ...]


WINDOW = 12


def pieces(core: str) -> tuple[str, ...]:
    """Return what counts as left of a secret: a piece of twelve characters from each quarter."""
    room = len(core) - WINDOW
    return tuple({core[max(0, room * part // 4) :][:WINDOW] for part in range(5)})


def _plain(secret: Secret, rng: random.Random) -> Planted:
    text = rng.choice(["use {} and go on", "({})", "it is {}", "{}", 'said "{}" to me', "a\n{}\nb"])
    return Planted(text.format(secret.text), pieces(secret.core))


def _nested(secret: Secret, rng: random.Random) -> Planted:
    value: object = secret.text
    for depth in range(rng.randrange(1, 6)):
        value = rng.choice([[value], {f"level{depth}": value}, ["x", value, 3], (value, None)])
    return Planted({"args": value}, pieces(secret.core))


def _as_a_name(secret: Secret, rng: random.Random) -> Planted:
    return Planted({secret.text: rng.random()}, pieces(secret.core))


def _in_url(secret: Secret, rng: random.Random) -> Planted:
    text = f"https://example.com/?q={quote(f'say {secret.text} now', safe='')}&r=1"
    return Planted(text, pieces(quote(secret.core, safe="")) + pieces(secret.core))


def _in_json(secret: Secret, rng: random.Random) -> Planted:
    text = json.dumps({"body": json.dumps({"note": f"say {secret.text} now"})})
    return Planted(text, pieces(secret.core.replace("\n", "\\\\n")) + pieces(secret.core))


def _in_unicode(secret: Secret, rng: random.Random) -> Planted:
    escaped = "".join(f"\\u{ord(c):04x}" if not c.isalnum() else c for c in secret.text)
    return Planted(f"note: {escaped} end", pieces(secret.core))


def _in_base64(secret: Secret, rng: random.Random) -> Planted:
    inside = f"{'x' * rng.randrange(4)} {secret.text} " + "y" * rng.randrange(4)
    encode = rng.choice([base64.b64encode, base64.urlsafe_b64encode])
    text = encode(inside.encode()).decode()
    return Planted(f"data: {text};", pieces(text))


def _in_wrapped_base64(secret: Secret, rng: random.Random) -> Planted:
    text = base64.encodebytes(f"see the file: {secret.text}, and so on".encode()).decode()
    return Planted(f"body:\n{text}", pieces(text.replace("\n", "")[:70]))


def _in_hex(secret: Secret, rng: random.Random) -> Planted:
    text = f"at {secret.text} ".encode().hex()
    return Planted(f"dump {text} end", pieces(text))


def _broken(secret: Secret, rng: random.Random) -> Planted:
    """Break it within what has to be kept secret, as an editor or a mail would."""
    place = secret.text.rindex(secret.core) + rng.randrange(8, max(9, len(secret.core) - 8))
    gap = rng.choice(["\n", "\r\n", "\\\n", "\n    ", '" +\n    "'])
    text = secret.text[:place] + gap + secret.text[place:]
    return Planted(f"key: {text}\nand so on", (secret.text[place:][:WINDOW],))


def _cut_in_two(secret: Secret, rng: random.Random) -> Planted:
    """Put it into two values that follow each other; to know one half is to know nothing."""
    place = secret.text.rindex(secret.core) + len(secret.core) // 2
    halves = secret.text[:place], secret.text[place:]
    value = rng.choice([[*halves], {"a": halves[0], "b": halves[1]}, {"x": ["--k", *halves]}])
    joined = "\0".join(half[-WINDOW:] if n == 0 else half[:WINDOW] for n, half in enumerate(halves))
    return Planted({"args": value}, (joined,))


def _named_before(secret: Secret, rng: random.Random) -> Planted:
    name = rng.choice(["--password", "API_KEY", "--api-key", "client_secret", "access_token"])
    value = rng.choice([{"args": ["run", name, secret.core]}, {"name": name, "value": secret.core}])
    return Planted({"env": [value]}, pieces(secret.core))


Hide = Callable[[Secret, random.Random], Planted]

FORMS: Mapping[str, Hide] = {
    "plain": _plain,
    "nested": _nested,
    "as a name": _as_a_name,
    "URL-encoded": _in_url,
    "JSON-escaped": _in_json,
    "escaped as unicode": _in_unicode,
    "base64": _in_base64,
    "base64 over lines": _in_wrapped_base64,
    "hexadecimal": _in_hex,
    "over two lines": _broken,
    "over two values": _cut_in_two,
    "named by the value before": _named_before,
}
"""The ways to hide one."""

WHOLE = frozenset({"over two lines", "over two values"})
"""Forms for tokens alone: a secret after a marking word ends where the line or value ends."""

TOLD_BY_WORDS = frozenset(
    {
        *("password in a URL", "azure", "bearer", "authorization", "cookie", "password", "api key"),
        *("aws secret", "telegram", "discord hook", "teams hook", "card", "google account"),
        *("signed S3 URL", "signed GCS URL", "signed CDN URL", "token in a URL", "--password"),
        *("--token", "--api-key", "curl -u", "mysql -p", "sshpass", "redis-cli", "docker login"),
        *("password of sudo", "password, a word", "password, said", "key, said", "netrc"),
        *("docker auth", "SQL", "XML", "env of a pod", "npmrc"),
    }
)


def is_left(planted: Planted, kept: str) -> bool:
    """Return whether a secret can be read from what was kept."""
    return any(all(part in kept for part in trace.split("\0")) for trace in planted.traces)
