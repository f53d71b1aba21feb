"""Every line of the launcher and its workers goes to the container's stdout, as ever, and into a file on the output volume.

    pipes = LogPipes.of(os.environ)             # pipes and threads; one that does nothing where no file is wanted
    specs = Piped(torchs_own_specs, pipes)      # each worker's stdout and stderr become pipes of ours
    pipes.close()                               # what was written so far arrives, and then the process may end

$EBB_OUTPUT_DIR/logs/worker-<index>/<start>.<pod uid>.<part>.log, a new file for each start of a launcher, made by it alone and
written by nobody else; each line is
    2026-11-22T12:58:54.123456789Z 6.2.out text          time read, rank, local rank, stream; `-.-.err` is the launcher's own
lines.py knows that format, reader.py reads the pipes, volume.py writes the file, specs.py and rank.py put the workers' ends of
the pipes in place. Whoever reads the file does it by the same words: ebb/client/logs/lines.py.

What holds: the lines of one stream of one rank are whole, in order, and each once. Two streams of a rank, or two ranks, are in
the order in which they were read, some milliseconds exact. A line of more than a MiB is several here, all but its last piece
with a `+` behind the stream. Training never waits for the volume: up to 16 MiB wait in memory for one that hangs, is full or is
read-only, and what is more is counted, and the count is a line of its own where the lines would be. A part is 64 MiB; a launcher
keeps its first and its 31 newest parts (2 GiB), and says in a line what it has removed.

A progress bar, which writes over itself, is one line when it ends; a terminal has it as it moves.

What a killed machine may lose: a write that has returned is with the kernel. On a local disk it survives the death of every
process, but not always that of the machine. A network file system keeps it in this machine's memory until the next fdatasync,
which comes once a second: a machine that dies takes the lines of its last second or so with it, and no more than those while the
volume answers. Where it says at the sync that its disk was full, a line says how many lines it may have lost.
"""

from ebb.elastic.launch.logs.reader import LogPipes

__all__ = ["LogPipes"]
