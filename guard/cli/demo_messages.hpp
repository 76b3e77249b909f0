#pragma once

// Messages: what the demonstration and its client processes tell each other, one line of JSON each, and what
// 'demo --json' prints. Tokens are decimal strings, because they exceed 2^53.
//
// Pure; safe to use from any thread.

#include <string>
#include <string_view>
#include <variant>

#include "guard/cli/demo_run.hpp"

namespace fenceguard::demo {

// What a client is to do; the first line that it is sent.
struct ClientTask {
  Party who = Party::a;
  std::string control;   // http://HOST:PORT of the guard's control side, where the leases are
  std::string data;      // http://HOST:PORT of the guard's data side
  std::string door;      // the storage's URL, for a client that writes to it itself; empty: through the guard
  std::string resource;  // the account, and its lock
  std::int64_t add = 0;
  std::chrono::milliseconds ttl{};
  std::string place;    // where in it, for a storage whose clients all do; empty: the guard's own objects
  bool guarded = true;  // carries its claim with every write
};

// The client has read the balance and is in the middle of its work: it goes on when it is sent a line.
struct AtWork {};
// The client has done its task and ends.
struct Finished {};
// The client cannot go on; a sentence.
struct Failed {
  std::string reason;
};

// What a client tells. The times of its events are BootClock's.
using ClientMessage = std::variant<Event, AtWork, Finished, Failed>;

// Lines without their newline.
[[nodiscard]] std::string encode(const ClientTask& task);
[[nodiscard]] std::string encode(const ClientMessage& message);

// Throw InvalidInput if the line is not such a message.
[[nodiscard]] ClientTask decode_task(std::string_view line);
[[nodiscard]] ClientMessage decode_message(std::string_view line);

// Both runs and what they amount to, as one line of JSON.
[[nodiscard]] std::string json_report(std::string_view scenario, const Run& round, const Run& through);

}  // namespace fenceguard::demo
