"""Prompts as pure functions of plan, files and recorded answers: equal inputs, equal bytes."""

from dataclasses import dataclass

from bernstein_orchestrator.answers import BLOCK_MARK
from bernstein_orchestrator.plan import Step


@dataclass(frozen=True, slots=True)
class ContextFile:
    """A file shown to the agent; None where there is no such file."""

    path: str
    content: bytes | None


@dataclass(frozen=True, slots=True)
class Finished:
    """A task that this one waited for; None where its answer is not ours to show."""

    title: str
    answer: str | None


@dataclass(frozen=True, slots=True)
class PromptInputs:
    """Everything that a task's prompt depends on."""

    goal: str
    constraints: tuple[str, ...]
    step: Step
    skill: str | None
    context: tuple[ContextFile, ...]
    finished: tuple[Finished, ...]
    failed_before: tuple[str, ...]


def task_prompt(inputs: PromptInputs) -> str:
    """Compose the prompt of one attempt."""
    step = inputs.step
    parts = [
        _part("Role", inputs.skill or step.role),
        _part("Goal", inputs.goal),
        _part("Constraints", "\n".join(f"- {each}" for each in inputs.constraints)),
        _part("Task", step.title if step.description == step.title else _titled(step)),
        *(_part(f"File {each.path}", _shown(each)) for each in inputs.context),
        *(_part(f"Done before: {each.title}", _answer(each)) for each in inputs.finished),
        _part("An earlier attempt failed", "\n".join(inputs.failed_before)),
        _part("Answer", _answer_rule(step.files)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def verdict_prompt(step: Step, criteria: str, work: str) -> str:
    """Ask whether the work of a step meets the criteria."""
    parts = (
        _part("Task", _titled(step)),
        _part("Work", work),
        _part("Criteria", criteria),
        _part(
            "Answer",
            "Does the work meet the criteria? Write PASS or FAIL alone on the first line,"
            " then the reason.",
        ),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def is_pass(answer: str) -> bool:
    """Read a verdict: the first line begins with PASS, in any case."""
    return answer.partition("\n")[0].strip().upper().startswith("PASS")


def _part(heading: str, text: str) -> str:
    return f"# {heading}\n{text}" if text else ""


def _titled(step: Step) -> str:
    return f"{step.title}\n\n{step.description}"


def _shown(file: ContextFile) -> str:
    if file.content is None:
        return "(there is no such file yet)"
    return file.content.decode(errors="replace") or "(empty)"


def _answer(finished: Finished) -> str:
    if finished.answer is None:
        return "(done by a program; see its files)"
    return finished.answer or "(an empty answer)"


def _answer_rule(files: tuple[str, ...]) -> str:
    if not files:
        return "Write the result as text."
    if len(files) == 1:
        return f"Write the complete content of {files[0]} and nothing else: no remarks, no fences."
    blocks = "\n".join(f"{BLOCK_MARK}{path}\n(content of {path})" for path in files)
    return (
        "Write the complete content of each of these files, each after a line that names it,"
        f" and nothing else:\n{blocks}"
    )
