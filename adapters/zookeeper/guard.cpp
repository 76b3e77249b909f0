#include "adapters/zookeeper/guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "guard/error.hpp"
#include "guard/support/fence_text.hpp"

namespace fenceguard::zookeeper {
namespace {

// jute.maxbuffer of the servers, less what else is in a request. A server that is sent more cuts the
// connection, and the outcome of the request is not known.
constexpr std::size_t request_bytes_max = 1'000'000;
// Kind, lengths, ACL, version: about 100 bytes.
constexpr std::size_t bytes_around_an_op = 160;
// Two numbers, a word, and a holder of at most 128 bytes.
constexpr std::size_t fence_bytes_max = 192;

// However slow the ensemble is, another guard's writes between two of our steps do not count as its silence.
constexpr int attempts_min = 10;

bool is_sequential(const Op& op) {
  return op.kind == Op::Kind::create &&
         (op.mode == Mode::persistent_sequential || op.mode == Mode::ephemeral_sequential);
}

void require_allowed(const FencePaths& paths, const std::vector<Op>& ops) {
  if (ops.empty()) throw InvalidInput("a guarded write has at least one operation");
  for (const auto& op : ops) {
    require_path(op.path, is_sequential(op));
    if (paths.is_reserved(op.path)) {
      throw InvalidInput(fmt::format("{} is fenceguard's own; no guarded operation may name it", op.path));
    }
    if (op.kind == Op::Kind::create && op.mode == Mode::container)
      throw InvalidInput("ZooKeeper makes no container within a multi, so none under a claim");
  }
}

// The guard's own operations are counted as large as they may become.
void require_fit(const FencePaths& paths, std::span<const Claim> claims, const std::vector<Op>& ops) {
  auto bytes = paths.floor().size() + paths.highest().size() + 2 * bytes_around_an_op;
  for (const auto& claim : claims)
    bytes += paths.fence(claim.resource).size() + fence_bytes_max + bytes_around_an_op;
  for (const auto& op : ops) bytes += op.path.size() + op.data.size() + bytes_around_an_op;
  if (bytes > request_bytes_max) {
    throw InvalidInput(fmt::format(
        "a guarded write of {} bytes, its claims included, is more than a request of ZooKeeper holds",
        bytes));
  }
}

std::vector<Resource> resources_of(std::span<const Claim> claims) {
  std::vector<Resource> resources;
  for (const auto& claim : claims) resources.push_back(claim.resource);
  return resources;
}

void require_distinct(const std::vector<Resource>& resources) {
  if (resources.empty()) throw InvalidInput("a guarded write has at least one claim");
  const std::set<Resource> distinct{resources.begin(), resources.end()};
  if (distinct.size() != resources.size())
    throw InvalidInput("two claims of one write name the same resource");
}

bool is_admitted(const Ruling& ruling) {
  return ruling.verdict == Verdict::admitted;
}

// Whether the fence, read behind the data that the claim asked for, is the claim's own still. A compacted one
// has given way to a floor that may be above it.
bool is_still_at(const Claim& claim, const Answer& fence) {
  if (fence.code != Code::ok) return false;
  const auto ruling = judge({parse_fence(fence.data), 0}, claim);
  return is_admitted(ruling) && !ruling.changed;
}

}  // namespace

// What is asked for.
struct Guard::Request {
  std::span<const Claim> claims;
  const std::vector<Op>* ops = nullptr;    // null: the advance alone
  const std::string* read_path = nullptr;  // read behind it
};

struct Guard::Applied {
  std::vector<Ruling> rulings;
  std::optional<MultiAnswer> result;
  std::optional<Answer> answer;
};

// One look, one judgement and what is sent on the strength of them.
struct Guard::Attempt {
  const Request& request;
  const std::vector<Resource>& resources;
  Client::Connection connection{};
  std::vector<VersionedFence> versioned_fences{};
  bool is_from_cache = false;
  std::vector<Ruling> rulings{};

  [[nodiscard]] bool changes_fences() const {
    return std::ranges::any_of(rulings, [](const Ruling& one) { return one.changed; });
  }

