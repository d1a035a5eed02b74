"""What structlog prints, and where: standard error, never where the data goes."""

import logging
import sys

import structlog

from tau_live.guard import without_secrets


def configure(*, verbose: bool) -> None:
    """Let log lines go to standard error: warnings, or with ``verbose`` everything."""
    colors = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,  # the renderer's own would show local variables
            without_secrets,
            structlog.dev.ConsoleRenderer(colors=colors),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.DEBUG if verbose else logging.WARNING
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
