#include "adapters/sqlite/token_source.hpp"

#include "adapters/sqlite/file/file.hpp"
#include "adapters/sqlite/file/submit.hpp"

namespace fenceguard::sqlite {
namespace {

// Runs recipe(LeaseTable&) in a transaction and waits until it is durable.
template <class T, class Recipe>
T run(Committer& committer, Recipe recipe) {
  const auto apply = [recipe](FenceTransaction& transaction) -> Outcome<T> {
    return recipe(transaction.leases());
  };
  return submit_and_wait<T>(committer, Needs::nothing, apply);
}

// A source with a file of its own.
class OwnFileSource : public TokenSource, public LeaseLister {
 public:
  explicit OwnFileSource(const std::string& path)
      : cache_{0},
        committer_{[this, path] { return std::make_unique<FenceTransaction>(path, cache_); }, path},
        source_{committer_} {}

  std::variant<Grant, LockBusy> try_acquire(const Resource& resource, const Holder& holder,
                                            std::chrono::milliseconds ttl) override {
    return source_.try_acquire(resource, holder, ttl);
  }
  Renewal renew(const Claim& claim, std::chrono::milliseconds ttl) override {
    return source_.renew(claim, ttl);
  }
  Release release(const Claim& claim) override { return source_.release(claim); }
  Release end(const Resource& resource) override { return source_.end(resource); }
  std::optional<LeaseRecord> show(const Resource& resource) override { return source_.show(resource); }
  void raise(const Resource& resource, Token mark) override { source_.raise(resource, mark); }
  Token draw() override { return source_.draw(); }
  std::optional<Token> lowest_live() override { return source_.lowest_live(); }
  LeasePage list_leases(const FenceListing& listing) override { return source_.list_leases(listing); }

 private:
  FenceCache cache_;
  Committer committer_;
  LeaseSource source_;
};

}  // namespace

std::variant<Grant, LockBusy> LeaseSource::try_acquire(const Resource& resource, const Holder& holder,
                                                       std::chrono::milliseconds ttl) {
  require_sensible_ttl(ttl);
  return run<std::variant<Grant, LockBusy>>(committer_, [resource, holder, ttl](LeaseTable& table) {
    return table.acquire(resource, holder, ttl);
  });
}

Renewal LeaseSource::renew(const Claim& claim, std::chrono::milliseconds ttl) {
  require_sensible_ttl(ttl);
  return run<Renewal>(committer_, [claim, ttl](LeaseTable& table) { return table.renew(claim, ttl); });
}

Release LeaseSource::release(const Claim& claim) {
  return run<Release>(committer_, [claim](LeaseTable& table) { return table.release(claim); });
}

Release LeaseSource::end(const Resource& resource) {
  return run<Release>(committer_, [resource](LeaseTable& table) { return table.end(resource); });
}

std::optional<LeaseRecord> LeaseSource::show(const Resource& resource) {
  return run<std::optional<LeaseRecord>>(committer_,
                                         [resource](LeaseTable& table) { return table.find(resource); });
}

void LeaseSource::raise(const Resource&, Token mark) {
  (void)run<bool>(committer_, [mark](LeaseTable& table) {
    table.raise(mark);
    return true;
  });
}

Token LeaseSource::draw() {
  return run<Token>(committer_, [](LeaseTable& table) { return table.draw(); });
}

std::optional<Token> LeaseSource::lowest_live() {
  return run<Token>(committer_, [](LeaseTable& table) { return table.lowest_live(); });
}

LeasePage LeaseSource::list_leases(const FenceListing& listing) {
  LeasePage page;
  auto rest = listing;
  do {
    auto part = run<LeaseTable::Part>(committer_, [&rest](LeaseTable& table) { return table.list(rest); });
    for (auto& lease : part.page.entries) page.entries.push_back(std::move(lease));
    page.has_more = part.page.has_more;
    rest.after = std::move(part.next);
    rest.limit = listing.limit - page.entries.size();
  } while (!rest.after.empty());
  return page;
}

std::unique_ptr<TokenSource> open_source(const std::string& path) {
  prepare_file(path, Missing::create);
  return std::make_unique<OwnFileSource>(path);
}

std::unique_ptr<TokenSource> open_source(const Url& url) {
  return open_source(path_of(url));
}

}  // namespace fenceguard::sqlite
