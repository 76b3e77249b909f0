#include "guard/store/fence_cache.hpp"

#include <array>
#include <atomic>
#include <boost/unordered/unordered_flat_set.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace fenceguard {
namespace {

constexpr std::size_t shards_max = 64;
constexpr std::size_t reader_locks = 4;  // of a shard

// One cached fence. name and holder lie one after the other, in place or on the heap.
class Slot {
 public:
  Slot() = default;
  ~Slot() { drop_text(); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  void assign(std::string_view name, const Fence& fence) {
    drop_text();
    const std::string_view holder = fence.holder.id();
    const std::size_t bytes = name.size() + holder.size();
    char* text = in_place_;
    if (bytes > sizeof in_place_) {
      text = new char[bytes];
      std::memcpy(in_place_, &text, sizeof text);
    }
    std::memcpy(text, name.data(), name.size());
    if (!holder.empty()) std::memcpy(text + name.size(), holder.data(), holder.size());
    name_bytes_ = static_cast<std::uint16_t>(name.size());
    holder_bytes_ = static_cast<std::uint8_t>(holder.size());
    token_ = fence.token.value();
    sequence_ = fence.sequence ? fence.sequence->value() : no_sequence;
    closed_ = fence.closed;
    finished_ = fence.finished;
    mark_used();
  }

  // A slot that is only looked at stays in the caches of all processors, so what is marked is not written.
  void mark_used() noexcept {
    if (!used_.load(std::memory_order_relaxed)) used_.store(true, std::memory_order_relaxed);
  }
  // Whether it was used since the last call.
  [[nodiscard]] bool take_used() noexcept { return used_.exchange(false, std::memory_order_relaxed); }

  [[nodiscard]] std::string_view name() const noexcept { return {text(), name_bytes_}; }
  [[nodiscard]] std::string_view holder() const noexcept { return {text() + name_bytes_, holder_bytes_}; }
  [[nodiscard]] FenceRef fence() const {
    std::optional<Sequence> sequence;
    if (sequence_ != no_sequence) sequence = Sequence{sequence_};
    return {Token{token_}, holder(), sequence, closed_, finished_};
  }

  [[nodiscard]] bool is_empty() const noexcept { return name_bytes_ == 0; }
  void release() {
    drop_text();
    name_bytes_ = 0;
    holder_bytes_ = 0;
  }

 private:
  static constexpr std::int64_t no_sequence = -1;

  [[nodiscard]] bool is_on_heap() const noexcept {
    return std::size_t{name_bytes_} + holder_bytes_ > sizeof in_place_;
  }
  [[nodiscard]] char* heap_text() const noexcept {
    char* text = nullptr;
    std::memcpy(&text, in_place_, sizeof text);
    return text;
  }
  [[nodiscard]] const char* text() const noexcept { return is_on_heap() ? heap_text() : in_place_; }
  void drop_text() {
    if (is_on_heap()) delete[] heap_text();
    name_bytes_ = 0;
    holder_bytes_ = 0;
  }

  std::atomic<bool> used_{false};  // since the hand last passed; readers write it side by side
  bool closed_ = false;
  bool finished_ = false;
  std::uint8_t holder_bytes_ = 0;
  std::uint16_t name_bytes_ = 0;
  std::int64_t token_ = 0;
  std::int64_t sequence_ = no_sequence;
  char in_place_[72];
};
static_assert(sizeof(Slot) == 96);

// Slots whose addresses stay, and which are not copied as they grow in number. The table of chunks is small
// enough to stay in a processor's cache.
class Slots {
 public:
  [[nodiscard]] Slot& operator[](std::size_t place) const noexcept {
    return chunks_[place / chunk_slots][place % chunk_slots];
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  void add() {
    if (size_ % chunk_slots == 0) chunks_.push_back(std::make_unique<Slot[]>(chunk_slots));
    ++size_;
  }
  void clear() {
    chunks_.clear();
    size_ = 0;
  }

 private:
  static constexpr std::size_t chunk_slots = 64;
  std::vector<std::unique_ptr<Slot[]>> chunks_;
  std::size_t size_ = 0;
};

std::size_t hash_name(std::string_view name) noexcept {
  return std::hash<std::string_view>{}(name);
}

// Which of a shard's locks the calling thread takes as a reader.
std::size_t reader_number() noexcept {
  static std::atomic<std::size_t> threads{0};
  thread_local std::size_t number = reader_locks;
  if (number == reader_locks) number = threads.fetch_add(1, std::memory_order_relaxed) % reader_locks;
  return number;
}

}  // namespace

class FenceCache::Shard {
  struct alignas(64) Lock {
    std::mutex mutex;
  };
  using Locks = std::array<Lock, reader_locks>;

 public:
  // Keeps writers out. Every thread takes a lock of its own while no more than reader_locks of them read, so
  // that its line of memory does not go to and fro between processors.
  class ReaderLock {
   public:
    explicit ReaderLock(Shard& shard) : lock_{shard.locks_[reader_number()].mutex} {}

   private:
    std::scoped_lock<std::mutex> lock_;
  };
  // Keeps all others out.
  class WriterLock {
   public:
    explicit WriterLock(Shard& shard) : locks_{shard.locks_} {
      for (auto& lock : locks_) lock.mutex.lock();
    }
    ~WriterLock() {
      for (auto& lock : locks_) lock.mutex.unlock();
    }
    WriterLock(const WriterLock&) = delete;
    WriterLock& operator=(const WriterLock&) = delete;

   private:
    Locks& locks_;
  };

  Shard() : index_{0, ByName{&slots_}, ByName{&slots_}} {}

