#pragma once

// A running guard seen from a client, over its control side: --server http://HOST:PORT or unix:/path.
//
// Thread-safe: every call makes a connection of its own.

#include <boost/json/object.hpp>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "guard/source/lease_lister.hpp"
#include "guard/token_source.hpp"
#include "server/cli/target/fences.hpp"
#include "server/http/wire/message.hpp"

namespace fenceguard::cli {

// Calls of the control side: JSON out, JSON in, and what its statuses mean.
class ControlClient {
 public:
  // bearer may be empty. Throws InvalidInput for a malformed server.
  ControlClient(std::string server, std::string bearer);

  struct Call {
    std::string method;
    std::string target;
    std::optional<Claim> claim{};  // goes into the Fencing-Token and Fencing-Holder fields
    std::string signature{};       // goes into the Fencing-Signature field; empty: none
    std::optional<boost::json::object> body{};
    std::chrono::milliseconds timeout{30'000};
  };
  struct Answer {
    unsigned status = 0;
    http::Fields fields;
    boost::json::object body;  // empty where there was none
  };

  // The answer where it is a ruling on the call: 2xx, 404, 409 and 412. Throws InvalidInput, Implausible,
  // Unavailable or OutcomeUnknown for the other statuses, with the server's own words; and InvalidInput where
  // the server is not a control side.
  [[nodiscard]] Answer send(const Call& call) const;

 private:
  void require_control_side(const Call& call) const;

  std::string server_;
  std::string bearer_;
};

// The leases of a running guard. A token that it grants has been advanced at the guard already.
class RemoteSource : public TokenSource, public LeaseLister {
 public:
  // signature: of a claim that was granted before, to renew or release it; empty: none. Those that are
  // granted from now on are remembered.
  explicit RemoteSource(ControlClient client, std::string signature = {})
      : client_{std::move(client)}, signature_{std::move(signature)} {}

  [[nodiscard]] std::variant<Grant, LockBusy> try_acquire(const Resource& resource, const Holder& holder,
                                                          std::chrono::milliseconds ttl) override;
  [[nodiscard]] Renewal renew(const Claim& claim, std::chrono::milliseconds ttl) override;
  Release release(const Claim& claim) override;
  // Throws InvalidInput: over the wire a lease is ended by a revoke.
  Release end(const Resource& resource) override;
  [[nodiscard]] std::optional<LeaseRecord> show(const Resource& resource) override;
  void raise(const Resource& resource, Token mark) override;
  // Throws InvalidInput: not offered over the wire.
  [[nodiscard]] Token draw() override;
  [[nodiscard]] std::optional<Token> lowest_live() override { return std::nullopt; }
  [[nodiscard]] LeasePage list_leases(const FenceListing& listing) override;

  // Waits at the server, a slice at a time and always as the same holder, so that a lost answer is asked for
  // again; and waits for a server that is unavailable for now and says when to ask again.
  [[nodiscard]] std::optional<Grant> wait_acquire(const Resource& resource, const Holder& holder,
                                                  const AcquireOptions& options) override;

  // What the guard signed the claim with when it granted it; empty: nothing.
  [[nodiscard]] std::string signature_of(const Claim& claim) const;

 private:
  struct Ask {
    const Resource& resource;
    const Holder& holder;
    std::chrono::milliseconds ttl{};
    std::chrono::milliseconds wait{};
  };
  [[nodiscard]] std::variant<Grant, LockBusy> ask(const Ask& ask);
  // Sets asked_at so that the term counts from a moment close to the grant. Nothing if the lease is gone
  // meanwhile.
  [[nodiscard]] std::optional<Grant> dated(Grant grant, BootClock::time_point asked_at);
  void remember(const Claim& claim, std::string signature);

  ControlClient client_;
  const std::string signature_;
  mutable std::mutex mutex_;
  std::map<std::string, std::pair<Token, std::string>, std::less<>>
      granted_;  // by resource; not released yet
};

// The fences of a running guard.
class RemoteFences : public Fences {
 public:
  // signature: of the claim that will be advanced; empty: none.
  explicit RemoteFences(ControlClient client, std::string signature = {})
      : client_{std::move(client)}, signature_{std::move(signature)} {}

  [[nodiscard]] ShownFence show(const Resource& resource) override;
  // Whether the claim's token was cut off by a revoke. For people: it waits for a second at most, and throws
  // then.
  [[nodiscard]] bool is_revoked(const Claim& claim);
  [[nodiscard]] FencePage list(const FenceListing& listing) override;
  [[nodiscard]] Ruling advance(const Claim& claim) override;
  [[nodiscard]] FenceView revoke(const Resource& resource) override;
  [[nodiscard]] std::optional<Compaction> compact() override;

 private:
  ControlClient client_;
  const std::string signature_;
};

}  // namespace fenceguard::cli
