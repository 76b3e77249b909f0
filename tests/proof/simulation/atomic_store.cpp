#include "tests/proof/simulation/atomic_store.hpp"

#include <memory>
#include <optional>
#include <utility>

namespace fenceguard::proof {

void AtomicStore::ask(Question question, std::function<void(Reply)> done) {
  // A write without a sequence cannot be told from its double, nor can a revoke: nothing may send those
  // twice.
  bool may_double = question.kind != Kind::revoke;
  for (const Claim& claim : question.claims) may_double &= question.kind != Kind::write || claim.sequence;
  const bool is_refused = question.kind == Kind::write && world_.random.percent(world_.weather.refusal);
  const auto first = std::make_shared<std::optional<Told>>();
  world_.send(may_double, [this, question = std::move(question), done = std::move(done), is_refused, first] {
    // What was too high for the first copy would not be for the second, if others have come nearer.
    if (*first && (*first)->answer == Answer::implausible) return;
    Reply reply = handle(question, is_refused);
    // The answer to a double has no request that waits for it.
    if (std::exchange(*first, reply.at(0))) return;
    world_.send(false, [reply = std::move(reply), done] { done(reply); });
  });
}

Reply AtomicStore::handle(const Question& question, bool is_refused) {
  if (question.kind == Kind::revoke) {
    (void)fences_.close(Resource{world_.history.resources[question.resource].name});
    return {{Answer::admitted}};
  }
  if (question.kind == Kind::read) return {read(question)};
  for (const Claim& claim : question.claims) {
    if (fences_.is_beyond_bound(claim, jump_max)) return Reply(question.claims.size(), {Answer::implausible});
  }
  if (question.kind == Kind::write) return write(question, is_refused);
  const Ruling ruling = fences_.rule(question.claims[0].without_sequence());
  return {{answer_of(ruling.verdict), ruling.highest}};
}

Told AtomicStore::read(const Question& question) {
  const std::string& name = world_.history.resources[question.resource].name;
  if (question.claims.empty()) return {Answer::admitted, -1, values_[name]};
  const Claim claim = question.claims[0].without_sequence();
  if (fences_.is_beyond_bound(claim, jump_max)) return {Answer::implausible};
  const Ruling ruling = fences_.rule(claim);
  const bool is_in = ruling.verdict == fenceguard::Verdict::admitted;
  return {answer_of(ruling.verdict), ruling.highest, is_in ? values_[name] : 0};
}

// All of its claims or none.
Reply AtomicStore::write(const Question& question, bool is_refused) {
  Reply reply(question.claims.size(), {Answer::unavailable});
  std::vector<Ruling> rulings;
  for (std::size_t i = 0; i < question.claims.size(); ++i) {
    rulings.push_back(judge(fences_.view(question.claims[i].resource), question.claims[i]));
    if (rulings[i].verdict == fenceguard::Verdict::admitted) continue;
    reply[i] = {answer_of(rulings[i].verdict), rulings[i].highest};
    return reply;
  }
  for (std::size_t i = 0; i < question.claims.size(); ++i) {
    const Claim& claim = question.claims[i];
    if (is_refused) rulings[i] = judge_refused_write(fences_.view(claim.resource), claim);
    fences_.keep(claim.resource, rulings[i]);
    reply[i] = {is_refused ? Answer::refused : Answer::admitted, rulings[i].highest};
    if (is_refused) continue;
    values_[claim.resource.name()] = question.values[i];
    for (auto& resource : world_.history.resources) {
      if (resource.name == claim.resource.name())
        resource.log.push_back({claim.token.value(), question.values[i]});
    }
  }
  return reply;
}

}  // namespace fenceguard::proof
