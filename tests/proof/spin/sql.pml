/* The rule in a storage's own transaction, as sql/postgres has it: three clients, each of whose transactions admits its
 * claim and writes, and may stand still between any two steps for as long as it likes; its write is late then. One crash
 * of the server. A claim that equals the fence shares the fence's lock until its transaction ends; one that is newer holds
 * it alone.
 *
 * Broken variants, each by its own -D: TWO_STEPS looks at the fence without its lock, MEMORY_ONLY acknowledges an advance
 * that is not durable, NO_DRAIN advances beside those that share the lock (FOR KEY SHARE), NO_HOLDER takes the number for
 * enough.
 */
#define WRITERS 3

byte token[WRITERS];
byte fence, fence_of = 255;        /* committed */
byte durable, durable_of = 255;    /* what a crash leaves */
byte sharing;                      /* transactions that share the fence's lock */
bool alone;                        /* one holds it alone */
byte admitted;                     /* the highest token of any operation whose admission was committed */
byte written_by[WRITERS + 1] = 255;
byte life;                         /* of the server: a crash rolls back every open transaction */

#ifdef NO_HOLDER
#define is_equal(w) (token[w] == fence)
#else
#define is_equal(w) (token[w] == fence && fence_of == w)
#endif
#ifdef NO_DRAIN
#define may_hold_alone (!alone)
#else
#define may_hold_alone (!alone && sharing == 0)
#endif

inline commit(w) {
  if
  :: token[w] > admitted -> admitted = token[w]
  :: else
  fi
}

proctype Writer(byte w) {
  byte rounds, begun_in;
  do
  :: rounds == 3 -> break
  :: else ->
    rounds++;
    begun_in = life;
    if
    :: token[w] > fence ->
      /* an advance, in a transaction of its own: the lock, a second look, the record */
      atomic { may_hold_alone || begun_in != life; if :: begun_in != life -> goto rolled_back :: else -> alone = true fi }
      atomic {
        if
        :: begun_in != life -> goto rolled_back
        :: else
        fi;
        alone = false;
        if
        :: token[w] > fence ->
          fence = token[w];
          fence_of = w;
#ifndef MEMORY_ONLY
          durable = fence;
          durable_of = w;
#endif
          commit(w)
        :: else
        fi
      }
    :: else ->
      /* a write under the claim */
#ifdef TWO_STEPS
      atomic { if :: !is_equal(w) -> goto refused :: else fi }
#else
      atomic { !alone || begun_in != life; if :: begun_in != life -> goto rolled_back :: else -> sharing++ fi }
      atomic {
        if
        :: begun_in != life -> goto rolled_back
        :: begun_in == life && !is_equal(w) -> sharing--; goto refused
        :: else
        fi
      }
#endif
      /* here it may stand still */
      atomic {
        if
        :: begun_in != life -> goto rolled_back
        :: else
        fi;
#ifndef TWO_STEPS
        sharing--;
#endif
        assert(token[w] >= admitted);                                      /* no stale write */
        assert(written_by[token[w]] == 255 || written_by[token[w]] == w);  /* one holder per number */
        written_by[token[w]] = w;
        commit(w)
      }
    fi;
rolled_back: skip
  od;
refused: skip
}

proctype Crash() {
  atomic {
    life++;
    sharing = 0;
    alone = false;
    fence = durable;
    fence_of = durable_of
  }
}

init {
  atomic {
    token[0] = 1;
    token[1] = 2;
    if :: token[2] = 2 :: token[2] = 3 fi;
    run Writer(0); run Writer(1); run Writer(2); run Crash()
  }
}
