"""What the CLI and the API say of a job in words. Pure code."""

from ebb.client.jobs.view import CAUSES, Happening


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


def duration(seconds: float) -> str:
    """A duration in two units: 41 s, 3 min 12 s, 2 h 5 min."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
