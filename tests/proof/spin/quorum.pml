/* The quorum's token source: two takers at three nodes, whose locks end at any moment, one node that crashes, and one
 * late message: a copy of a taker's first question, which arrives whenever it likes. TAKERS=3 is a third taker; with NO_LATE,
 * which leaves out the late message, its 20 million states are searched in full, too. (With the message, too, a bitstate
 * search had seen 188 million without an error when it was ended.)
 *
 * Round 1: every free lock is the taker's, with the next number of its node. Round 2: each node that granted, where the
 * lock is still the taker's with the number that it answered, raises its number to the highest. A token counts when a
 * majority has it.
 *
 * Broken variants, each by its own -D: MEMORY_ONLY comes up after the crash with a counter of 0 and votes, ONE_ROUND grants
 * the highest number without a majority that has it, NO_NUMBER confirms whatever number the taker's lock has, MINORITY
 * is content with one node.
 */
#ifndef TAKERS
#define TAKERS 2
#endif
#define NODES 3
#define NUMBERS 12
#ifdef MINORITY
#define MAJORITY 1
#else
#define MAJORITY 2
#endif

byte counter[NODES], lock_of[NODES] = 255, number[NODES];
bool is_down[NODES];
bool is_granted[NUMBERS];          /* by token */
byte begun;                        /* takers are alike, so they begin in the order of their names */

#define cell(t, n) ((t) * NODES + (n))
byte answered[TAKERS * NODES];                  /* by taker and node: the number, 0: none */

/* A lock may have ended before any question that finds it. */
inline ask(t, n, result) {
  if
  :: !is_down[n] ->
    counter[n]++;
    lock_of[n] = t;
    number[n] = counter[n];
    result = number[n]
  :: is_down[n] || lock_of[n] != 255 -> result = 0
  fi
}

proctype Taker(byte t) {
  byte n, token, count, got;
  atomic { begun == t -> begun++ }
  /* round 1, node by node: whatever the order of the questions at each node, it comes about this way, too */
  do
  :: n == NODES -> break
  :: else ->
    atomic {
      if
      :: ask(t, n, got); answered[cell(t, n)] = got
      :: true                                                       /* lost */
      fi;
      got = 0;
      n++
    }
  od;
  atomic {
    n = 0;
    do
    :: n == NODES -> break
    :: else ->
      if :: answered[cell(t, n)] > 0 -> count++ :: else fi;
      if :: answered[cell(t, n)] > token -> token = answered[cell(t, n)] :: else fi;
      n++
    od;
    n = 0;
    if :: count < MAJORITY -> token = 0 :: else fi;
    count = 0
  }
#ifndef ONE_ROUND
  /* round 2 */
  do
  :: n == NODES || token == 0 -> break
  :: else ->
    atomic {
      if
      :: answered[cell(t, n)] == 0
      :: answered[cell(t, n)] == token -> count++                   /* has it already */
#ifdef NO_NUMBER
      :: answered[cell(t, n)] > 0 && answered[cell(t, n)] < token && !is_down[n] && lock_of[n] == t ->
#else
      :: answered[cell(t, n)] > 0 && answered[cell(t, n)] < token && !is_down[n] && lock_of[n] == t &&
         number[n] == answered[cell(t, n)] ->
#endif
        if :: counter[n] < token -> counter[n] = token :: else fi;
        number[n] = token;
        count++
      :: answered[cell(t, n)] > 0 && answered[cell(t, n)] < token   /* lost, or the lock has ended */
      fi;
      answered[cell(t, n)] = 0;
      n++
    }
  od;
  if :: count < MAJORITY -> token = 0 :: else fi;
#endif
  atomic {
    if
    :: token > 0 ->
      assert(!is_granted[token]);                                   /* no number is granted twice */
      is_granted[token] = true
    :: else
    fi;
    answered[cell(t, 0)] = 0; answered[cell(t, 1)] = 0; answered[cell(t, 2)] = 0;
    n = 0; token = 0; count = 0
  }
}

/* A copy of the first question of some taker. */
proctype Late() {
  byte got;
  atomic {
    byte t, n;
    if :: begun > 0 -> t = 0 :: begun > 1 -> t = 1 :: begun > 2 -> t = 2 fi;
    if :: n = 0 :: n = 1 :: n = 2 fi;
    ask(t, n, got);
    got = 0; t = 0; n = 0
  }
}

/* What has lost its state does not vote; what has not may have let its locks end, as at any moment. */
proctype Crash() {
  atomic {
    byte n;
    if :: n = 0 :: n = 1 :: n = 2 fi;
#ifdef MEMORY_ONLY
    counter[n] = 0;
    lock_of[n] = 255;
#else
    is_down[n] = true;
#endif
    n = 0
  }
}

init {
  atomic {
    run Taker(0); run Taker(1);
#if TAKERS > 2
    run Taker(2);
#endif
#ifndef NO_LATE
    run Late();
#endif
    run Crash()
  }
}
