#pragma once

// ClaimAdvance: the claims of a session, from its startup on: the setting that hands them over to the server,
// their advance before the client hears that it is ready, and the statement that admits them in each
// transaction. What the client or the server is told is added to a text of bytes. Not thread-safe.

#include <string>
#include <string_view>
#include <vector>

#include "server/postgres/relay/relay_options.hpp"
#include "server/postgres/relay/startup.hpp"

namespace fenceguard::pgwire {

class ClaimAdvance {
 public:
  enum class Outcome { pending, advanced, refused };

  // Options and observer outlive it. held: what the sidecar holds for all its clients, which then bring no
  // claims; empty: they do.
  ClaimAdvance(const RelayOptions& options, RelayObserver& observer, const std::vector<Claim>& held);

  // Takes the client's claims, and adds what the server is to be told. Empty, or the error for the client.
  [[nodiscard]] std::string take_startup(Startup& startup);

  [[nodiscard]] bool is_empty() const noexcept { return claims_.empty(); }
  // The sidecar holds them: their tokens are its own for as long as its lease is.
  [[nodiscard]] bool is_held() const noexcept { return is_held_; }
  // The statement that admits them.
  [[nodiscard]] const std::string& admission() const noexcept { return admission_; }

  // Begins the advance, one claim after the other.
  [[nodiscard]] Outcome begin(std::string& to_server);
  // What the server answers.
  [[nodiscard]] Outcome take(char type, std::string_view body, std::string& to_client,
                             std::string& to_server);

  // For the observer: a transaction was admitted, or refused by a fence with this error.
  void report_admitted() const;
  void report_refused(std::string_view state, std::string_view body) const;

 private:
  [[nodiscard]] std::string read(Startup& startup);
  void hand_over(Startup& startup);
  [[nodiscard]] Outcome send_next(std::string& to_server);
  void read_row(std::string_view body);
  void fail(bool is_error, std::string_view body, std::string& to_client) const;
  [[nodiscard]] Outcome rule(std::string& to_client, std::string& to_server);

  const RelayOptions& options_;
  RelayObserver& observer_;
  const bool is_held_;
  std::vector<SignedClaim> claims_;
  std::string digest_;  // of what is handed over
  std::string admission_;
  std::size_t next_ = 0;  // of the claims, that is being advanced
  std::string verdict_, highest_;
};

}  // namespace fenceguard::pgwire
