"""Settings of the connector: the endpoint, the model, its prices, and how long an answer is kept."""

from pathlib import Path
from typing import Final, Literal

import msgspec

from keep_actors.connectors import Risk
from keep_actors.outbound.secret import Secret
from keep_actors.services.http.settings import HttpEndpointSettings, duration_ms
from keep_actors.services.service import SettingsError

TOKENS_MAX: Final = 1_000_000
PRICE_MAX: Final = 1_000_000


class ChatPrices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The price of a million tokens, in the host's currency."""

    input: float
    output: float


class ChatSettings(HttpEndpointSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one model at one endpoint."""

    model: str
    api_key: Secret | None = None
    prices: ChatPrices | None = None
    """None: no cost is reported."""
    tokens_max: int = 4_096
    """The most that one answer may have, and what is asked for if a script says nothing."""
    limit_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The name of that limit at this endpoint."""
    temperature: float | None = None
    """Asked for if a script says nothing. None: the model's own."""
    question_bytes_max: int = 200_000
    answer_timeout_s: int = 120
    """For the whole answer."""
    at_once: int = 4
    """Requests at the same time; more wait."""
    keep_answers: str = "24h"
    """How long the same question of a workflow has the same answer: as long as a failing handler is tried again."""
    answers_max: int = 1_000
    """The most answers that are kept in memory. The oldest goes first."""
    folder: Path | None = None
    """Where answers are kept as well, so that they survive a restart."""
    risk: Risk = "medium"
    permission: str | None = None


def check_chat(settings: ChatSettings) -> int:
    """Refuse settings that cannot work. Returns the time for which answers are kept. Raises `SettingsError`."""
    if not settings.model.strip():
        raise SettingsError("model", "is empty; write the name that the endpoint knows")
    if settings.api_key is not None and (settings.bearer is not None or settings.basic is not None):
        raise SettingsError("api_key", "is a second secret for the header Authorization; write one")
    for name, value, most in (
        ("tokens_max", settings.tokens_max, TOKENS_MAX),
        ("question_bytes_max", settings.question_bytes_max, 20_000_000),
        ("answer_timeout_s", settings.answer_timeout_s, 3_600),
        ("at_once", settings.at_once, 100),
        ("answers_max", settings.answers_max, 100_000),
    ):
        if not 1 <= value <= most:
            raise SettingsError(name, f"is {value:,}; write 1 to {most:,}")
    for name, price in (
        (("input", settings.prices.input), ("output", settings.prices.output)) if settings.prices else ()
    ):
        if not 0 <= price <= PRICE_MAX:
            raise SettingsError(f"prices.{name}", f"is {price}; write 0 to {PRICE_MAX:,}, for a million tokens")
    if settings.temperature is not None and not 0 <= settings.temperature <= 2:
        raise SettingsError("temperature", f"is {settings.temperature}; write 0 to 2")
    return duration_ms(settings.keep_answers, "keep_answers")
