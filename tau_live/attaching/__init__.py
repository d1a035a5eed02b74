"""How a process gets attached: one ``boot()``, the hosts found, what each is doing."""
