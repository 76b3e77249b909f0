// The calls of the token source that are about its numbers alone.

#include <algorithm>

#include "adapters/etcd/lock/lock_client.hpp"
#include "guard/error.hpp"

namespace fenceguard::etcd {
namespace {

constexpr int attempts_max = 64;

[[noreturn]] void raise_contended() {
  throw Unavailable("etcd: the namespace's offset changes all the time; try again");
}

}  // namespace

void LockClient::raise(const Resource& resource, Token mark) {
  const auto lock = lock_name_.of(resource);
  for (int i = 0; i < attempts_max; ++i) {
    const auto answer = read({offset_.get(), first_of(lock)});
    const auto known = offset_.learn(answer.answers.at(0));
    // A waiting entry was created after the first of the queue, and takes the offset of when its turn comes.
    const auto& line = answer.answers.at(1).found;
    const auto past = line.empty() ? answer.revision : line.front().create_revision;
    const auto wanted = mark.value() - past + 1;
    if (known.value >= wanted) return;
    const auto raised = client_.txn({{offset_.is(known)}, {offset_.set(wanted)}, {}});
    if (raised.succeeded) return;
  }
  raise_contended();
}

Token LockClient::draw() {
  for (int i = 0; i < attempts_max; ++i) {
    const auto known = offset_.known();
    const auto answer = client_.txn({{offset_.is(known)}, {offset_.set(known.value)}, {offset_.get()}});
    if (answer.succeeded) {
      // It is there now, whatever it was.
      (void)offset_.learn({{{{}, std::to_string(known.value)}}, 1, false});
      return token_at(answer.revision, known.value);
    }
    (void)offset_.learn(answer.answers.at(0));
  }
  raise_contended();
}

Token LockClient::lowest_live() {
  // First, so that whatever is granted while the keys are read is above it.
  const auto drawn = draw();
  const auto& prefix = client_.address().prefix;
  auto names = std::vector{LockName{prefix, {}}};
  const auto registered = read({LockName::registered(prefix)});
  for (const auto& found : registered.answers.at(0).found)
    names.push_back(LockName::of_registration(prefix, found));
  auto lowest = token_at(drawn.value(), 1);
  for (const auto& name : names) {
    auto ops = name.all();
    ops.push_back(offset_.get());
    const auto answer = read(std::move(ops));
    const auto offset = offset_.learn(answer.answers.back());
    for (std::size_t i = 0; i + 1 < answer.answers.size(); ++i) {
      for (const auto& found : answer.answers[i].found)
        lowest = std::min(lowest, QueueEntry{found}.token(offset.value));
    }
  }
  return lowest;
}

}  // namespace fenceguard::etcd
