"""Public: notices, which call people when a workflow needs one and say when it is settled: by a function of yours, or
by a signed webhook.

Notices are durable and compared with the state of the workflows; no run waits for a notice, or fails because of one. A
service that only receives notices needs `verify` and loads no runtime.
"""

from keep_actors.api.notice import Notice
from keep_actors.notices.signature import BadSignature, new_secret, verify
from keep_actors.notices.sink import GiveUp, Hook, Sink, Sinks
from keep_actors.notices.webhook import Webhook

__all__ = ["BadSignature", "GiveUp", "Hook", "Notice", "Sink", "Sinks", "Webhook", "new_secret", "verify"]
