"""The types of events: `eventstore.events`, under this package's name."""

from eventstore.events import *  # noqa: F403
from eventstore.events import __all__ as __all__
