"""What tests that start processes share."""

# Seconds after which a process is taken to hang. Nothing is judged by it: on a machine with much else to do, a process that
# imports torch may need a minute, so this is far more than any of them ever takes.
HANGING = 1800
