"""Every limit a rule uses, with the reason for its value. Shares are of wall time unless said otherwise."""

# --- is it the loader at all? -------------------------------------------------------------------------------------

# A perfect loader has to save more than this, interval and all, before the loader is called the problem: below it
# run-to-run drift of one and the same loop on a shared machine is as large (seen: 3 to 8 %).
CEILING_WORTH_IT = 0.08
# A ceiling that lies wholly over this, or under it, says clearly which side is at fault (claim C2): twice the drift.
CEILING_CLEAR = 0.16
# A loop that waits for less than this part of its time does not have a loader problem, unless loader and step fight
# for cores; the same drift as above.
STALL_NEGLIGIBLE = 0.08
# The leading cause has to cost at least this part of what there is to gain, or the verdict says that most is open.
MAIN_PART = 0.40
# A finding of its own needs to cost at least this share of the loop.
IMPACT_WORTH_NAMING = 0.05

# Both together against the prediction from each alone. Ordinary unevenness of batches costs up to about a tenth even
# when nothing disturbs anything, because a queue of a few batches cannot smooth everything.
INTERFERENCE_RATIO = 1.20
# The two compete for cores when together they ask for at least this part of the cores there are.
INTERFERENCE_DEMAND = 0.80
# Each of the two has to want at least this many cores: a step on all cores loses time to any neighbour, also to a
# loader that uses 2 % of one.
INTERFERENCE_EACH = 0.25

# --- waiting, computing, queueing ---------------------------------------------------------------------------------

# A sample that spends at least this share of its time waiting is bound by what it waits for; at most the second, by
# computing. In between both matter and the larger is named with the other as evidence.
WAITING_SHARE = 0.55
COMPUTING_SHARE = 0.55
# The time inside the dataset and collate has to explain at least this part of the loader's time per batch, or the
# cause lies elsewhere (the way back to main, the sampler, starting workers).
EXPLAINED_SHARE = 0.60
# Under this part the dataset is not even suspected.
EXPLAINED_LITTLE = 0.30
# Run-queue delay above this share makes waiting and computing hard to tell apart, unless our own workers are what
# fills the cores (they use at least OWN_CPU_SHARE of them).
QUEUEING_SHARE = 0.30
OWN_CPU_SHARE = 0.75
# Without a step nothing says how fast is fast enough. A sample cheaper than this feeds 10 000 samples/s from one
# process, more than any training step we know of asks for, so it is accused of nothing.
CHEAP_SAMPLE_S = 1e-4
# Fewer samples than this are too few to judge a loader by.
FEW_READS = 12
FEW_BATCHES = 4

# --- the GIL --------------------------------------------------------------------------------------------------------

# Share of a call spent neither computing nor queueing from which on it "waits".
GIL_WAITS_SHARE = 0.60
# Waiting code on 4 threads reaches at least this part of what a plain sleep reaches, if nothing serialises it.
GIL_WAITS_SCALING = 0.60
# GIL held, on a scale from the sleep control (0) to the pure-Python control (1). Seen: NumPy matmul, sort, zlib under
# 0.1; JPEG decode 0.2; half Python half sleep 0.6.
GIL_HELD_LOW, GIL_HELD_HIGH = 0.35, 0.65
# The controls must differ by at least this share of late naps, or the machine is too busy to say.
GIL_CONTROL_DISTANCE = 0.25
# zlib on 2 threads must gain at least this for the scaling test to mean anything.
GIL_CONTROL_SPEEDUP = 1.35
# A pure-Python loop cannot gain from a second thread; one that seems to by this much got a larger share of busy cores.
GIL_PYTHON_SPEEDUP = 1.25
# Gain from a second thread relative to zlib's gain: under the first it does not scale, over the second it does.
GIL_LOCKED_GAIN, GIL_COMPUTES_GAIN = 0.20, 0.45
GIL_LOCKED_SPEEDUP = 1.25

# --- faults -----------------------------------------------------------------------------------------------------------

# Seconds without a batch before a loader counts as hung, as a share of the budget and within bounds: long enough for
# a slow first batch, short enough to leave time for a report.
HANG_SHARE_OF_BUDGET = 0.25
HANG_MIN_S, HANG_MAX_S = 4.0, 30.0
# A worker that is not forked imports everything first: it gets this long, where that is no more than HANG_OVERRUN_S
# beyond the budget.
HANG_FRESH_S, HANG_OVERRUN_S = 15.0, 4.0
# Below this deadline a silent loader is only suspected: many healthy ones need seconds for their first batch.
HANG_CERTAIN_S = 8.0
# A hung worker uses next to no CPU; one that used more than this share of one core in the wait is working.
HANG_CPU_SHARE = 0.05
