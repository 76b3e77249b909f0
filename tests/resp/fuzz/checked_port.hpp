#pragma once

// CheckedPort: a fake port that looks at everything that leaves for Redis, and aborts where a write of the
// client leaves otherwise than in the guard's script, under a claim to the resource of all its keys, or in a
// transaction that watches the fences of all its keys and whose judgement was answered 'admitted', MULTI
// included.
//
// REQUIRES: clients may not write without a claim, run scripts, or administrate. Not thread-safe.

#include <deque>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/proof/fuzz/input.hpp"
#include "tests/resp/unit/fake_port.hpp"

namespace fenceguard::resp::test {

using fenceguard::test::violated;

class CheckedPort : public FakePort {
 public:
  void send(Channel channel, int slot, std::string_view bytes, std::size_t replies, bool waits) override;
  void send(Channel channel, int slot, const ScriptCall& call, bool with_text) override;
  void close(Channel channel) override;
  void bind(const Identity& identity, int database) override;
  void learn_command(std::string_view name) override;
  void sleep(int ms) override;

  // The oldest that was sent is answered, or lost.
  void reply_to_oldest(const std::string& bytes);
  void lose_oldest(bool was_sent);
  // What the relay waits for comes about, if it waits for it.
  void bound(bool is_reached);
  void learned();
  void woken();

 private:
  // What a connection of the client's own was asked for one transaction, and answered.
  struct Judgement {
    std::set<std::string> watched;   // resources whose fences are watched
    std::set<std::string> admitted;  // those whose claims were
    bool is_begun = false;           // MULTI was not answered by an error

    [[nodiscard]] bool covers(std::string_view key) const;
  };

  void pop();
  // The connection is gone, and with it what was asked on it.
  void forget(Channel channel);
  static void take_answer(Judgement& judgement, const Sent& asked, std::string_view bytes);
  void check_requests(Channel channel, std::string_view bytes);
  static void check_request(const Judgement& judgement, Channel channel, const Views& words,
                            std::string_view bytes);
  void check_run(const ScriptCall& call) const;

  std::deque<std::size_t> owed_;  // replies, of what was sent
  Judgement judgements_[3];
  int bindings_ = 0, questions_ = 0, pauses_ = 0;  // that the relay waits for
};

}  // namespace fenceguard::resp::test
