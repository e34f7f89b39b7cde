"""People are told when something needs one of them and when it is settled: by a function of yours, or a signed webhook.

What was told is durable and compared with what is so; no run waits for any of it, or fails because of it. A service
that only receives notices needs `verify` and loads no runtime.
"""

from keep_actors.api.notice import Notice
from keep_actors.notices.signature import BadSignature, new_secret, verify
from keep_actors.notices.sink import GiveUp, Hook, Sink, Sinks
from keep_actors.notices.webhook import Webhook

__all__ = ["BadSignature", "GiveUp", "Hook", "Notice", "Sink", "Sinks", "Webhook", "new_secret", "verify"]
