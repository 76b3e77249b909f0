#pragma once

// Scripts for two guards that are compared: the bytes that a client sends, in pieces, and what is asked of
// the upstream. Made at random from a seed: plain requests, and everything that is none.

#include <random>
#include <string>
#include <vector>

namespace fenceguard::test {

struct FastPathScript {
  std::vector<std::string> requests;  // one behind the other, on one connection
  std::vector<bool> are_heads;        // which are answered without a body
  std::vector<std::size_t> cuts;      // of all bytes: where a piece ends, rising

  [[nodiscard]] std::string bytes() const;
};

// Words for the upstream after which nothing is left that could meet a later request: see
// tests/kit/upstream.py.
[[nodiscard]] const std::vector<std::string>& upstream_words();

// path: of a resource whose fence stands at token.
[[nodiscard]] FastPathScript random_script(std::mt19937& random, const std::string& path, int token);

}  // namespace fenceguard::test
