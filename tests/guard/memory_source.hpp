#pragma once

// MemorySource: a real token source whose leases live in this process, for tests of what is built on top of
// token sources. It can be told to answer no renewal, to let renewals hang, to refuse releases, and to fall
// back to an older counter as a server does that was restored from a backup.
//
// Thread-safe.

#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

#include "guard/token_source.hpp"

namespace fenceguard::test {

class MemorySource : public TokenSource {
 public:
  enum class Fault { none, unavailable, hang };

  // Ends hanging renewals first, whose threads must be gone before the source is.
  ~MemorySource() override;

  [[nodiscard]] std::variant<Grant, LockBusy> try_acquire(const Resource& resource, const Holder& holder,
                                                          std::chrono::milliseconds ttl) override;
  [[nodiscard]] Renewal renew(const Claim& claim, std::chrono::milliseconds ttl) override;
  Release release(const Claim& claim) override;
  Release end(const Resource& resource) override;
  [[nodiscard]] std::optional<LeaseRecord> show(const Resource& resource) override;
  void raise(const Resource& resource, Token mark) override;
  [[nodiscard]] Token draw() override;
  [[nodiscard]] std::optional<Token> lowest_live() override;
  [[nodiscard]] std::stop_token lost(const Claim&) override { return told_.get_token(); }

  // Says of every lease that it is no longer certain.
  void tell_lost() { told_.request_stop(); }
  // How renewals and releases end from now on. A renewal that hangs goes on when the fault is changed.
  void set_renewal_fault(Fault fault);
  void set_release_fault(Fault fault);
  // The next token is counter + 1.
  void fall_back_to(std::int64_t counter);

  // When each renewal began, and every mark that was raised to.
  [[nodiscard]] std::vector<BootClock::time_point> renewals() const;
  [[nodiscard]] std::vector<Token> raised() const;
  // Waits until this many renewals have begun; false if it took too long.
  [[nodiscard]] bool wait_for_renewals(std::size_t count) const;

 private:
  struct Entry {
    Token token;
    Holder holder;
    BootClock::time_point expires_at;
  };

  // The live lease of resource. REQUIRES: mutex_ is held.
  [[nodiscard]] Entry* live(const Resource& resource);
  [[nodiscard]] Entry* live(const Claim& claim);

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<Resource, Entry> leases_;
  std::int64_t counter_ = 0;
  Fault renewal_fault_ = Fault::none;
  Fault release_fault_ = Fault::none;
  std::vector<BootClock::time_point> renewals_;
  std::vector<Token> raised_;
  std::stop_source told_;
};

}  // namespace fenceguard::test
