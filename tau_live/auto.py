"""``import tau_live.auto`` attaches to every known host, imported before or not."""

from tau_live.attaching.booting import boot

boot("auto")
