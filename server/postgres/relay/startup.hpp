#pragma once

// Startup: the first message of a connection, which has no type, and the claims that a client hands over in
// it. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "guard/claim.hpp"

namespace fenceguard::pgwire {

// As PostgreSQL has it.
constexpr std::size_t startup_bytes_max = 10'000;

struct Startup {
  enum class Kind { part, malformed, start, cancel, tls, gss };
  Kind kind = Kind::part;
  std::size_t size = 0;  // of the message
  std::uint32_t version = 0;
  std::vector<std::pair<std::string, std::string>> parameters{};

  [[nodiscard]] const std::string* find(std::string_view name) const noexcept;
  void set(std::string_view name, std::string_view value);
  [[nodiscard]] std::string encode() const;
};

// What is at the beginning of bytes.
[[nodiscard]] Startup read_startup(std::string_view bytes);

// A claim and what was said to sign it.
struct SignedClaim {
  Claim claim;
  std::string signature;
};

// Takes the setting fenceguard.session_claims out of the parameters, 'options' included. Nothing where it was
// not given.
[[nodiscard]] std::optional<std::string> take_claims(Startup& startup);
// Likewise fenceguard.begin: the token under which the program says that it begins anew.
[[nodiscard]] std::optional<std::string> take_begin(Startup& startup);
// What is handed over to the server in their place: a JSON array, in ASCII, which every encoding reads alike.
[[nodiscard]] std::string write_claims(const std::vector<SignedClaim>& claims);
// Of the JSON of the claims. Throws InvalidInput with a sentence.
[[nodiscard]] std::vector<SignedClaim> read_claims(std::string_view json);

}  // namespace fenceguard::pgwire
