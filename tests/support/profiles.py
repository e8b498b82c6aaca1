"""How many examples hypothesis tries."""

from hypothesis import settings


def n_examples(number: int) -> settings:
    """Try this number of examples of what is slow where others have 100, and accordingly more where others have more."""
    return settings(max_examples=max(number, number * settings.default.max_examples // 100))
