"""A backend: `keyword/WORDS` answers by the words that a text contains, without any model.

It reads the prompt as a model would: the text to rate is what stands last.
"""

from flipmeter.ask.family import Backend, Family, World, backends
from flipmeter.types import Model, Reply, Request

VERSION = 1


class KeywordBackend:
    """Chooses slot 1 or 2 of a comparison, or a label, by counting kind words."""

    concurrency = 4
    is_reproducible = True

    def __init__(self, identity: str, words: frozenset[str]) -> None:
        self.identity = identity
        self._words = words

    async def ask(self, request: Request) -> Reply:
        """Answer with the first label offered if the text is unkind, else with the second."""
        text = request.script.text.casefold()
        n_kind = sum(word in text for word in self._words)
        labels = ("A", "B") if "passage a" in text else ("1", "2", "3", "4", "5")
        return Reply(labels[min(n_kind, len(labels) - 1)], "stop", model=self.identity)

    async def close(self) -> None:
        """There is nothing to close."""


class KeywordFamily(Family):
    """`keyword/good,great`: the words are the name of the model."""

    about = "counts words in the prompt: keyword/good,great"
    pattern = "WORD,WORD"

    def open(self, model: Model, world: World | None, progress: object) -> Backend:
        words = frozenset(model.own_name.casefold().split(","))
        return KeywordBackend(self.identity_of(model), words)

    def identity_of(self, model: Model, world: World | None = None) -> str:
        return f"{model.address}@{VERSION}"  # another version may answer otherwise

    def can_be_reproducible(self, model: Model, decoding: object) -> bool:
        return True


backends.add("keyword", KeywordFamily())