  void limit(std::size_t slots_max) { slots_max_ = slots_max; }

  [[nodiscard]] Slot* find(std::string_view name, std::size_t hash) {
    const auto found = index_.find(Key{name, hash});
    if (found == index_.end()) return nullptr;
    Slot& slot = slots_[*found];
    slot.mark_used();
    return &slot;
  }

  // True if another fence gave way.
  bool put(std::string_view name, std::size_t hash, const Fence& fence) {
    if (slots_max_ == 0) return true;
    if (Slot* present = find(name, hash)) {
      present->assign(name, fence);
      return false;
    }
    bool evicted = false;
    std::uint32_t place = 0;
    if (!free_.empty()) {
      place = free_.back();
      free_.pop_back();
    } else if (slots_.size() < slots_max_) {
      place = static_cast<std::uint32_t>(slots_.size());
      slots_.add();
    } else {
      place = give_way();
      evicted = true;
    }
    slots_[place].assign(name, fence);
    index_.insert(place);
    return evicted;
  }

  void erase(std::string_view name, std::size_t hash) {
    const auto found = index_.find(Key{name, hash});
    if (found == index_.end()) return;
    const std::uint32_t place = *found;
    index_.erase(found);
    slots_[place].release();
    free_.push_back(place);
  }

  void clear() {
    index_.clear();
    slots_.clear();
    free_.clear();
    hand_ = 0;
  }

  [[nodiscard]] std::size_t size() const { return index_.size(); }

 private:
  struct Key {
    std::string_view name;
    std::size_t hash;
  };
  // Hashes and compares places by the name in their slot.
  struct ByName {
    using is_transparent = void;
    using is_avalanching = void;  // std::hash of a string mixes all bits
    const Slots* slots;
    std::size_t operator()(std::uint32_t place) const { return hash_name((*slots)[place].name()); }
    std::size_t operator()(const Key& key) const { return key.hash; }
    bool operator()(std::uint32_t a, std::uint32_t b) const {
      return (*slots)[a].name() == (*slots)[b].name();
    }
    bool operator()(const Key& a, std::uint32_t b) const { return a.name == (*slots)[b].name(); }
    bool operator()(std::uint32_t a, const Key& b) const { return b.name == (*slots)[a].name(); }
  };

  std::uint32_t give_way() {
    for (;;) {
      if (hand_ >= slots_.size()) hand_ = 0;
      const std::size_t place = hand_++;
      Slot& slot = slots_[place];
      if (slot.take_used()) continue;
      index_.erase(static_cast<std::uint32_t>(place));
      slot.release();
      return static_cast<std::uint32_t>(place);
    }
  }

  Locks locks_;
  Slots slots_;
  boost::unordered_flat_set<std::uint32_t, ByName, ByName> index_;
  std::vector<std::uint32_t> free_;
  std::size_t slots_max_ = 0;
  std::size_t hand_ = 0;
};

FenceCache::FenceCache(std::size_t entries) : capacity_{entries}, shard_count_{1} {
  while (shard_count_ < shards_max && shard_count_ * 64 < entries) shard_count_ *= 2;
  shards_ = std::make_unique<Shard[]>(shard_count_);
  // The remainder goes to the first shards, so that the sum is exact.
  for (std::size_t i = 0; i < shard_count_; ++i) {
    shards_[i].limit(entries / shard_count_ + (i < entries % shard_count_ ? 1 : 0));
  }
}

FenceCache::~FenceCache() = default;

// The upper bits choose the shard; the index within it uses the lower ones.
FenceCache::Shard& FenceCache::shard_of(std::size_t hash) const noexcept {
  return shards_[(hash >> 48) & (shard_count_ - 1)];
}

std::optional<Fence> FenceCache::find(const Resource& resource) const {
  const std::size_t hash = hash_name(resource.name());
  Shard& shard = shard_of(hash);
  const Shard::ReaderLock lock{shard};
  const Slot* slot = shard.find(resource.name(), hash);
  if (slot == nullptr) return std::nullopt;
  const FenceRef fence = slot->fence();
  return Fence{fence.token, Holder{std::string{fence.holder}}, fence.sequence, fence.closed, fence.finished};
}

std::optional<FenceCache::Answer> FenceCache::ask(const Claim& claim, std::int64_t floor) const {
  const std::size_t hash = hash_name(claim.resource.name());
  Shard& shard = shard_of(hash);
  const Shard::ReaderLock lock{shard};
  const Slot* slot = shard.find(claim.resource.name(), hash);
  if (slot == nullptr) return std::nullopt;
  const FenceRef fence = slot->fence();
  return Answer{judge_verdict(fence, floor, claim), std::max(fence.token.value(), floor)};
}

bool FenceCache::put(const Resource& resource, const Fence& fence) {
  const std::size_t hash = hash_name(resource.name());
  Shard& shard = shard_of(hash);
  const Shard::WriterLock lock{shard};
  return shard.put(resource.name(), hash, fence);
}

void FenceCache::erase(const Resource& resource) {
  const std::size_t hash = hash_name(resource.name());
  Shard& shard = shard_of(hash);
  const Shard::WriterLock lock{shard};
  shard.erase(resource.name(), hash);
}

void FenceCache::clear() {
  for (std::size_t i = 0; i < shard_count_; ++i) {
    const Shard::WriterLock lock{shards_[i]};
    shards_[i].clear();
  }
}

std::size_t FenceCache::size() const {
  std::size_t total = 0;
  for (std::size_t i = 0; i < shard_count_; ++i) {
    const Shard::ReaderLock lock{shards_[i]};
    total += shards_[i].size();
  }
  return total;
}

}  // namespace fenceguard
