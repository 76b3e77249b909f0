#pragma once

// The token source sqlite:PATH: a lease table and one counter in a file. Several processes may use the file
// at once; SQLite's write lock orders their grants. Calls of one process share commits.
//
// Times to live are counted by the machine's clock since boot, so that a change of the wall clock or another
// time namespace moves no lease; a reboot ends all leases. The file must be on a local disk.

#include <memory>

#include "adapters/sqlite/file/committer.hpp"
#include "guard/source/lease_lister.hpp"
#include "guard/source/url.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::sqlite {

class LeaseSource : public TokenSource, public LeaseLister {
 public:
  // On a committer that outlives the source.
  explicit LeaseSource(Committer& committer) : committer_{committer} {}

  [[nodiscard]] std::variant<Grant, LockBusy> try_acquire(const Resource& resource, const Holder& holder,
                                                          std::chrono::milliseconds ttl) override;
  [[nodiscard]] Renewal renew(const Claim& claim, std::chrono::milliseconds ttl) override;
  Release release(const Claim& claim) override;
  Release end(const Resource& resource) override;
  [[nodiscard]] std::optional<LeaseRecord> show(const Resource& resource) override;
  void raise(const Resource& resource, Token mark) override;
  [[nodiscard]] Token draw() override;
  [[nodiscard]] std::optional<Token> lowest_live() override;
  [[nodiscard]] LeasePage list_leases(const FenceListing& listing) override;

 private:
  Committer& committer_;
};

// A source of its own on a file, which is created if it is not there: its data is new as well.
// Throws Unavailable with a sentence that says what to do.
[[nodiscard]] std::unique_ptr<TokenSource> open_source(const std::string& path);
[[nodiscard]] std::unique_ptr<TokenSource> open_source(const Url& url);

}  // namespace fenceguard::sqlite
