#include "adapters/sqlite/storage.hpp"
#include "adapters/sqlite/token_source.hpp"
#include "tests/conformance/source/token_source_suite.hpp"
#include "tests/conformance/temp_dir.hpp"

namespace fenceguard::test {
namespace {

// A file of its own, opened twice.
class OwnFile : public SourceSpace {
 public:
  std::unique_ptr<TokenSource> open() override { return sqlite::open_source(folder_.file("leases.db")); }

 private:
  TempDir folder_;
};

// A handle that a storage owns.
class StorageSource : public TokenSource {
 public:
  explicit StorageSource(std::unique_ptr<Storage> storage) : storage_{std::move(storage)} {}
  std::variant<Grant, LockBusy> try_acquire(const Resource& r, const Holder& h,
                                            std::chrono::milliseconds ttl) override {
    return own().try_acquire(r, h, ttl);
  }
  Renewal renew(const Claim& claim, std::chrono::milliseconds ttl) override {
    return own().renew(claim, ttl);
  }
  Release release(const Claim& claim) override { return own().release(claim); }
  Release end(const Resource& resource) override { return own().end(resource); }
  std::optional<LeaseRecord> show(const Resource& resource) override { return own().show(resource); }
  void raise(const Resource& resource, Token mark) override { own().raise(resource, mark); }
  Token draw() override { return own().draw(); }
  std::optional<Token> lowest_live() override { return own().lowest_live(); }

 private:
  TokenSource& own() { return *storage_->own_source(); }
  std::unique_ptr<Storage> storage_;
};

// The source of a running embedded storage, and a client that takes leases in its file beside it.
class BesideAGuard : public SourceSpace {
 public:
  std::unique_ptr<TokenSource> open() override {
    const auto path = folder_.file("fenceguard.db");
    if (is_first_) {
      is_first_ = false;
      StorageOptions options;
      options.initialise = true;
      return std::make_unique<StorageSource>(sqlite::open_storage(path, options));
    }
    return sqlite::open_source(path);
  }

 private:
  TempDir folder_;
  bool is_first_ = true;
};

template <class Space>
SourceKind kind(const std::string& name) {
  return {name, [] { return std::make_unique<Space>(); }};
}

INSTANTIATE_TEST_SUITE_P(Sqlite, TokenSourceSuite,
                         testing::Values(kind<OwnFile>("own_file"), kind<BesideAGuard>("beside_a_guard")),
                         source_kind_name);

}  // namespace
}  // namespace fenceguard::test
