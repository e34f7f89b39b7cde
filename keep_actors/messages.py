"""Public: the messages that a test may put into a workflow's mailbox. See `docs/testing.md`."""

from keep_actors.workflow.messages import Activate, Advance, Approve, Deploy, Do, Ended, Message, Stop, Tick

__all__ = ["Activate", "Advance", "Approve", "Deploy", "Do", "Ended", "Message", "Stop", "Tick"]
