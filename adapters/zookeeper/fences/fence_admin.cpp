#include "adapters/zookeeper/fences/fence_admin.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "adapters/zookeeper/fences/versioned_fence.hpp"
#include "guard/error.hpp"
#include "guard/support/fence_text.hpp"

namespace fenceguard::zookeeper {
namespace {

// Times that a call looks again because another client's change came between its look and its step.
constexpr int attempts = 100;

[[noreturn]] void give_up(std::string_view what) {
  throw Unavailable(fmt::format("{} is changed by others as often as it is looked at", what));
}

VersionedFence read_one(const Client::Connection& connection, const FencePaths& paths,
                        const Resource& resource) {
  return read_fences(connection, paths, {&resource, 1}).front();
}

// A fence as it is to be, in the place of what was seen.
Op put(const std::string& path, const VersionedFence& versioned_fence, const Fence& fence) {
  return versioned_fence.view.record ? set(path, text_of(fence), versioned_fence.version)
                                     : create(path, text_of(fence));
}

// A lease in front of which a fence cannot be closed is no answer to pass over: its holder would go on.
void require_plausible(const Namespace& in, const Revocation& revocation) {
  const auto& [lease, highest_seen, jump_max] = revocation;
  if (!is_implausible(*lease, highest_seen, jump_max)) return;
  if (is_plausible_to_all(in, *lease, jump_max)) return;
  throw Implausible(
      fmt::format("the lease of '{}' has token {}, more than {} above the highest seen, and the fence was "
                  "not closed; end "
                  "the lease at its source, find out where the number came from, and revoke again",
                  lease->resource.name(), lease->token.value(), jump_max));
}

// The fence closed, the higher one of the record and the present lease's; nothing if there is neither.
std::optional<Fence> closed_fence(const Namespace& in, const FenceView& view, const Revocation& revocation) {
  const auto& lease = revocation.lease;
  if (lease && lease->token.value() > view.highest()) {
    require_plausible(in, revocation);
    return Fence{lease->token, lease->holder, std::nullopt, true};
  }
  auto fence = view.record;
  if (fence) fence->closed = true;
  return fence;
}

}  // namespace

FenceView look(Client& client, const Resource& resource) {
  return read_one(client.connection(), client.paths(), resource).view;
}

FencePage list(Client& client, const FenceListing& listing) {
  const auto connection = client.connection();
  auto& session = *connection.session;
  require_initialised(connection, client.paths());
  const auto all = read_resources(session, client.paths());
  std::vector<Resource> wanted;
  for (const auto& resource : all) {
    if (listing.names(resource) && wanted.size() <= listing.limit) wanted.push_back(resource);
  }
  FencePage page;
  page.has_more = wanted.size() > listing.limit;
  if (page.has_more) wanted.pop_back();
  const auto fences = read_each(session, client.paths(), wanted);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    // One that was compacted in between is left out, and so is one that is damaged.
    if (fences[i].fence) page.entries.push_back({wanted[i], *fences[i].fence});
  }
  return page;
}

FenceView revoke(Client& client, const Resource& resource, const Revocation& revocation) {
  const auto path = client.paths().fence(resource);
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const auto connection = client.connection();
    const Namespace in{connection, client.paths(), client.looks()};
    const auto seen = read_one(connection, client.paths(), resource);
    const auto fence = closed_fence(in, seen.view, revocation);
    if (!fence || fence == seen.view.record) return seen.view;
    std::vector<Op> ops{seen.check_floor(client.paths()), put(path, seen, *fence)};
    if (const auto token = fence->token.value(); token > seen.view.highest()) {
      const auto mark = read_mark(in);
      ops.push_back(mark.keep_true(client.paths(), token));
    }
    if (connection.multi(ops).is_ok()) return {fence, seen.view.floor};
  }
  give_up(path);
}

