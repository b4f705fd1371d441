"""Where model providers are and with which keys, as an environment says it."""

import os
from collections.abc import Mapping, MutableMapping
from typing import Final

from bernstein_client.recorder import Provider

# Provider name → variables of its address and its key; services know the public addresses.
PROVIDERS: Final = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
}
# What agents reach through the proxy; plans ask the others only.
AGENT_PROVIDERS: Final = {
    **PROVIDERS,
    "gemini": ("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"),
}


def named_providers(environ: Mapping[str, str] = os.environ) -> tuple[Provider, ...]:
    """The providers of plans that the environment names."""
    found = (each for each in all_providers(environ) if each.name in PROVIDERS)
    return tuple(each for each in found if each.base_url or each.api_key)


def all_providers(environ: Mapping[str, str] = os.environ) -> tuple[Provider, ...]:
    """All that agents reach; one that is not named has neither address nor key."""
    return tuple(
        Provider(name, environ.get(address, "").strip(), environ.get(key, "").strip())
        for name, (address, key) in AGENT_PROVIDERS.items()
    )


def take_provider_keys(environ: MutableMapping[str, str] = os.environ) -> None:
    """Take the keys away once they are read: no program inherits them unasked."""
    for _, key in PROVIDERS.values():
        environ.pop(key, None)
