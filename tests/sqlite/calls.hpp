#pragma once

// The calls of a storage for tests: each waits for its answer and throws the fault as an exception.

#include <memory>
#include <optional>
#include <string>

#include "adapters/sqlite/file/database.hpp"
#include "adapters/sqlite/storage.hpp"
#include "guard/support/wait_for.hpp"

namespace fenceguard::test {

inline Claim claim_of(const std::string& resource, std::int64_t token, const std::string& holder = "h") {
  return {Resource{resource}, Token{token}, Holder{holder}, std::nullopt};
}

inline Fence fence_of(std::int64_t token, const std::string& holder = "h") {
  return {Token{token}, Holder{holder}, std::nullopt, false};
}

inline StorageOptions initialised(std::size_t cache_entries = 1'000) {
  StorageOptions options;
  options.initialise = true;
  options.cache_entries = cache_entries;
  return options;
}

class OpenStorage {
 public:
  explicit OpenStorage(const std::string& path, const StorageOptions& options = initialised())
      : storage_{sqlite::open_storage(path, options)} {}

  [[nodiscard]] Storage& operator*() const { return *storage_; }
  [[nodiscard]] Storage* operator->() const { return storage_.get(); }
  [[nodiscard]] FenceStore& fences() const { return storage_->fences(); }
  [[nodiscard]] ObjectStore& objects() const { return *storage_->objects(); }
  [[nodiscard]] StoreStatus status() const { return fences().status(); }
  void close() { storage_.reset(); }

  [[nodiscard]] Ruling advance(const Claim& claim) const { return StoreGuard{fences()}.advance(claim); }

  [[nodiscard]] WriteReport write(const Claim& claim, const ObjectWrite& write) const {
    return wait_for<WriteReport>([&](Done<WriteReport> done) { objects().write(claim, write, done); });
  }
  // Writes the object of the claim's resource.
  [[nodiscard]] WriteReport put(const Claim& claim, const std::string& body) const {
    return write(claim, {ObjectWrite::Kind::put, claim.resource.name(), body, "text/plain", {}, {}});
  }
  [[nodiscard]] WriteReport remove(const Claim& claim) const {
    return write(claim, {ObjectWrite::Kind::remove, claim.resource.name(), "", "", {}, {}});
  }
  [[nodiscard]] ReadReport read(const std::string& path, const std::optional<Claim>& claim = {},
                                bool with_body = true) const {
    return wait_for<ReadReport>([&](Done<ReadReport> done) {
      objects().read({path, claim, with_body}, std::move(done));
    });
  }
  // The body of an object; '' if there is none.
  [[nodiscard]] std::string body(const std::string& path) const {
    auto report = read(path);
    return report.object ? report.object->body : "";
  }

  [[nodiscard]] FenceView show(const std::string& resource) const {
    return wait_for<FenceView>(
        [&](Done<FenceView> done) { fences().show(Resource{resource}, std::move(done)); });
  }
  [[nodiscard]] FencePage list(const FenceListing& listing) const {
    return wait_for<FencePage>([&](Done<FencePage> done) { fences().list(listing, std::move(done)); });
  }
  [[nodiscard]] FenceView revoke(const std::string& resource, const std::optional<Claim>& lease = {}) const {
    return wait_for<FenceView>(
        [&](Done<FenceView> done) { fences().revoke(Resource{resource}, lease, std::move(done)); });
  }
  [[nodiscard]] Compaction compact(std::int64_t lowest_live) const {
    return wait_for<Compaction>(
        [&](Done<Compaction> done) { fences().compact(Token{lowest_live}, std::move(done)); });
  }
  [[nodiscard]] std::int64_t init(std::int64_t floor) const {
    return wait_for<std::int64_t>([&](Done<std::int64_t> done) { fences().init(floor, std::move(done)); });
  }
  [[nodiscard]] FenceView rebase(const std::string& resource, std::int64_t to,
                                 const std::string& by = "tester") const {
    return wait_for<FenceView>([&](Done<FenceView> done) {
      fences().rebase({Resource{resource}, Token{to}, by}, std::move(done));
    });
  }

 private:
  std::unique_ptr<Storage> storage_;
};

// The first column of the first row that a query answers, as text; '' if there is none.
inline std::string query(const std::string& path, const std::string& sql) {
  sqlite::Database database{path, sqlite::Database::Mode::look};
  sqlite::Statement statement{database.handle(), sql};
  return statement.bind().step() ? std::string{statement.text(0)} : "";
}

// Runs SQL on the file, past everything.
inline void change(const std::string& path, const std::string& sql) {
  sqlite::Database database{path, sqlite::Database::Mode::create};
  sqlite::execute(database.handle(), sql.c_str());
}

}  // namespace fenceguard::test
