"""One module per subcommand; each has ``register(subparsers)`` and sets ``run`` to a function of the parsed options."""
