#include "adapters/zookeeper/fences/versioned_fence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "guard/support/fence_text.hpp"

namespace fenceguard::zookeeper {
namespace {

// So many reads are under way at once, of the many that a listing needs.
constexpr std::size_t reads_max = 256;
// A compaction that comes between two reads makes them again; no operator compacts that often.
constexpr int attempts = 20;

Fence fence_of(const Resource& resource, const Answer& answer) {
  auto fence = parse_fence(answer.data);
  if (!fence) {
    throw Unavailable(
        fmt::format("the fence of '{}' is damaged; 'fenceguard fence rebase' sets it anew, on stopped guards",
                    resource.name()));
  }
  return *std::move(fence);
}

// Versions are 32 bits wide and wrap around; -1 in a check means any.
void require_checkable(std::int32_t version, std::string_view what, std::string_view remedy) {
  if (version == any_version) {
    throw Unavailable(
        fmt::format("{} was written so often that its version cannot be checked; {}", what, remedy));
  }
}

[[noreturn]] void refuse_uninitialised(const FencePaths& paths) {
  throw Unavailable(
      fmt::format("there is no {}: this namespace was never initialised, or lost its state; run 'fenceguard "
                  "fence init'",
                  paths.floor()));
}

VersionedFence versioned_fence_of(const Resource& resource, const Answer& floor, const Answer& fence) {
  VersionedFence versioned_fence;
  versioned_fence.floor_version = floor.stat.version;
  if (fence.code != Code::ok) return versioned_fence;
  require_checkable(fence.stat.version, fmt::format("the fence of '{}'", resource.name()),
                    "'fenceguard fence rebase' sets it anew");
  versioned_fence.view.record = fence_of(resource, fence);
  versioned_fence.version = fence.stat.version;
  return versioned_fence;
}

}  // namespace

void require_place(const FencePaths& paths, const Answer& answer) {
  if (answer.code == Code::ok) return;
  throw Unavailable(fmt::format(
      "there is no {}: this namespace lost its fences; run 'fenceguard fence init', which draws a "
      "floor above all that was granted",
      paths.fences()));
}

std::int64_t floor_of(const FencePaths& paths, const Answer& answer) {
  if (answer.code != Code::ok) refuse_uninitialised(paths);
  const auto floor = parse_decimal(answer.data);
  if (!floor) {
    throw Unavailable(fmt::format(
        "{} holds no floor of ours; set it to a number above every token that was issued", paths.floor()));
  }
  require_checkable(answer.stat.version, paths.floor(), "run 'fenceguard fence init'");
  return *floor;
}

Op VersionedFence::check_floor(const FencePaths& paths) const {
  return check(paths.floor(), floor_version);
}

std::vector<VersionedFence> read_fences(const Client::Connection& connection, const FencePaths& paths,
                                        std::span<const Resource> resources) {
  auto& session = *connection.session;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    auto barrier = session.begin_multi({check(paths.floor(), any_version)});
    auto before = session.begin_get(paths.floor());
    auto place = session.begin_exists(paths.fences());
    auto mark = session.begin_get(paths.highest());
    std::vector<Pending<Answer>> fences;
    for (const auto& one : resources) fences.push_back(session.begin_get(paths.fence(one)));
    auto after = session.begin_get(paths.floor());
    if (!certain([&] { return barrier.get(); }).is_ok()) refuse_uninitialised(paths);
    const auto first = before.get();
    const auto value = floor_of(paths, first);
    require_place(paths, place.get());
    const auto highest = mark_in(paths, mark.get());
    std::vector<VersionedFence> versioned_fences;
    for (std::size_t i = 0; i < resources.size(); ++i) {
      versioned_fences.push_back(versioned_fence_of(resources[i], first, fences[i].get()));
      versioned_fences.back().view.floor = value;
      versioned_fences.back().mark = highest;
    }
    const auto last = after.get();
    if (last.code == Code::ok && last.stat.version == first.stat.version) return versioned_fences;
  }
  throw Unavailable(fmt::format("{} changes as often as it is looked at", paths.floor()));
}

void require_initialised(const Client::Connection& connection, const FencePaths& paths) {
  const auto answer = certain([&] { return connection.session->multi({check(paths.floor(), any_version)}); });
  if (!answer.is_ok()) refuse_uninitialised(paths);
}

std::vector<Resource> read_resources(Session& session, const FencePaths& paths) {
  const auto listing = session.get_children(paths.fences());
  require_place(paths, listing);
  std::vector<Resource> resources;
  for (const auto& name : listing.children) {
    if (auto resource = resource_of(name)) resources.push_back(*std::move(resource));
  }
  std::ranges::sort(resources);
  return resources;
}

std::vector<ParsedFence> read_each(Session& session, const FencePaths& paths,
                                   std::span<const Resource> resources) {
  std::vector<ParsedFence> fences;
  while (fences.size() < resources.size()) {
    const auto window =
        resources.subspan(fences.size(), std::min(reads_max, resources.size() - fences.size()));
    std::vector<Pending<Answer>> pending;
    for (const auto& one : window) pending.push_back(session.begin_get(paths.fence(one)));
    for (auto& one : pending) {
      const auto answer = one.get();
      auto& passed = fences.emplace_back();
      if (answer.code != Code::ok) continue;
      passed.fence = parse_fence(answer.data);
      passed.is_damaged = !passed.fence;
    }
  }
  return fences;
}

std::int64_t read_highest(const Client::Connection& connection, const FencePaths& paths) {
  auto& session = *connection.session;
  require_initialised(connection, paths);
  auto highest = floor_of(paths, session.get(paths.floor()));
  for (const auto& [fence, is_damaged] : read_each(session, paths, read_resources(session, paths))) {
    if (fence) highest = std::max(highest, fence->token.value());
  }
  return highest;
}

