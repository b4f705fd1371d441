"""What the fingerprint of a model call is made of; one way for the recorder and for programs.

Rules: docs/formats/determinism.md, section 2. A call carries most of it as parameters, under the
names that providers use.
"""

from collections.abc import Mapping
from dataclasses import replace

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import InvalidInput
from bernstein_formats.fingerprint import FingerprintInput, temperature_bucket
from bernstein_formats.llm_calls import CallRequest, literal_value
from bernstein_formats.modes import RuntimeMode


def seeded(call: CallRequest, seed: int | None) -> CallRequest:
    """The call with the session's seed. Raises InvalidInput when it brings another one."""
    if seed is None:
        return call
    given = call.parameters.get("seed", seed)
    if given != seed:
        raise InvalidInput(
            f"the session's seed is {seed}, the call's {given!r}: leave it out of the parameters",
            field="parameters",
        )
    return replace(call, parameters={**call.parameters, "seed": seed})


def key_of_call(
    call: CallRequest, mode: RuntimeMode, version: str, *, family: str = "", call_class: str = ""
) -> FingerprintInput:
    """The key; without a family the provider's name counts. Raises InvalidInput."""
    parameters = dict(call.parameters)
    system = parameters.pop("system", None)
    prompt: dict[str, JsonValue] = {"role": "user", "content": call.prompt}
    before = () if system is None else ({"role": "system", "content": system},)
    temperature = literal_value(call.temperature, "temperature")
    return FingerprintInput(
        family=family or call.provider,
        model=call.model,
        call_class=call_class,
        runtime_mode=mode,
        messages=(*before, prompt),
        version=version,
        temperature_bucket=None if temperature is None else temperature_bucket(temperature),
        seed=_whole(parameters.pop("seed", None), "seed"),
        max_tokens=_whole(literal_value(call.max_tokens, "max_tokens"), "max_tokens"),
        tools=_tools(parameters.pop("tools", None)),
        provider=call.provider,
        parameters=parameters,
    )


def _whole(value: JsonValue, name: str) -> int | None:
    if value is None or type(value) is int:
        return value
    raise InvalidInput(f"{name} must be a whole number or none", field=name)


def _tools(value: JsonValue) -> tuple[Mapping[str, JsonValue], ...]:
    if value is None:
        return ()
    if isinstance(value, list):
        tools = [each for each in value if isinstance(each, dict)]
        if len(tools) == len(value):
            return tuple(tools)
    raise InvalidInput("tools must be a list of objects", field="parameters")
