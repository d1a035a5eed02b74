"""``import tau_live.auto`` attaches to every known host, imported before or not."""

from tau_live.boot.boot import boot

boot("auto")
