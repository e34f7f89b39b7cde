"""Sizes that the storage accepts. The CHECKs of the schema say the same, and a test compares them."""

from typing import Final

TITLE_CHARS_MAX: Final = 500
"""Of an event, an item and a run."""
MESSAGE_ID_CHARS_MAX: Final = 512
"""Also of the id of an item, and of the subkey of a call in one."""
ORDERING_KEY_CHARS_MAX: Final = 256
"""A longer key is kept as a hash of itself."""
NOTE_CHARS_MAX: Final = 2_000
"""Of what a connector notes about a call."""
PEEK_DEFAULT: Final = 100
"""Rows of one page, if the reader does not say."""
PEEK_MAX: Final = 1000
"""Events of one peek."""
PROPOSAL_SOURCE_CHARS_MAX: Final = 262_144
PROPOSAL_NOTE_CHARS_MAX: Final = 4_000
PROPOSAL_NAME_CHARS_MAX: Final = 200
"""Also of the name of whoever proposes."""
PROPOSALS_OPEN_MAX: Final = 20
"""In all workflows together: people must be able to read them."""
PROPOSALS_A_DAY_MAX: Final = 100
"""A replaced one leaves a row, without its source."""
PROPOSAL_OPEN_MS: Final = 14 * 86_400_000
"""Afterwards it expires: what it was made for has changed meanwhile."""
