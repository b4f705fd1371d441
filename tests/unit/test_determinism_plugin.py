"""The pytest plugin, as a test suite of somebody else sees it."""

import pytest

pytest_plugins = ["pytester"]


def test_a_marked_test_may_not_look_around(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import time
        import pytest

        @pytest.fixture
        def now():
            return time.time()

        @pytest.mark.deterministic
        def test_looks():
            time.time()

        @pytest.mark.deterministic
        def test_does_not_look(now):
            assert now > 0

        def test_unmarked():
            assert time.time() > 0
        """
    )
    result = pytester.runpytest_inprocess("--strict-markers", "-p", "no:xdist")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*AmbientAccessError: time.time was called*"])


def test_the_fixture_has_the_checks_and_runtimes_in_memory(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from hypothesis import strategies as st
        from bernstein_determinism.channels import append_reducer
        from bernstein_determinism.prompts import PromptContribution

        def agent(turn):
            parts = [PromptContribution("p", 0, 0, "hello")]
            turn.step({"a": lambda node: node.write("notes", node.ask(parts))})

        def test_laws(determinism):
            determinism.reducer_laws(append_reducer, st.integers(), examples=20)
            determinism.fingerprint_is_pure(examples=20)
            determinism.prompt_is_pure(lambda text: text, st.text(), examples=20)

        def test_agent(determinism):
            channels = {"notes": append_reducer}
            made = [determinism.memory_runtime(str.upper, channels)[0] for _ in range(3)]
            determinism.turn_deterministic(made, agent, "x")

        def test_broken(determinism):
            class Concatenation:
                def empty(self): return []
                def lift(self, write): return [write.value]
                def join(self, a, b): return [*a, *b]
                def view(self, state): return state
            determinism.reducer_laws(Concatenation(), st.integers())
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:xdist")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*contract 4 is broken*"])
