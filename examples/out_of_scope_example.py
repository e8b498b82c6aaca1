"""Let an assistant say "I cannot help with that", and be wrong about it in one of twenty questions that it could answer.

An assistant of a bank knows twelve kinds of questions. The detector is fitted to embeddings of such questions, and questions
with a p-value of at most 0.05 are turned away. So 5 % of new questions in scope are lost, whatever the questions out of scope
are; how many of those are found is what the embeddings and the detector are worth.

All questions are made here, from ways of asking and things to ask for, with slips of the keyboard. New questions are asked in
ways that the fit has not seen, so questions asked in one way are one group. Without ``groups=`` each of them is judged by its
sisters, and up to twice as many new questions are turned away. Questions that are made are easier to tell apart than those of
people.

The embeddings are hashed parts of words, projected at random to 128 features, since no encoder can be downloaded here. Put your
own encoder into ``encode``. Needs the extra ``plot``. Run it with ``python -m examples.out_of_scope_example``.
"""

import argparse
import warnings
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.random_projection import GaussianRandomProjection

from pyod_quadric import QuadricDetector

ERROR = 0.05  # the share of questions in scope that may be turned away
OPENINGS = (
    "",
    "please ",
    "hello, ",
    "can you help me, ",
    "quick question: ",
    "i would like to know, ",
    "good morning, ",
    "hey there, ",
    "sorry to bother you, ",
    "one more thing: ",
)
# What can be asked, with the things that it is asked about, and ways of asking.
IN_SCOPE = {
    "balance": ("what is the balance of {}|how much money is in {}|show me what {} holds|tell me the balance on {}", "account"),
    "transfer": (
        "transfer 50 euros to {}|send money from here to {}|move 200 euros to {}|i want to make a transfer to {}",
        "account",
    ),
    "lost card": ("i have lost {}|{} was stolen|block {} at once|i cannot find {} any more, please block it", "card"),
    "new card": (
        "order a new one instead of {}|i need a replacement for {}|when does the new {} arrive|{} expires, send another",
        "card",
    ),
    "pin": ("i forgot the pin of {}|change the pin of {}|how do i set another pin for {}|the pin of {} does not work", "card"),
    "fees": (
        "what are the fees of {}|how much do you charge for {}|is {} free of charge|why did i pay a fee for {}",
        "service",
    ),
    "rates": (
        "what interest do i get for {}|the interest rate of {}|has the rate for {} changed|what rate applies to {}",
        "product",
    ),
    "opening": ("how do i open {}|i would like to open {}|what do i need to open {}|open {} in my name", "account"),
    "closing": ("how do i close {}|please close {}|i want to cancel {}|end my contract for {}", "account"),
    "limit": ("what is the limit of {}|raise the limit of {}|lower the daily limit of {}|how much can i spend with {}", "card"),
    "statement": (
        "send me the statement of {}|where is the statement for {}|print the transactions of {}|last month's statement of {}",
        "account",
    ),
    "loan": ("can i get {}|how long does it take to get {}|what are the conditions of {}|apply for {}", "product"),
}
THINGS = {
    "account": (
        "my savings account",
        "the joint account",
        "my current account",
        "the business account",
        "the account of my son",
    ),
    "card": ("my credit card", "the debit card", "my bank card", "the company card", "the second card"),
    "service": ("cash withdrawals", "transfers abroad", "paper statements", "an account", "payments in dollars"),
    "product": ("a mortgage", "a car loan", "the savings plan", "a student loan", "the overdraft"),
}
OTHER_THINGS = (
    "a jar of pickles",
    "the weather in paris",
    "my old bicycle",
    "the city museum",
    "a trip to rome",
    "the garden door",
)
OTHER_QUESTIONS = (
    "what is the weather like in {}",
    "book a flight to {}",
    "a good restaurant in {}",
    "play some music from {}",
    "what time is it in {}",
    "tell me a joke about {}",
    "which museums are open in {}",
    "is it going to rain in {}",
)
PLACES = ("paris", "new york", "berlin", "tokyo", "rome", "lisbon")


class Questions(NamedTuple):
    """Questions, and in which way each is asked."""

    texts: list[str]
    ways: np.ndarray  # (n,)


def typed(text: str, rng: np.random.Generator, n_slips: int = 1) -> str:
    """Return a text with letters that were left out, or typed twice."""
    letters = list(text)
    for place in rng.integers(len(text), size=n_slips):
        letters[place] *= 2 * int(rng.integers(2))
    return "".join(letters)