std::int64_t lift_mark(const Namespace& in) {
  auto& session = *in.connection.session;
  require_initialised(in.connection, in.paths);
  const auto mark = mark_in(in.paths, session.get(in.paths.highest()));
  const auto highest = read_highest(in.connection, in.paths);
  const auto text = std::to_string(highest);
  if (!mark) {
    // A concurrent raise creates the mark first; then this create fails.
    (void)certain([&] { return session.create(in.paths.highest(), text); });
  } else if (highest > mark->value) {
    try {
      (void)session.set(in.paths.highest(), text, mark->version);
    } catch (const Error&) {
      // It is lifted by the next one.
    }
  }
  return highest;
}

namespace {

CoalescedScan::Found look_since(const Namespace& in, CoalescedScan::Time since,
                                CoalescedScan::Time meanwhile = CoalescedScan::Time::max()) {
  return in.looks.fences.since(
      since, [&] { return lift_mark(in); }, meanwhile);
}

}  // namespace

HighestMark read_mark(const Namespace& in) {
  auto& session = *in.connection.session;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const auto asked = in.looks.fences.now();
    require_initialised(in.connection, in.paths);
    if (const auto mark = mark_in(in.paths, session.get(in.paths.highest()))) return *mark;
    // At first whatever look others are at, or have just ended: it makes the mark.
    (void)look_since(in, attempt == 0 ? asked - CoalescedScan::beside_mark : asked);
  }
  throw Unavailable(fmt::format("{} is removed as often as it is made", in.paths.highest()));
}

namespace {

// The number that a token source of this namespace would draw now; 0 where none ever drew.
std::int64_t read_position(const Namespace& in) {
  auto& session = *in.connection.session;
  const auto& paths = in.paths;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const auto offset = session.get(paths.offset());
    if (offset.code != Code::ok) return 0;
    const auto added = parse_decimal(offset.data);
    if (!added) return 0;  // no token comes of it
    const auto answer =
        certain([&] { return session.set(paths.offset(), offset.data, offset.stat.version); });
    if (answer.code != Code::ok) continue;
    const auto zxid = answer.stat.mzxid;
    return zxid + std::min(*added, INT64_MAX - zxid);
  }
  throw Unavailable(fmt::format("{} changes as often as it is looked at", paths.offset()));
}

}  // namespace

bool is_plausible_to_all(const Namespace& in, const Claim& claim, std::int64_t jump_max) {
  const auto asked = in.looks.fences.now();
  const auto mark = read_mark(in);
  const auto floor = floor_of(in.paths, in.connection.session->get(in.paths.floor()));
  if (!is_implausible(claim, std::max(mark.value, floor), jump_max)) return true;
  // After many elections of a quiet namespace.
  const auto position = in.looks.position.since(asked, [&] { return read_position(in); });
  if (!is_implausible(claim, position.number, jump_max)) return true;
  const bool is_open = !is_implausible(claim, std::max(mark.bound(), floor), jump_max);
  const auto fences = look_since(in, is_open ? asked : asked - CoalescedScan::beside_mark,
                                 asked - CoalescedScan::beside_mark_meanwhile);
  if (!is_implausible(claim, std::max(fences.number, floor), jump_max)) return true;
  if (is_open && fences.begun < asked) {
    throw Unavailable(
        fmt::format("whether token {} for '{}' is too far above all that was seen here is not known: that "
                    "takes a look at "
                    "every fence, and there were too many lately; try again",
                    to_string(claim.token), claim.resource.name()));
  }
  return false;
}

std::optional<std::vector<VersionedFence>> FenceCache::find(std::uint64_t generation,
                                                            std::span<const Resource> resources) {
  std::vector<VersionedFence> found;
  const std::scoped_lock lock{mutex_};
  for (const auto& resource : resources) {
    const auto at = index_.find(resource);
    if (at == index_.end()) return std::nullopt;
    const auto& entry = *at->second;
    // A fence that was seen under an older floor may have been compacted since, and created again.
    if (entry.generation != generation || entry.versioned_fence.floor_version != floor_version_)
      return std::nullopt;
    found.push_back(entry.versioned_fence);
    found.back().mark = mark_generation_ == generation ? mark_ : std::nullopt;
    entries_.splice(entries_.begin(), entries_, at->second);
  }
  return found;
}

void FenceCache::put(std::uint64_t generation, const Resource& resource,
                     const VersionedFence& versioned_fence) {
  const std::scoped_lock lock{mutex_};
  highest_ = std::max(highest_, versioned_fence.view.highest());
  floor_version_ = versioned_fence.floor_version;
  mark_ = versioned_fence.mark;
  mark_generation_ = generation;
  if (const auto at = index_.find(resource); at != index_.end()) {
    at->second->versioned_fence = versioned_fence;
    at->second->generation = generation;
    entries_.splice(entries_.begin(), entries_, at->second);
    return;
  }
  if (entries_max_ == 0) return;
  if (entries_.size() == entries_max_) {
    index_.erase(entries_.back().resource);
    entries_.pop_back();
  }
  entries_.push_front({resource, versioned_fence, generation});
  index_.emplace(resource, entries_.begin());
}

void FenceCache::forget(const Resource& resource) {
  const std::scoped_lock lock{mutex_};
  const auto at = index_.find(resource);
  if (at == index_.end()) return;
  entries_.erase(at->second);
  index_.erase(at);
}

std::int64_t FenceCache::highest() const {
  const std::scoped_lock lock{mutex_};
  return highest_;
}

void FenceCache::saw(std::int64_t token) {
  const std::scoped_lock lock{mutex_};
  highest_ = std::max(highest_, token);
}

}  // namespace fenceguard::zookeeper
