"""A language model as a read: see `docs/connectors/chat.md`."""

from keep_actors.services.chat.answer import ChatAnswer, ChatUsage
from keep_actors.services.chat.connector import Chat
from keep_actors.services.chat.question import ConversationMessage
from keep_actors.services.chat.settings import ChatPrices, ChatSettings

__all__ = ["Chat", "ChatAnswer", "ChatPrices", "ChatSettings", "ChatUsage", "ConversationMessage"]
