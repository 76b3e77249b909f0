#pragma once

// ModelServer: what PostgreSQL does about transactions with the messages that it gets, of a few statements
// that it knows by their text: which transaction they run in, whether that may write, and whether it was
// admitted. It aborts where something is written in a transaction that was not admitted.
//
// Where PostgreSQL may or may not fail, the input decides. Not thread-safe.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/postgres/relay/relay.hpp"
#include "tests/proof/fuzz/input.hpp"

namespace fenceguard::pgwire::test {

using fenceguard::test::violated;

struct SilentObserver : RelayObserver {
  void ruled(const char* /*operation*/, const Claim& /*claim*/, Verdict /*verdict*/,
             std::int64_t /*highest*/) override {}
  void failed(const char* /*operation*/, const Claim& /*claim*/, const Fault& /*fault*/) override {}
  void missing() override {}
  void not_signed(const Claim& /*claim*/) override {}
  void is_standby() override {}
};

// The statements that it knows, as a client may write them.
[[nodiscard]] const std::vector<std::string>& known_texts();

class ModelServer {
 public:
  // chance: answers true where something is to fail.
  explicit ModelServer(std::function<bool()> chance) : chance_{std::move(chance)} {}

  // The startup message first. What it answers is added to answers.
  void take(std::string_view bytes, std::string& answers);
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }

 private:
  enum class Meaning : std::uint8_t;
  static const std::map<std::string, Meaning, std::less<>>& meanings();
  static std::optional<std::vector<Meaning>> read(std::string_view text);

  struct Transaction {
    bool is_block = false, is_aborted = false, is_read_only = true, is_admitted = false;
    bool has_snapshot = false, has_run = false;
    bool default_before = true;                       // of its read-only mode, should it be rolled back
    std::vector<std::pair<bool, bool>> savepoints{};  // whether read-only and admitted, before each
  };
  struct Portal {
    Meaning meaning;
    bool is_done = false;
  };

  void take_message(char type, std::string_view body);
  void take_extended(char type, std::string_view body);
  void take_parse(std::string_view body);
  void take_bind(std::string_view body);
  void take_execute(std::string_view body);
  void take_describe(std::string_view body);
  void take_close(std::string_view body);
  void take_copy(char type);
  void begin_query(std::string_view text);
  void go_on_with_query();
  void ready();

  void start();
  void end(bool commits);
  [[nodiscard]] bool fail(const char* state);
  [[nodiscard]] bool is_allowed(Meaning meaning) const;
  // False: it failed.
  [[nodiscard]] bool run(Meaning meaning, bool is_top_level);
  [[nodiscard]] bool run_control(Meaning meaning);
  [[nodiscard]] bool run_chain();
  [[nodiscard]] bool set_mode(bool is_read_only);
  [[nodiscard]] bool write();
  [[nodiscard]] bool run_alone(Meaning meaning, bool is_top_level);
  [[nodiscard]] bool run_named(Meaning meaning);
  void tag(std::string_view text);
  void say(char type, std::string_view body = {});

  std::function<bool()> chance_;
  std::string in_, *out_ = nullptr;
  bool is_started_ = false, is_over_ = false, is_skipping_ = false, is_copying_ = false;
  bool default_read_only_ = true, default_told_ = true;
  bool ends_at_once_ = false;  // what runs has committed by itself
  std::optional<Transaction> transaction_;
  std::vector<Meaning> query_;  // what is still to be run of it
  bool is_in_query_ = false, is_several_ = false;
  std::map<std::string, Meaning, std::less<>> statements_;
  std::map<std::string, Portal, std::less<>> portals_;
};

}  // namespace fenceguard::pgwire::test
