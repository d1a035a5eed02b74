"""A secret of every kind, text that only looks like one, and who hides it."""

from tau_live.core.events import Event
from tau_live.core.redaction import Redactor

NONE = Redactor()
KEEPS = Redactor("redacted", 200)

# Put together here, so that no scanner takes this file for a leak.
LETTERS = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9" * 4
HEX = "0123456789abcdef" * 4
UPPER = "ABCDEFGHIJ234567KLMNOPQRST" * 3
SECRETS = {
    "anthropic": ["sk-" + "ant-api03-" + LETTERS[:40]],
    "openai": ["sk-" + "proj-" + LETTERS[:40], "sk-" + LETTERS[:48]],
    "github": ["gh" + "p_" + LETTERS[:36], "github" + "_pat_" + LETTERS[:60]],
    "gitlab": ["gl" + "pat-" + LETTERS[:20]],
    "slack": [
        "xox" + "b-123456789012-" + LETTERS[:24],
        "hooks.slack" + ".com/services/T00000000/B00000000/" + LETTERS[:24],
    ],
    "aws": ["AK" + "IA" + UPPER[:16]],
    "google": [
        "AI" + "za" + LETTERS[:35],
        "ya" + "29." + LETTERS[:40],
        "GOC" + "SPX-" + LETTERS[:28],
    ],
    "stripe": ["sk" + "_live_" + LETTERS[:24], "wh" + "sec_" + LETTERS[:32]],
    "twilio": ["S" + "K" + HEX[:32]],
    "sendgrid": ["S" + "G." + LETTERS[:22] + "." + LETTERS[:43]],
    "mailgun": ["ke" + "y-" + HEX[:32]],
    "npm": ["np" + "m_" + LETTERS[:36]],
    "pypi": ["py" + "pi-AgEIcHlwaS5vcmc" + LETTERS[:60]],
    "huggingface": ["h" + "f_" + LETTERS[:34]],
    "groq": ["gs" + "k_" + LETTERS[:52]],
    "xai": ["xa" + "i-" + LETTERS[:80]],
    "replicate": ["r" + "8_" + LETTERS[:37]],
    "databricks": ["dap" + "i" + HEX[:32]],
    "digitalocean": ["do" + "p_v1_" + HEX[:64]],
    "shopify": ["shp" + "at_" + HEX[:32]],
    "docker": ["dckr" + "_pat_" + LETTERS[:27]],
    "vault": ["hv" + "s." + LETTERS[:40]],
    "linear": ["lin" + "_api_" + LETTERS[:40]],
    "newrelic": ["NRA" + "K-" + UPPER[:27]],
    "age": ["AGE-SECRET" + "-KEY-1" + UPPER[:58]],
    "jwt": ["ey" + "J" + LETTERS[:20] + ".ey" + "J" + LETTERS[:30] + "." + LETTERS[:43]],
    "private_key": [
        "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIE+/=\nab-c\n-----END RSA " + "PRIVATE KEY-----",
        "-----BEGIN " + "PRIVATE KEY-----\\nMIIE",
    ],
    "url_password": [
        "postgresql://app:hunter2hunter2@db.example.com/x",
        "redis://:hunter2hunter2@localhost:6379/0",
        "https://me:p@ss:w0rd-hunter2@example.com/",
    ],
    "azure_app": ["aB1" + "8Q~" + LETTERS[:34]],
    "signature": [
        "https://x.blob.core.windows.net/c?se=1&sig=" + LETTERS[:40] + "%3D",
        "https://b.s3.amazonaws.com/k?X-Amz-Signature=" + HEX,
        "https://maps.example.com/tile?key=" + LETTERS[:32],
    ],
    "webhook": ["https://discord" + ".com/api/webhooks/109876543210987654/" + LETTERS[:68]],
    "telegram": ["8123456789:A" + LETTERS[:34]],
    "discord": ["MT" + LETTERS[:24] + ".Gx3b5d." + LETTERS[:38]],
    "langfuse": ["sk-" + "lf-12345678-1234-4123-8123-" + HEX[:12]],
    "notion": ["nt" + "n_12345678901" + LETTERS[:35], "sec" + "ret_" + LETTERS[:43]],
    "supabase": ["sb" + "p_" + HEX[:40]],
    "atlassian": ["ATA" + "TT3" + LETTERS[:90]],
    "terraform": [LETTERS[:14] + ".atlas" + "v1." + LETTERS[:64]],
    "mailchimp": [HEX[:32] + "-us" + "12"],
    "token": [
        "pp" + "lx-" + LETTERS[:48],
        "tv" + "ly-dev-" + LETTERS[:32],
        "f" + "w_" + LETTERS[:24],
    ],
    "card": ["4111 1111 " + "1111 1111", "37828224" + "6310005"],
    "basic": [
        "curl -H 'Proxy-Auth: Basic YWRhOmh1bnRlcjJodW50ZXIy'",
        '{"auths": {"reg.io": {"auth": "YWRhOmh1bnRlcjJodW50ZXIy"}}}',
    ],
    "command": [
        "psql --password hunter2hunter2 -h db",
        "deploy --api-key 'hunter2 hunter2'",
        "curl -sSu ada:hunter2hunter2 https://example.com",
        "mysql -u root -phunter2hunter2 shop",
        "sshpass -p hunter2hunter2 ssh root@example.com",
        "docker login -u ada -p hunter2hunter2 reg.io",
        "echo hunter2hunter2 | sudo -S id",
        "echo hunter2hunter2 | kinit ada@EXAMPLE.COM",
        "htpasswd -b /etc/nginx/.htpasswd ada hunter2hunter2",
        "htpasswd -nbB -C 10 ada 'hunter2hunter2' > f",
    ],
    "bearer": ["Bearer " + LETTERS[:30], "bearer  " + LETTERS[:30] + "=="],
    "authorization": [
        "Authorization: Basic " + LETTERS[:20],
        '"authorization": "Token ' + LETTERS[:20] + '"',
    ],
    "cookie": ["Cookie: sid=hunter2hunter2; theme=dark", '"set-cookie": "sid=hunter2hunter2"'],
    "password": [
        "password=hunter2hunter2",
        "DB_PASSWORD: 'hunter2 hunter2'",
        '{"pwd": "hunter2hunter2"}',
        '\\"passwd\\": \\"hunter2hunter2\\"',
        "passphrase => hunter2hunter2",
        "log in as ada, password hunter2hunter2",
        "openssl rsa -passin pass:hunter2hunter2",
        "the password is hunter2hunter2!",
        "machine example.com login ada password hunter2hunter2",
        "create user ada identified by 'hunter2 hunter2'",
        "<password>hunter2hunter2</password>",
        "db.example.com:5432:shop:ada:hunter2hunter2",
        "*:*:*:ada:hunter2\\:hunter2",
        "- name: DB_PASSWORD\n  value: hunter2hunter2",
    ],
    "secret": [
        "api_key: hunter2hunter2",
        "APIKEY=hunter2hunter2",
        "client_secret='hunter2hunter2'",
        '{"access_token": "hunter2hunter2"}',
        "aws_secret_access_key = hunter2hunter2",
        "AWS_ACCESS_KEY_ID=hunter2hunter2",
        "your API key is hunter2hunter2",
        "AccountName=x;AccountKey=" + LETTERS[:60] + "==",
    ],
}
BENIGN = [
    "The secretary's token of appreciation: see https://example.com:8080/a?b=c@d",
    "max_tokens=4096, input_tokens: 12, token_count: 77",
    "skip the task-list, mask-image and risk-free desk-work",
    "the bearer of good news and a cookie",
    "monkey-see monkey-do, eyJ is how a JWT begins",
    "commit 0123456789abcdef0123456789abcdef01234567 on main",
    "user@example.com wrote to http://example.com/~user",
    "5f0d7f0e-2b0c-5c53-9a5e-0d1f6f1d7c11",
    "the password is required; the token was revoked at 12:30, the API key rotates every 90 days",
    "Use --password to be prompted, or --token TOKEN; docker run -p 8080:80; zip -r out.zip dir",
    "the password is hashed with PBKDF2-HMAC-SHA256, never end-to-end-encrypted",
    "order 4000 1234 5678 9011, ISBN 978-3-16-148410-0, 1732275600000000000 ns",
    "2001:5432:5678:9abc:def0, app.py:5432:1: error: x, at 12:54:33:20:1 in localhost:5432:x:y",
    "htpasswd -b passwdfile username password; htpasswd -cB file ada; echo done | kinit_log",
    "man\u00adag\u00ading \U0001f469\u200d\U0001f469\u200d\U0001f467",
    "risk_live_views, highs_and_lows_of_the_day, shelf_npm_packages_of_the_last_twelve_months_2026",
    "a Set-Cookie: header; Basic understanding; auth: disabled; password: required",
]


def mapped(raw: dict[str, object]) -> Event:
    return Event(event="x", host="h", run_id="r", at=1.0, raw=raw)