def questions_in_scope(rng: np.random.Generator, n_each: int = 3) -> Questions:
    """Return questions of all kinds: each way of asking, with each opening, about some things."""
    texts, ways = [], []
    for kind, (patterns, things) in IN_SCOPE.items():
        for number, pattern in enumerate(patterns.split("|")):
            for opening in OPENINGS:
                texts += [
                    typed(opening + pattern.format(thing), rng)
                    for thing in rng.choice(THINGS[things], size=n_each, replace=False)
                ]
                ways += [f"{kind}, way {number}, {opening}"] * n_each
    return Questions(texts, np.array(ways))


def questions_out_of_scope(rng: np.random.Generator) -> dict[str, list[str]]:
    """Return questions that are asked in the same ways about other things, and quite other questions."""
    patterns = [pattern for patterns, _ in IN_SCOPE.values() for pattern in patterns.split("|")]
    near = [pattern.format(thing) for pattern in patterns for thing in OTHER_THINGS]
    far = [pattern.format(place) for pattern in OTHER_QUESTIONS for place in PLACES]
    return {
        kind: [typed(rng.choice(OPENINGS) + text, rng) for text in texts]
        for kind, texts in (("other things", near), ("other questions", far))
    }


def encode(texts: list[str]) -> np.ndarray:
    """Return embeddings (n, 128) of texts; put your encoder here."""
    parts = HashingVectorizer(analyzer="char_wb", ngram_range=(2, 4), n_features=2**14).transform(texts)
    return GaussianRandomProjection(128, random_state=0).fit_transform(parts).astype(np.float32)


def draw(p_values: dict[str, np.ndarray]) -> Figure:
    """Draw the share of questions that are turned away, by the error that is allowed."""
    figure, ax = plt.subplots(figsize=(7, 5), layout="constrained")
    errors = np.linspace(0, 0.3, 301)
    styles = {
        "in scope": {"color": "black"},
        "in scope, fitted without groups": {"color": "black", "linestyle": "dashed"},
        "other things": {"color": "#e69f00"},
        "other questions": {"color": "#0072b2"},
    }
    for kind, values in p_values.items():
        ax.plot(errors, np.mean(values[:, None] <= errors, axis=0), label=f"{kind} ({len(values)} questions)", **styles[kind])
    ax.plot([0, 0.3], [0, 0.3], color="tab:gray", linestyle=":", label="what was allowed")
    ax.set(
        xlabel="share of questions in scope that may be turned away",
        ylabel="share that is turned away",
        title="Questions to an assistant",
    )
    ax.legend(loc="center right", bbox_to_anchor=(1, 0.6), framealpha=1)
    ax.grid(alpha=0.3)
    return figure


Texts, PValues = dict[str, list[str]], dict[str, np.ndarray]  # by kind of questions


def judge(questions: Questions, outside: Texts, rng: np.random.Generator) -> PValues:
    """Fit to questions asked in two thirds of the ways; return p-values of the others."""
    rows, ways = encode(questions.texts), rng.permutation(np.unique(questions.ways))
    is_new = np.isin(questions.ways, ways[: len(ways) // 3])

    detector = QuadricDetector().fit(rows[~is_new], groups=questions.ways[~is_new])
    p_values = {"in scope": detector.predict_pvalue(rows[is_new])}
    for kind, texts in outside.items():
        p_values[kind] = detector.predict_pvalue(encode(texts))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit warns that the rows look like groups
        ungrouped = QuadricDetector().fit(rows[~is_new])
    p_values["in scope, fitted without groups"] = ungrouped.predict_pvalue(rows[is_new])
    return p_values


def main(picture: Path | None = None, quiet: bool = False, seed: int = 0) -> dict[str, float]:
    """Fit, and return what share of each kind of questions is turned away at the allowed error."""
    rng = np.random.default_rng(seed)
    questions = questions_in_scope(rng)
    p_values = judge(questions, questions_out_of_scope(rng), rng)
    turned_away = {kind: float(np.mean(values <= ERROR)) for kind, values in p_values.items()}
    if picture:
        figure = draw(p_values)
        figure.savefig(picture, dpi=100)
        plt.close(figure)
    if not quiet:
        print(f"turned away at an allowed error of {ERROR:.0%}:")
        for kind, share in turned_away.items():
            print(f"{share:7.1%} of {len(p_values[kind])} questions, {kind}")
    return turned_away


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=Path("out_of_scope.png"), help="where to save the picture")
    main(parser.parse_args().picture)
