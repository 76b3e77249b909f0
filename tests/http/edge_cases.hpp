#pragma once

// The classes of the published corpora of request smuggling, and of what else two readers of one connection
// could understand differently, as bytes; and what must come of each: it is refused and the connection ends,
// or it is seen as exactly one request. They are for anything that serves HTTP at an address: the server
// alone, or a guard in front of an upstream that tells what it saw. Requests carry a claim, so that a guard
// lets them in.

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fenceguard::http {

struct EdgeCase {
  std::string bytes;
  unsigned status = 400;  // of the refusal
  // What is seen of it instead: 'METHOD TARGET BODY'.
  std::optional<std::string> seen{};
};

struct EdgeClass {
  std::string name;
  std::vector<EdgeCase> cases;
};

[[nodiscard]] const std::vector<EdgeClass>& edge_classes();

// The requests that were seen since the last call, as 'METHOD TARGET BODY', whole ones only.
using TakeSeen = std::function<std::vector<std::string>()>;

// Sends the case and, pipelined behind it, a request of its own; expects the first refused and the second
// never looked at, or both seen.
void expect_edge(const EdgeCase& edge_case, const std::string& address, const TakeSeen& take_seen);

}  // namespace fenceguard::http