  // The highest token to which a fence would be raised; 0: none would.
  [[nodiscard]] std::int64_t raised_to() const {
    std::int64_t token = 0;
    for (std::size_t i = 0; i < rulings.size(); ++i) {
      const bool is_raised = rulings[i].changed && rulings[i].highest > versioned_fences[i].view.highest();
      if (is_raised) token = std::max(token, rulings[i].highest);
    }
    return token;
  }

  [[nodiscard]] const std::optional<HighestMark>& mark() const { return versioned_fences.front().mark; }

  // The proof that all is as it was seen, and the fences as they are to be: the floor, then one for each
  // claim, and where a fence is raised the mark.
  [[nodiscard]] std::vector<Op> proof(const FencePaths& paths) const {
    std::vector<Op> ops{versioned_fences.front().check_floor(paths)};
    for (std::size_t i = 0; i < resources.size(); ++i) {
      auto path = paths.fence(resources[i]);
      const auto version = versioned_fences[i].version;
      if (!rulings[i].changed) {
        ops.push_back(check(std::move(path), version));
      } else if (versioned_fences[i].view.record) {
        ops.push_back(set(std::move(path), text_of(*rulings[i].fence), version));
      } else {
        ops.push_back(create(std::move(path), text_of(*rulings[i].fence)));
      }
    }
    if (const auto token = raised_to(); token > 0) ops.push_back(mark()->keep_true(paths, token));
    return ops;
  }

  [[nodiscard]] std::size_t proofs() const { return resources.size() + (raised_to() > 0 ? 2 : 1); }
};

Guard::Guard(Client& client, GuardOptions options)
    : client_{client}, options_{options}, cache_{options.cache_entries} {}

// Judges all claims. False if it must be done again by what the ensemble says: a cached fence refuses no
// claim.
bool Guard::look(Attempt& attempt, bool is_cache_trusted) {
  auto cached =
      is_cache_trusted ? cache_.find(attempt.connection.generation, attempt.resources) : std::nullopt;
  attempt.is_from_cache = cached.has_value();
  attempt.versioned_fences =
      cached ? *std::move(cached) : read_fences(attempt.connection, client_.paths(), attempt.resources);
  attempt.rulings.clear();
  for (std::size_t i = 0; i < attempt.resources.size(); ++i) {
    if (!attempt.is_from_cache)
      cache_.put(attempt.connection.generation, attempt.resources[i], attempt.versioned_fences[i]);
    attempt.rulings.push_back(judge(attempt.versioned_fences[i].view, attempt.request.claims[i]));
  }
  return !attempt.is_from_cache || std::ranges::all_of(attempt.rulings, is_admitted);
}

// What looks implausible by what this guard has seen so far may be plausible by what others wrote.
void Guard::require_plausible(const Attempt& attempt) {
  for (const auto& claim : attempt.request.claims) {
    if (!is_implausible(claim, cache_.highest(), options_.jump_max)) continue;
    if (is_plausible_to_all({attempt.connection, client_.paths(), client_.looks()}, claim, options_.jump_max))
      continue;
    throw Implausible(fmt::format("token {} for '{}' is more than {} above the highest seen",
                                  claim.token.value(), claim.resource.name(), options_.jump_max));
  }
}

// After a multi that took effect.
void Guard::remember(const Attempt& attempt) {
  const auto token = attempt.raised_to();
  for (std::size_t i = 0; i < attempt.resources.size(); ++i) {
    auto versioned_fence = attempt.versioned_fences[i];
    if (token > 0) versioned_fence.mark = versioned_fence.mark->after(token);
    if (attempt.rulings[i].changed) {
      versioned_fence.version = versioned_fence.view.record ? version_after(versioned_fence.version) : 0;
      versioned_fence.view.record = attempt.rulings[i].fence;
    }
    if (versioned_fence.version == any_version) {
      cache_.forget(attempt.resources[i]);
    } else {
      cache_.put(attempt.connection.generation, attempt.resources[i], versioned_fence);
    }
  }
}

// The caller's operation was refused, so nothing took effect. The token of an admitted claim stays all the
// same. False if it must be done again.
bool Guard::keep_tokens(Attempt& attempt, Applied& applied, const MultiAnswer& answer) {
  const auto proofs = attempt.proofs();
  attempt.rulings.clear();
  for (std::size_t i = 0; i < attempt.resources.size(); ++i)
    attempt.rulings.push_back(
        judge_refused_write(attempt.versioned_fences[i].view, attempt.request.claims[i]));
  if (attempt.changes_fences()) {
    const auto ops = attempt.proof(client_.paths());
    if (!certain([&] { return attempt.connection.multi(ops); }).is_ok()) return false;
    remember(attempt);
  }
  applied.rulings = attempt.rulings;
  applied.result = MultiAnswer{answer.code, answer.failed - proofs, {}};
  return true;
}

// False if it must be done again, because something was not as it was seen.
bool Guard::send(Attempt& attempt, Applied& applied) {
  auto ops = attempt.proof(client_.paths());
  const auto proofs = attempt.proofs();
  const auto& request = attempt.request;
  if (request.ops) ops.insert(ops.end(), request.ops->begin(), request.ops->end());
  auto pending = attempt.connection.begin_multi(ops);
  std::optional<Pending<Answer>> reading;
  std::optional<Pending<Answer>> fence_behind;
  if (request.read_path) {
    auto& session = *attempt.connection.session;
    reading = session.begin_get(*request.read_path);
    fence_behind = session.begin_get(client_.paths().fence(attempt.resources.front()));
  }
  const bool writes = request.ops || attempt.changes_fences();
  auto answer = writes ? pending.get() : certain([&] { return pending.get(); });
  if (!answer.is_ok()) {
    if (answer.failed >= proofs) return keep_tokens(attempt, applied, answer);
    return false;
  }
  remember(attempt);
  applied.rulings = std::move(attempt.rulings);
  if (request.ops) {
    auto& all = answer.answers;
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(proofs));
    applied.result = std::move(answer);
  }
  if (!reading) return true;
  applied.answer = reading->get();
  // A newer token may have written between the multi and the read.
  return is_still_at(request.claims.front(), fence_behind->get());
}

