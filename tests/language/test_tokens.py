"""Sentences, content words, stems and the token estimate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.language import content_words, estimate_tokens, split_sentences, stem_words, words


def test_sentences_end_where_they_should() -> None:
    text = 'Dr. Wu came at 3.30 p.m. today. "Fine!" she said\nReally? Yes… 好。再见'
    assert split_sentences(text) == [
        "Dr. Wu came at 3.30 p.m. today.", '"Fine!"', "she said", "Really?", "Yes…", "好。", "再见",
    ]  # fmt: skip


def test_content_words_drop_what_says_nothing() -> None:
    assert content_words("I'm at Ada’s part-time pottery class, and it's 7 years!") == [
        "ada", "part-time", "pottery", "class", "7", "years",
    ]  # fmt: skip


def test_scripts_without_spaces_give_pairs() -> None:
    assert words("我喜欢茶 tea") == ["我喜", "喜欢", "欢茶", "tea"]
    assert content_words("茶") == ["茶"]


def test_stems_meet_across_forms() -> None:
    assert len(set(stem_words(["paint", "paints", "painted", "painting"]))) == 1
    assert content_words("parties", stem=True) == content_words("party", stem=True)


def test_a_junk_word_is_no_content() -> None:
    assert content_words("x" * 65 + " ok tea") == ["tea"]


def test_the_estimate_is_near_a_real_tokenizer(embedder: SentenceTransformerEmbedder) -> None:
    text = (
        "The quick brown fox, aged 12, met Katherine-Anne's unbelievably friendly neighbours on 8 May 2023. "
        * 4
    )
    tokenizer = embedder._model.tokenizer
    exact = len(tokenizer.tokenize(text))
    assert 0.75 * exact <= estimate_tokens(text) <= 1.35 * exact
    assert estimate_tokens("") == estimate_tokens(" \n") == 0


@given(st.text())
def test_any_text_is_split_verbatim(text: str) -> None:
    sentences = split_sentences(text)
    at = 0
    for sentence in sentences:
        at = text.index(sentence, at) + len(sentence)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert estimate_tokens(text) >= len([s for s in sentences if s]) > 0 or not text.strip()
    assert all(content_words(text, stem=True))
