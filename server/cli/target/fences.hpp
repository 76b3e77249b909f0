#pragma once

// Fences: what the fence commands ask for, whether the guard is opened here (--storage) or runs elsewhere
// (--server). All calls block; faults are exceptions.

#include <chrono>
#include <memory>

#include "guard/store/storage.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::cli {

struct ShownFence {
  FenceView view;
  // How long a running guard's lane lets no claim in, because a write's end was not seen.
  std::chrono::milliseconds quarantine_left{};
};

class Fences {
 public:
  virtual ~Fences() = default;
  [[nodiscard]] virtual ShownFence show(const Resource& resource) = 0;
  [[nodiscard]] virtual FencePage list(const FenceListing& listing) = 0;
  [[nodiscard]] virtual Ruling advance(const Claim& claim) = 0;
  // Closes the fence and ends the lease, if a source can be reached. No record: there was nothing to close.
  [[nodiscard]] virtual FenceView revoke(const Resource& resource) = 0;
  // Nothing if the source's tokens come from several counters. Throws InvalidInput if there is no source.
  [[nodiscard]] virtual std::optional<Compaction> compact() = 0;
};

// A guard opened in this process.
class LocalFences : public Fences {
 public:
  // source may be null: then the storage's own is used, if it has one.
  LocalFences(std::unique_ptr<Storage> storage, std::unique_ptr<TokenSource> source);

  [[nodiscard]] ShownFence show(const Resource& resource) override;
  [[nodiscard]] FencePage list(const FenceListing& listing) override;
  [[nodiscard]] Ruling advance(const Claim& claim) override;
  [[nodiscard]] FenceView revoke(const Resource& resource) override;
  [[nodiscard]] std::optional<Compaction> compact() override;

  [[nodiscard]] FenceStore& store() { return storage_->fences(); }
  [[nodiscard]] DepthRecord* depth_record() { return storage_->depth_record(); }
  // Null if there is none.
  [[nodiscard]] TokenSource* source() { return source_; }
  [[nodiscard]] bool initialises_itself() const { return storage_->initialises_itself(); }

 private:
  std::unique_ptr<TokenSource> separate_source_;
  std::unique_ptr<Storage> storage_;
  TokenSource* source_;
};

}  // namespace fenceguard::cli
