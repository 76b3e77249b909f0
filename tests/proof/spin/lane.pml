/* The lane: one guard in front of an upstream that knows nothing of tokens, three writers, one crash of the guard, and
 * an upstream that applies a write at once, late, or never. Time is in it as the one assumption of the product: the
 * settle time is over only when nothing is under way at the upstream any more.
 *
 * Each atomic step is one call of the LaneTable. Broken variants, each by its own -D: TWO_STEPS lets in by a verdict of
 * before, MEMORY_ONLY raises the fence without the store, NO_DRAIN does not wait for lower writes, NO_HOLDER takes the
 * number for enough, NO_SETTLE takes an end that was not seen for one, NO_MARK forgets at a restart that there were writes.
 */
#define WRITERS 3

byte token[WRITERS];            /* of each writer's grant; the last two may have been issued one number */
byte fence, fence_of = 255;     /* durable; of whom */
byte known, known_of = 255;     /* what the running guard judges by */
bool mark;                      /* durable: a write was let in */
bool closed;                    /* until everything has settled */
byte in_flight[WRITERS];        /* writes that were let in, and whose end the guard has not seen */
bool at_upstream[WRITERS];      /* sent, and neither applied nor abandoned */
byte admitted;                  /* the highest token of any operation that was admitted */
byte written_by[WRITERS + 1] = 255;   /* by number */
byte life;                      /* of the guard */

#ifdef NO_DRAIN
#define is_drained(w) true
#else
#define is_drained(w) \
  !((in_flight[0] > 0 && token[0] < token[w]) || (in_flight[1] > 0 && token[1] < token[w]) || \
    (in_flight[2] > 0 && token[2] < token[w]))
#endif
#ifdef NO_HOLDER
#define is_equal(w) (token[w] == known)
#else
#define is_equal(w) (token[w] == known && known_of == w)
#endif
#define is_refused(w) (token[w] < known || (token[w] == known && !is_equal(w)))

inline raise(w) {
  known = token[w];
  known_of = w;
#ifndef MEMORY_ONLY
  fence = known;
  fence_of = w;
#endif
}

inline admit(w) {
  if
  :: token[w] > admitted -> admitted = token[w]
  :: else
  fi
}

inline send(w) {
  mark = true;
  in_flight[w]++;
  at_upstream[w] = true;
  sent_in = life
}

proctype Writer(byte w) {
  byte rounds, sent_in;
  do
  :: rounds == 2 -> break
  :: else ->
    rounds++;
    /* advance, or go on under the same token */
    atomic {
      if
      :: token[w] > known -> raise(w)
      :: is_refused(w) -> goto refused
      :: else
      fi
    }
#ifdef TWO_STEPS
    atomic { is_equal(w) && is_drained(w) && !closed || is_refused(w);
      if :: is_refused(w) -> goto refused :: else fi }
    atomic { admit(w); send(w) }
#else
    atomic {
      (is_equal(w) && is_drained(w) && !closed) || is_refused(w) || token[w] > known;
      if
      :: is_refused(w) -> goto refused
      :: token[w] > known -> goto again      /* a guard that has forgotten */
      :: else -> admit(w); send(w)
      fi
    }
#endif
    /* its end is seen when the upstream has answered, or given up on */
    atomic {
      if
      :: sent_in != life                      /* the guard that let it in is gone */
      :: sent_in == life && !at_upstream[w] -> in_flight[w]--
      :: sent_in == life && at_upstream[w] -> in_flight[w]--;
#ifndef NO_SETTLE
        closed = true
#endif
      fi
    }
again: skip
  od;
refused: skip
}

/* Applies in any order. */
proctype Upstream() {
  byte w;
end: do
  :: atomic {
      if
      :: at_upstream[0] -> w = 0
      :: at_upstream[1] -> w = 1
      :: at_upstream[2] -> w = 2
      fi;
      at_upstream[w] = false;
      if
      :: assert(token[w] >= admitted);                                      /* no stale write */
        assert(written_by[token[w]] == 255 || written_by[token[w]] == w);   /* one holder per number */
        written_by[token[w]] = w
      :: true                                                               /* abandoned */
      fi
    }
  od
}

proctype Settle() {
end: do
  :: atomic { closed && !at_upstream[0] && !at_upstream[1] && !at_upstream[2] -> closed = false }
  od
}

proctype Crash() {
  atomic {
    life++;
    known = fence;
    known_of = fence_of;
    in_flight[0] = 0; in_flight[1] = 0; in_flight[2] = 0;
#ifndef NO_MARK
    closed = closed || mark
#else
    closed = false
#endif
  }
}

init {
  atomic {
    token[0] = 1;
    token[1] = 2;
    if :: token[2] = 2 :: token[2] = 3 fi;
    run Writer(0); run Writer(1); run Writer(2);
    run Upstream(); run Settle(); run Crash()
  }
}
