"""Answering: one round after another, each durable before its reply.

A session belongs to one lane, a thread that takes turns (`lane`). A lane takes all requests that wait (`tickets`),
answers them one by one in memory (`round`), writes what they did in one transaction, commits, and only then replies
(`group`: each answer is its own record). Small universes share one lane; sessions over large ones have lanes of their
own, so that a heavy update keeps nobody else waiting (`dispatch`).

What holds (tests name these rules):

1. Public facts and queue are checked before noise is taken, and that the data set's private file is what was
   registered; all memory that a hit would take is taken. A request refused there leaves no trace.
2. Once noise is taken the round is finished and recorded, whoever has hung up. A failed commit is tried again with
   the same outcome until the database takes it; the lane answers nothing else of these sessions meanwhile.
3. If another process has changed the session in between, the outcome no longer stands on the recorded state. It is
   dropped unseen and charged: a forfeit, which counts as a hit.
4. With several processes the session's row is the lock, held from before the noise to the commit; a lane whose
   state is behind catches up from the transcript first. A row that another process keeps holding is not waited for
   where others could be answered: its session's requests are deferred and tried again.
5. Nobody waits for a long batch of another: it is one commit, and answered in slices between which others have their
   turn. Its session answers nothing else meanwhile.
6. Nobody waits for a costly question of another: what may take long by its words (`costs`) is computed by a thread
   beside the lanes (`aside`), which touches this one session alone; the lane commits and replies.
7. Nobody waits for numbers that are yet to be counted where the records are (`NotCounted`) but the session that lacks
   them: its request is parked (`parked`), holds no row, and is considered anew when they are there. No noise was drawn.
8. Of what a client leaves by hanging up, what was not begun is not computed; nor of what a stop has no time for. What
   was begun of it is recorded.
"""
