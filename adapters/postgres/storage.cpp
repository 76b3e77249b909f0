#include "adapters/postgres/storage.hpp"

#include <mutex>

#include "adapters/postgres/fence_store.hpp"
#include "adapters/postgres/token_source.hpp"

namespace fenceguard::postgres {
namespace {

// The database's own token source, opened when it can be: a storage that waits for its SQL to be installed,
// or for its server, is a storage all the same.
class OwnSource : public TokenSource {
 public:
  using Ms = std::chrono::milliseconds;

  explicit OwnSource(const Url& url) : url_{url} {
    const auto lock = url.parameters.find("lock");
    lives_by_connection_ = lock != url.parameters.end() && lock->second != "ttl";
    try {
      (void)source();
    } catch (const Unavailable&) {
      // Whoever asks is told.
    }
  }

  std::variant<Grant, Held> try_acquire(const Resource& resource, const Holder& holder, Ms ttl) override {
    return source().try_acquire(resource, holder, ttl);
  }
  Renewal renew(const Claim& claim, Ms ttl) override { return source().renew(claim, ttl); }
  Release release(const Claim& claim) override { return source().release(claim); }
  Release end(const Resource& resource) override { return source().end(resource); }
  std::optional<LeaseRecord> show(const Resource& resource) override { return source().show(resource); }
  void raise(const Resource& resource, Token mark) override { source().raise(resource, mark); }
  Token draw() override { return source().draw(); }
  std::optional<Token> lowest_live() override { return source().lowest_live(); }
  bool lives_by_connection() const noexcept override { return lives_by_connection_; }
  std::optional<Grant> wait_acquire(const Resource& resource, const Holder& holder,
                                    const AcquireOptions& options) override {
    return source().wait_acquire(resource, holder, options);
  }

 private:
  [[nodiscard]] TokenSource& source() {
    const std::scoped_lock lock{mutex_};
    if (!source_) source_ = open_source(url_);
    return *source_;
  }

  const Url url_;
  bool lives_by_connection_ = false;
  std::mutex mutex_;
  std::unique_ptr<TokenSource> source_;
};

class DatabaseStorage : public Storage {
 public:
  DatabaseStorage(const Url& url, const StorageOptions& options)
      : fences_{address_with_limits(url, {"lock"}), options} {
    if (options.mode == StorageOptions::Mode::guard) source_ = std::make_unique<OwnSource>(url);
  }

  FenceStore& fences() override { return fences_; }
  TokenSource* own_source() override { return source_.get(); }
  // Installing the SQL is that step.
  bool initialises_itself() const noexcept override { return true; }

 private:
  DatabaseFences fences_;
  std::unique_ptr<TokenSource> source_;
};

}  // namespace

std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options) {
  return std::make_unique<DatabaseStorage>(url, options);
}

}  // namespace fenceguard::postgres
