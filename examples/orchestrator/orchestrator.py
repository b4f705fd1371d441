"""An orchestrator that keeps its record with bernstein: tasks side by side, each with an agent that
asks a model, and at the end a receipt.

    python orchestrator.py              records a run
    python orchestrator.py RUN          runs it again without a model
"""

import asyncio
import os
import sys

from bernstein_client import AsyncCalls, AsyncRun, Provider, connect_async, errors

TASKS = ("overview", "changes", "thanks")


async def work(run: AsyncRun, calls: AsyncCalls, task: str) -> str:
    """One task: claimed, done by an agent, completed. Each row is durable before the next step."""
    await run.append("task_claimed", {"task": task})
    answer = await calls.ask(
        f"Write the section {task!r}.", model="scripted-small", provider="openai", lane=task
    )
    await run.append("task_completed", {"task": task, "characters": len(answer.text)})
    return answer.text


async def main(replay_of: str) -> None:
    provider = Provider(
        "openai", os.environ.get("OPENAI_BASE_URL", ""), os.environ.get("OPENAI_API_KEY", "")
    )
    async with connect_async(".") as client:
        run = await client.create_run(metadata={"by": "example"}, replay_of=replay_of)
        async with await run.calls([provider]) as calls:
            # In the order of the list, so that a replay gives the same rows.
            texts = [await work(run, calls, task) for task in TASKS]
        sealed = await run.finish()
        print("\n\n".join(texts))
        print(f"\nrun {run.run_id}: {sealed.row_count} rows, head {sealed.head_hash_hex[:16]}")


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else ""))
    except errors.BernsteinError as error:
        sys.exit(f"{error.reason}: {error.message}")
