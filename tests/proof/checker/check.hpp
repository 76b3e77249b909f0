#pragma once

// The judgement of a history: the rules and the search over each of its resources, and a violation as the
// shortest prefix that still has one, as a table.
//
// Includes nothing of the product.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/proof/checker/history.hpp"

namespace fenceguard::proof {

struct CheckOptions {
  bool searches = true;
  // A resource with more operations is left to the rules; that its order was not searched is a failure, too.
  std::size_t search_operations_max = 2'000;
  std::int64_t steps_max = 5'000'000;
};

struct Violation {
  std::string resource;
  std::string rule;  // of rules.hpp, 'no-order', or 'undecided'
  std::string sentence;
  std::int64_t until = never;  // the end of the shortest prefix that has a violation
};

// The first violation of one resource; nothing if there is none. REQUIRES: put_in_order().
[[nodiscard]] std::optional<Violation> check(const ResourceHistory& resource, const Texts& texts,
                                             const CheckOptions& options = {});
// Of each resource that has one.
[[nodiscard]] std::vector<Violation> check(const History& history, const CheckOptions& options = {});

// What a client of that time knew: what had returned by then has its answer, what had not is open, what was
// called later is not there, nor are its effects in the log.
[[nodiscard]] ResourceHistory prefix_of(const ResourceHistory& resource, std::int64_t until);

// The operations of a prefix for people, the last rows_max of them, and the log.
[[nodiscard]] std::string table_of(const ResourceHistory& prefix, const Texts& texts,
                                   std::size_t rows_max = 40);

}  // namespace fenceguard::proof
