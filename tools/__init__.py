"""Scripts of the project: peers for the tests, style rules, fuzzing, soaking."""