namespace {

std::string note_of(const FenceStore::Rebase& rebase, const std::string& before) {
  return fmt::format("{:%FT%TZ} '{}' was set from '{}' to {} by {}", fmt::gmtime(std::time(nullptr)),
                     rebase.resource.name(), before, rebase.to.value(), rebase.by);
}

// An operator that sets a fence by hand decided by what it was, so one that rises meanwhile is not lowered.
// first: what it was at the first look.
void refuse_raised(const FenceStore::Rebase& rebase, const Answer& now, std::optional<std::int64_t>& first) {
  const auto fence = now.code == Code::ok ? parse_fence(now.data) : std::nullopt;
  const auto token = fence ? fence->token.value() : 0;
  if (!first) first = token;
  if (token > *first && token > rebase.to.value()) {
    throw Unavailable(fmt::format(
        "the fence of '{}' rose to {} meanwhile and was not set; stop the guards, look, and try again",
        rebase.resource.name(), token));
  }
}

// After a fence was lowered by hand: what is implausible is decided by the others again.
void lower_mark(const Namespace& in, const HighestMark& mark) {
  try {
    const auto highest = read_highest(in.connection, in.paths);
    if (highest >= mark.value) return;
    (void)in.connection.session->set(in.paths.highest(), std::to_string(highest), mark.version);
    // A fence may have risen since it was looked at, by the mark as it was.
    (void)lift_mark(in);
  } catch (const Error&) {
    // The fence is set. What counts as implausible stays generous until the next time.
  }
}

}  // namespace

FenceView rebase(Client& client, const FenceStore::Rebase& rebase) {
  const auto& paths = client.paths();
  const auto path = paths.fence(rebase.resource);
  const Fence fence{rebase.to, Holder{}, std::nullopt, true};
  std::optional<std::int64_t> first;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const auto connection = client.connection();
    auto& session = *connection.session;
    require_initialised(connection, paths);
    const auto floor = session.get(paths.floor());
    const FenceView after{fence, floor_of(paths, floor)};
    require_place(paths, session.exists(paths.fences()));
    const auto before = session.get(path);
    refuse_raised(rebase, before, first);
    session.make_path(paths.rebased());
    const Namespace in{connection, paths, client.looks()};
    const auto mark = read_mark(in);
    const auto put = before.code == Code::ok ? set(path, text_of(fence), before.stat.version)
                                             : create(path, text_of(fence));
    // While the floor is as it was seen, no compaction removed the fence since, so that it cannot be another
    // of the same version.
    const auto answer = connection.multi({check(paths.floor(), floor.stat.version), put,
                                          mark.keep_true(paths, rebase.to.value()),
                                          create(paths.rebased() + "/" + segment_of(rebase.resource) + "-",
                                                 note_of(rebase, before.data), Mode::persistent_sequential)});
    if (!answer.is_ok()) continue;
    if (rebase.to.value() < mark.value) lower_mark(in, mark);
    return after;
  }
  give_up(path);
}

std::int64_t init(Client& client, std::int64_t floor) {
  const auto& paths = client.paths();
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const auto connection = client.connection();
    auto& session = *connection.session;
    session.make_path(paths.root());
    const auto before = session.get(paths.floor());
    const auto value = before.code == Code::ok ? parse_decimal(before.data) : 0;
    if (!value) return floor_of(paths, before);
    const auto after = std::max(*value, floor);
    const auto text = std::to_string(after);
    // Also where the number is the same: what guards remember is forgotten with the floor's version.
    std::vector<Op> ops{before.code == Code::ok ? set(paths.floor(), text, before.stat.version)
                                                : create(paths.floor(), text)};
    // An empty place of the fences admits claims only under a floor that was drawn since.
    if (session.exists(paths.fences()).code != Code::ok) ops.push_back(create(paths.fences(), ""));
    if (connection.multi(ops).is_ok()) return after;
  }
  give_up(paths.floor());
}

