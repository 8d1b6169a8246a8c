"""One small protocol for chat models, and the models that need no framework."""

from shared_core.chat.adapted import AdaptedChat
from shared_core.chat.messages import cut_at_stop, with_schema
from shared_core.chat.meter import MeteredChat, Usage
from shared_core.chat.opening import open_chat
from shared_core.chat.protocol import BatchChatModel, ChatMessage, ChatModel, ChatReply, Role
from shared_core.chat.smollm2 import SmolLM2Chat

__all__ = [
    "AdaptedChat",
    "BatchChatModel",
    "ChatMessage",
    "ChatModel",
    "ChatReply",
    "MeteredChat",
    "Role",
    "SmolLM2Chat",
    "Usage",
    "cut_at_stop",
    "open_chat",
    "with_schema",
]
