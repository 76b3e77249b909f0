#pragma once

// The fence in a service's own Redis: judged, recorded and written in one script, the fence in the slot of
// the data.
//
//   redis::Client client{"redis://cache/0"};
//   redis::Guard guard{client};
//   auto written = guard.write(lease->claim().with(Sequence{7}), {"SET", "{accounts/42}:balance", "70"});
//
// The resource of a key is its hash tag, or all of it where it has none; a command may only name keys of the
// claim's own resource. A namespace must have been initialised ('fenceguard fence init'); one that forgot its
// record, as after FLUSHALL, is unavailable until it is again. Under Redis Cluster a script cannot see such a
// record: there a new resource starts without a floor. While a slot is moved, a call that names a key which
// does not exist yet is unavailable, because no server can tell then where it would be. See docs/redis.md.
//
// After an OutcomeUnknown the next call first has the server end the lost connection (CLIENT KILL), so that
// what was sent on it cannot take effect behind it; where the user may not do that, it is Unavailable until
// the settle time has passed. That holds for as long as the client lives, and in this process alone.
//
// Thread safety: that of the client.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "adapters/redis/client.hpp"
#include "adapters/redis/write.hpp"
#include "guard/guard.hpp"

namespace fenceguard::redis {

class GuardedCall;

class Guard : public fenceguard::Guard {
 public:
  // REQUIRES: the client outlives the guard. jump_max: see is_implausible(); 0: no bound.
  // settle: for so long what ended in OutcomeUnknown may take effect where its connection cannot be ended at
  // the server. Throws InvalidInput for a negative one.
  explicit Guard(Client& client, std::int64_t jump_max = 0,
                 std::chrono::milliseconds settle = std::chrono::seconds{30});

  // One round trip. As durable as the server makes it (appendfsync).
  [[nodiscard]] Ruling advance(const Claim& claim) override;

  // {judge; apply} as one script, in one round trip. replies.front() is the command's own, which may be an
  // error of its own (WRONGTYPE): then it wrote nothing, and the sequence is free; an advanced fence stays.
  // A refusal by the server's state (OOM, READONLY) is no reply but Unavailable. Integers beyond 2^53 are
  // exact from INCR, DECR, INCRBY, DECRBY and HINCRBY; from others (BITFIELD, PTTL) Lua rounds them.
  // Throws InvalidInput for a command that cannot be guarded: no key, a key of another resource, a reserved
  // key, another database (MOVE, MIGRATE, COPY with DB), a pattern that reads other keys (SORT), a script, a
  // transaction; Implausible; Unavailable; OutcomeUnknown: repeated with the same sequence it takes effect at
  // most once. A command of a module is taken at its word about its keys.
  [[nodiscard]] WriteResult write(const Claim& claim, const Command& command);

  // Several commands under one claim. They run in their order up to the first that fails, and what was run
  // before it stays, as in MULTI; the sequence counts if any of them wrote.
  [[nodiscard]] WriteResult write_batch(const Claim& claim, const std::vector<Command>& commands);

  // Several writes in one round trip (under Redis Cluster: one per server), each with an ending of its own,
  // as if it were sent by itself, in their order for each resource. One that cannot be guarded has
  // InvalidInput as its outcome; the others are run. Writes of one command that follow each other under one
  // claim without a sequence are one script, up to 64 of them and 64 KiB: the claim is judged once for all,
  // and nothing comes between them. Of those all are unknown where the answer is not seen, and memory (OOM)
  // is looked at before the first. What had to be sent again is Unavailable after one of its resource that is
  // unknown. Throws Unavailable where the server could not be asked what a command is:
  // nothing was sent.
  [[nodiscard]] std::vector<Outcome<WriteResult>> pipeline(std::span<const Write> writes);

  // A fenced read: advances, then reads, in one step, and never at a replica. The command must be one that
  // does not write.
  [[nodiscard]] WriteResult read(const Claim& claim, const Command& command);

 private:
  [[nodiscard]] GuardedCall prepare(const Claim& claim, std::span<const Command> commands,
                                    std::size_t place = 0);
  [[nodiscard]] WriteResult apply(GuardedCall call);
  void run_apart(std::span<const Write> writes, std::span<const GuardedCall> calls,
                 const std::vector<Outcome<Reply>>& replies, std::vector<Outcome<WriteResult>>& outcomes);

  Client& client_;
  const std::int64_t jump_max_;
  const std::chrono::milliseconds settle_;
};

}  // namespace fenceguard::redis
