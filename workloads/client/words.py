"""What the CLI and the API say of a job in words. Pure code."""

from workloads.client.view import CAUSES, Happening


def happening(item: Happening) -> str:
    """A line of history without its time."""
    why = CAUSES.get(item.cause, item.cause)
    who = f"worker {item.worker}" + (f" on {item.machine}" if item.machine else "")
    sentences = {
        "placed": f"goes to {why}",
        "reclaimed": f"{who} was lost: {why}",
        "left": f"{who} moves on: {why}",
        "failed": f"the program failed in {who}: {why}",
        "stalled": f"all workers start again: {why}",
        "held": f"stopped: {why}",
        "ended": f"ended: {why}",
    }
    return sentences.get(item.what) or " ".join(filter(None, (item.what, who if item.worker is not None else "", why)))