Guard::Applied Guard::apply(const Request& request) {
  const auto resources = resources_of(request.claims);
  const auto deadline = std::chrono::steady_clock::now() + client_.address().timeout;
  bool is_cache_trusted = true;
  for (int attempts = 1;; ++attempts) {
    Attempt attempt{.request = request, .resources = resources};
    attempt.connection = client_.connection();
    if (!look(attempt, is_cache_trusted)) {
      is_cache_trusted = false;
      continue;
    }
    Applied applied;
    if (!std::ranges::all_of(attempt.rulings, is_admitted)) {
      applied.rulings = std::move(attempt.rulings);
      return applied;
    }
    require_plausible(attempt);
    if (attempt.raised_to() > 0 && !attempt.mark()) {
      (void)read_mark({attempt.connection, client_.paths(), client_.looks()});
      is_cache_trusted = false;
      continue;
    }
    if (send(attempt, applied)) return applied;
    is_cache_trusted = false;
    if (attempts >= attempts_min && std::chrono::steady_clock::now() > deadline) {
      throw Unavailable(
          fmt::format("'{}' is changed by others as often as it is looked at", resources.front().name()));
    }
  }
}

Ruling Guard::advance(const Claim& claim) {
  const auto advancing = claim.without_sequence();
  return apply({.claims = {&advancing, 1}}).rulings.front();
}

WriteResult Guard::write(const Claim& claim, const std::vector<Op>& ops) {
  auto all = write_all({&claim, 1}, ops);
  return {std::move(all.rulings.front()), std::move(all.result)};
}

WriteAllResult Guard::write_all(std::span<const Claim> claims, const std::vector<Op>& ops) {
  require_distinct(resources_of(claims));
  require_allowed(client_.paths(), ops);
  require_fit(client_.paths(), claims, ops);
  auto applied = apply({.claims = claims, .ops = &ops});
  return {std::move(applied.rulings), std::move(applied.result)};
}

FencedRead Guard::read(const Claim& claim, const std::string& path) {
  require_path(path);
  const auto reading = claim.without_sequence();
  auto applied = apply({.claims = {&reading, 1}, .read_path = &path});
  return {std::move(applied.rulings.front()), std::move(applied.answer)};
}

}  // namespace fenceguard::zookeeper