namespace {

// So much is removed by one multi: a request holds 1 MB, and writers wait for it.
constexpr std::size_t step_ops = 500;
constexpr std::size_t step_bytes = 400'000;

// Others that compact at once make it begin anew: so often at least, and until the time-out.
constexpr int compactions_min = 10;

struct Candidate {
  std::string path;
  std::int64_t token = 0;
  std::int32_t version = 0;
};

// The fences below lowest_live, with their versions.
std::vector<Candidate> candidates(Session& session, const FencePaths& paths, Token lowest_live) {
  std::vector<Candidate> found;
  std::vector<std::pair<std::string, Pending<Answer>>> pending;
  const auto resources = read_resources(session, paths);
  for (std::size_t i = 0; i < resources.size();) {
    pending.clear();
    for (; i < resources.size() && pending.size() < step_ops; ++i) {
      auto path = paths.fence(resources[i]);
      auto reading = session.begin_get(path);
      pending.emplace_back(std::move(path), std::move(reading));
    }
    for (auto& [path, reading] : pending) {
      const auto answer = reading.get();
      const auto fence = answer.code == Code::ok ? parse_fence(answer.data) : std::nullopt;
      // What is damaged stays, for people to see.
      if (!fence || fence->token >= lowest_live || answer.stat.version == any_version) continue;
      found.push_back({path, fence->token.value(), answer.stat.version});
    }
  }
  return found;
}

// Takes the next step's worth from the end.
std::vector<Candidate> take_step(std::vector<Candidate>& all) {
  std::vector<Candidate> step;
  std::size_t bytes = 0;
  while (!all.empty() && step.size() < step_ops && bytes < step_bytes) {
    bytes += all.back().path.size();
    step.push_back(std::move(all.back()));
    all.pop_back();
  }
  return step;
}

// The floor as this compaction knows it. Its version was read before any fence was looked at, so as long as
// it holds no other compaction removed one: a fence that came and went in between has version 0 again, as
// before.
struct KnownFloor {
  std::int64_t value = 0;
  std::int32_t version = 0;
};

// One multi: the step's fences away, the floor above them. Fences that were written since they were looked at
// fall out of the step, one by one. False if another client changed the floor.
bool remove_step(const Client::Connection& connection, const FencePaths& paths, std::vector<Candidate> step,
                 KnownFloor& floor, Compaction& sum) {
  while (!step.empty()) {
    std::vector<Op> ops;
    std::int64_t after = floor.value;
    for (const auto& one : step) {
      ops.push_back(remove(one.path, one.version));
      after = std::max(after, one.token);
    }
    ops.push_back(set(paths.floor(), std::to_string(after), floor.version));
    const auto answer = connection.multi(ops);
    if (answer.is_ok()) {
      floor = {after, answer.answers.back().stat.version};
      sum.dropped += static_cast<std::int64_t>(step.size());
      sum.floor = after;
      return true;
    }
    if (answer.failed >= step.size()) return false;
    step.erase(step.begin() + static_cast<std::ptrdiff_t>(answer.failed));
  }
  return true;
}

}  // namespace

Compaction compact(Client& client, Token lowest_live) {
  const auto& paths = client.paths();
  const auto deadline = std::chrono::steady_clock::now() + client.address().timeout;
  Compaction sum;
  for (int attempt = 1;; ++attempt) {
    const auto connection = client.connection();
    auto& session = *connection.session;
    require_initialised(connection, paths);
    const auto before = session.get(paths.floor());
    KnownFloor floor{floor_of(paths, before), before.stat.version};
    sum.floor = floor.value;
    auto all = candidates(session, paths, lowest_live);
    bool is_alone = true;
    while (is_alone && !all.empty()) is_alone = remove_step(connection, paths, take_step(all), floor, sum);
    if (is_alone) return sum;
    if (attempt >= compactions_min && std::chrono::steady_clock::now() > deadline) give_up(paths.floor());
  }
}

StoreStatus status(Client& client) {
  const auto& paths = client.paths();
  const auto connection = client.connection();
  auto floor = connection.session->begin_get(paths.floor());
  auto fences = connection.session->begin_exists(paths.fences());
  auto mark = connection.session->begin_get(paths.highest());
  StoreStatus status;
  const auto found = floor.get();
  if (found.code == Code::no_node) status.state = StoreState::uninitialised;
  const auto place = fences.get();
  status.resources = place.stat.children;
  try {
    const auto highest = mark_in(paths, mark.get());
    if (highest) status.highest = highest->value;
    status.floor = floor_of(paths, found);
    if (place.code == Code::no_node) status.state = StoreState::uninitialised;
    require_place(paths, place);
  } catch (const Unavailable& error) {
    if (status.state == StoreState::ready) status.state = StoreState::failed;
    status.reason = error.what();
  }
  return status;
}

}  // namespace fenceguard::zookeeper
