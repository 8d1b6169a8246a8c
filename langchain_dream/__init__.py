"""DREAM memory for LangChain and LangGraph: a retriever that forgets poison."""

from langchain_dream.messages import pages_from_messages
from langchain_dream.models import as_chat
from langchain_dream.retriever import DreamRetriever

__all__ = ["DreamRetriever", "as_chat", "pages_from_messages"]
